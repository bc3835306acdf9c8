"""What each step of a loop takes and gives, as shapes and as real values.

Shapes come from tracing `scan` itself, so they are right by construction and its
errors are the user's errors.  Values come from calling the body step by step in
Python for the steps that are shown; the stretch between the first and the last of
them runs as one compiled loop, so a long loop costs no more than a short one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.core import jaxpr_as_fun

from onescan import compat
from onescan.api.scan import scan
from onescan.loop import Loop

FIRST, LAST = 4, 2  # steps shown of a long loop
ALL = 8  # steps up to which none is left out

Body = Callable[[Any, Any], tuple[Any, Any]]


@dataclass(frozen=True)
class Shapes:
    """The types of a loop: pytrees of `jax.ShapeDtypeStruct`."""

    length: int
    carry: Any
    xs: Any  # as stacked
    x: Any  # as the body sees it
    y: Any  # as the body returns it
    ys: Any  # as stacked


@dataclass(frozen=True)
class Step:
    """One step: `carry_out, y = f(carry_in, x)`."""

    step: int  # in the order of execution
    index: int  # of x in xs and of y in ys; the other way round in a reverse loop
    carry_in: Any
    x: Any
    carry_out: Any
    y: Any


def shapes_of(
    f: Body, init: Any, xs: Any, length: int | None, reverse: bool, known: bool
) -> Shapes:
    """The types that a scan with these arguments has."""

    def traced(init: Any, xs: Any) -> tuple[Any, ...]:
        return *scan(f, init, xs, length, reverse), xs

    if known:  # as a closure: what is not an array is for scan to refuse
        carry, ys, xs = jax.eval_shape(lambda: traced(init, xs))
    else:
        carry, ys, xs = jax.eval_shape(traced, init, xs)
    sizes = [leaf.shape[0] for leaf in jax.tree.leaves(xs)]
    steps = sizes[0] if sizes else int(length)  # pyright: ignore[reportArgumentType]
    return Shapes(steps, carry, xs, _one(xs), _one(ys), ys)


@dataclass(frozen=True)
class Path:
    """What the user calls a leaf, "state.w": the path of one that has no container."""

    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Leaves:
    """Leaves by the user's own names, in their order, without their containers."""

    names: tuple[str, ...]
    values: tuple[Any, ...]


jax.tree_util.register_pytree_with_keys(
    Leaves,
    lambda self: (
        tuple((Path(n), v) for n, v in zip(self.names, self.values, strict=True)),
        self.names,
    ),
    lambda names, values: Leaves(names, tuple(values)),
)


@dataclass(frozen=True)
class Named:
    """One part of a flat body, its carry say, as a tree with the user's own names."""

    avals: list[Any]
    names: list[str] | None

    def tree(self, leaves: Sequence[Any]) -> Any:
        if len(leaves) < 2:
            return leaves[0] if leaves else None
        return Leaves(tuple(self.names), tuple(leaves)) if self.names else tuple(leaves)

    def leaves(self, tree: Any) -> list[Any]:
        return [tree] if len(self.avals) == 1 else jax.tree.leaves(tree)

    def types(self, *length: int) -> Any:
        return self.tree(
            [jax.ShapeDtypeStruct((*length, *a.shape), a.dtype) for a in self.avals]
        )


def named_parts(loop: Loop) -> tuple[Named, Named, Named]:
    """The carry, x and y of a loop of which only the program is known."""
    names = compat.argument_names(loop)
    first, second = loop.num_consts, loop.num_consts + loop.num_carry
    carry, x = (names[first:second], names[second:]) if names else (None, None)
    return (
        Named(loop.carry_avals, carry),
        Named(loop.x_avals, x),
        Named(loop.y_avals, None),
    )


def shapes_in(loop: Loop) -> Shapes:
    """The types of such a loop."""
    carry, x, y = named_parts(loop)
    steps = loop.length
    return Shapes(
        length=steps,
        carry=carry.types(),
        xs=x.types(steps),
        x=x.types(),
        y=y.types(),
        ys=y.types(steps),
    )


def steps_in(loop: Loop, values: Sequence[Any]) -> Iterator[Step]:
    """The steps of such a loop, by its flat arguments: constants, carry and xs."""
    first, second = loop.num_consts, loop.num_consts + loop.num_carry
    given = [_typed(v, a) for v, a in zip(values, loop.body.in_avals, strict=True)]
    carry, x, y = named_parts(loop)
    evaluate = jax.jit(jaxpr_as_fun(loop.body))

    def body(old: Any, row: Any) -> tuple[Any, Any]:
        results = evaluate(*given[:first], *carry.leaves(old), *x.leaves(row))
        count = loop.num_carry
        return carry.tree(results[:count]), y.tree(results[count:])

    init, xs = carry.tree(given[first:second]), x.tree(given[second:])
    return steps_of(body, init, xs, loop.reverse, shapes_in(loop))


def _typed(value: Any, aval: Any) -> Any:
    """An argument as the body wants it: keys come as the numbers they consist of."""
    if jnp.issubdtype(aval.dtype, jax.dtypes.prng_key):
        return jax.random.wrap_key_data(value, impl=aval.dtype._impl.name)
    return jnp.asarray(value, aval.dtype)


def _one(stacked: Any) -> Any:
    def drop(leaf: Any) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(
            leaf.shape[1:], leaf.dtype, weak_type=leaf.weak_type
        )

    return jax.tree.map(drop, stacked)


def steps_of(
    f: Body, init: Any, xs: Any, reverse: bool, shapes: Shapes
) -> Iterator[Step]:
    """The steps that are shown, with their values."""
    length = shapes.length

    def stretch(start: int, stop: int) -> tuple[int, int]:
        return (length - stop, length - start) if reverse else (start, stop)

    xs = jax.tree.map(jnp.asarray, xs)
    carry = jax.tree.map(_cast, init, shapes.carry)
    for step in _shown(length):
        if step == length - LAST and length > ALL:
            low, high = stretch(FIRST, step)
            middle = jax.tree.map(lambda leaf: leaf[low:high], xs)
            carry = _skip(f, carry, middle, high - low, reverse)
        index, _ = stretch(step, step + 1)
        x = jax.tree.map(lambda leaf: leaf[index], xs)
        carry_in = carry
        carry_out, y = f(carry_in, x)
        carry = jax.tree.map(_cast, carry_out, shapes.carry)
        yield Step(step, index, carry_in, x, carry, jax.tree.map(_cast, y, shapes.y))


def _shown(length: int) -> list[int]:
    if length <= ALL:
        return list(range(length))
    return [*range(FIRST), *range(length - LAST, length)]


def _skip(f: Body, carry: Any, xs: Any, length: int, reverse: bool) -> Any:
    def body(carry: Any, x: Any) -> tuple[Any, None]:
        return f(carry, x)[0], None

    return jax.lax.scan(body, carry, xs, length, reverse)[0]


def _cast(leaf: Any, to: jax.ShapeDtypeStruct) -> jax.Array:
    """A value with the type scan gives it: Python numbers stay weakly typed."""
    if jnp.issubdtype(to.dtype, jax.dtypes.prng_key):
        return leaf
    array = jnp.asarray(leaf, to.dtype)
    return compat.weak(array) if to.weak_type else array
