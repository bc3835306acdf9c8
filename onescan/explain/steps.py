"""What each step of a loop takes and gives, as shapes and as real values.

Shapes come from tracing `scan` itself, so they are right by construction and its
errors are the user's errors.  Values come from calling the body step by step in
Python for the steps that are shown; the stretch between the first and the last of
them runs as one compiled loop, so a long loop costs no more than a short one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from onescan import compat
from onescan.api import scan
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


def shapes_in(loop: Loop) -> Shapes:
    """The types of a loop of which only the program is known."""
    names = compat.argument_names(loop)
    first, second = loop.num_consts, loop.num_consts + loop.num_carry

    def named(avals: list[Any], names: list[str] | None, *length: int) -> Any:
        structs = [jax.ShapeDtypeStruct((*length, *a.shape), a.dtype) for a in avals]
        if len(structs) == 1:
            return structs[0]
        return dict(zip(names, structs, strict=True)) if names else tuple(structs)

    carry, x = (names[first:second], names[second:]) if names else (None, None)
    return Shapes(
        length=loop.length,
        carry=named(loop.carry_avals, carry) if loop.carry_avals else None,
        xs=named(loop.x_avals, x, loop.length) if loop.x_avals else None,
        x=named(loop.x_avals, x) if loop.x_avals else None,
        y=named(loop.y_avals, None) if loop.y_avals else None,
        ys=named(loop.y_avals, None, loop.length) if loop.y_avals else None,
    )


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
