"""How a random loop is called: as it is, as a while loop, and under transformations.

Inputs have their lanes in front of a carry and behind time in xs; results have them
there, too, wherever they lie inside of the compiled program.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import jax
import jax.numpy as jnp
from jax import lax

from fuzz.program import Program

Scan = Callable[..., Any]
Loop = Callable[[Any, Any, Any], Any]
Mode = Literal[
    "plain",  # as it is
    "vmap",  # lanes in front of carries, behind or in front of time
    "twice",  # a vmap of a vmap, whose lanes come last
    "axes",  # lanes along any axis, in constants too
    "grad",
    "jvp",
    "grad of vmap",
    "vmap of grad",
    "remat",  # a gradient, with a body that is computed again
    "while",  # a while loop that reads its xs and writes its ys in place
    "lanes",  # a vmap of that, with as many rounds as each lane says
    "effects",  # a loop that tells what it does, which XLA keeps
]
#: what loops with effects have told
TOLD: list[Any] = []
WITH_LANES = ("vmap", "axes", "grad of vmap", "vmap of grad", "lanes")
WHILES = ("while", "lanes")
GRADIENTS = ("grad", "jvp", "grad of vmap", "vmap of grad", "remat")


def lanes_of(mode: Mode, lanes: int) -> tuple[int, ...]:
    if mode == "twice":
        return (lanes, 2)
    return (lanes,) if mode in WITH_LANES else ()


def called(
    mode: Mode, program: Program, scan: Scan, lanes_first: bool, **options: Any
) -> Loop:
    """The function of constants, first carry and xs that a mode makes of a loop."""

    def loop(consts: Any, init: Any, xs: Any) -> Any:
        body = program.body(consts)
        if mode == "remat":
            body = jax.checkpoint(body)
        if mode == "effects":
            body = _telling(body)
        return scan(body, init, xs, **options)

    if mode == "vmap":
        return _lanes_first(loop) if lanes_first else _over_lanes(loop)
    if mode == "twice":
        return _twice(loop)
    if mode == "axes":
        return _any_axes(loop, program)
    if mode in WHILES:
        loop = _as_while(program, **options)
        return _over_lanes(loop) if mode == "lanes" else loop
    if mode == "grad of vmap":
        return _gradient(_over_lanes(loop))
    if mode == "vmap of grad":
        return lambda consts, init, xs: jax.vmap(_gradient(loop), (None, 0, 1))(
            consts, init, xs
        )
    if mode in ("grad", "remat"):
        return _gradient(loop)
    return _derivative(loop) if mode == "jvp" else loop


def _telling(body: Callable[..., Any]) -> Callable[..., Any]:
    """A body that tells its ys to `TOLD`, in order."""

    def telling(carry: Any, x: Any) -> Any:
        carry, ys = body(carry, x)
        jax.debug.callback(lambda *ys: TOLD.append(ys), *ys, ordered=True)
        return carry, ys

    return telling


def _over_lanes(loop: Loop) -> Loop:
    return jax.vmap(loop, (None, 0, 1), (0, 1))


def _lanes_first(loop: Loop) -> Loop:
    turn = lambda tree: jax.tree.map(lambda x: jnp.swapaxes(x, 0, 1), tree)

    def turned(consts: Any, init: Any, xs: Any) -> Any:
        last, ys = jax.vmap(loop, (None, 0, 0))(consts, init, turn(xs))
        return last, turn(ys)

    return turned


def _twice(loop: Loop) -> Loop:
    to_end = lambda tree, axis: jax.tree.map(lambda x: jnp.moveaxis(x, axis, -1), tree)
    back = lambda tree, axis: jax.tree.map(lambda x: jnp.moveaxis(x, -1, axis), tree)

    def turned(consts: Any, init: Any, xs: Any) -> Any:
        inner = jax.vmap(loop, (None, -1, -1), -1)
        outer = jax.vmap(inner, (None, 0, 1), (0, 1))
        last, ys = outer(consts, to_end(init, 1), to_end(xs, 2))
        return back(last, 1), back(ys, 2)

    return turned


def constant_axes(program: Program) -> tuple[int | None, ...]:
    """Which constants have lanes, in front, where they may."""
    return tuple(None if k % 2 else 0 for k in range(len(program.consts)))


def _any_axes(loop: Loop, program: Program) -> Loop:
    """Lanes along an axis of its own in each input, which the seed says."""

    def axes(values: Any, extra: int) -> tuple[int, ...]:
        shift = sum(program.seed)
        return tuple(
            (shift + 3 * k) % (len(v.shape) + extra) for k, v in enumerate(values)
        )

    moved = lambda arrays, axis, to: tuple(
        jnp.moveaxis(x, axis, t) for x, t in zip(arrays, to, strict=True)
    )

    def turned(consts: Any, init: Any, xs: Any) -> Any:
        first, second = axes(program.carry, 1), axes(program.xs, 2)
        batched = jax.vmap(loop, (constant_axes(program), first, second), (0, 1))
        return batched(consts, moved(init, 0, first), moved(xs, 1, second))

    return turned


def _as_while(program: Program, length: int, reverse: bool) -> Loop:
    """As many rounds as the first number of the xs says, or all of them."""

    def loop(consts: Any, init: Any, xs: Any) -> Any:
        body = program.body(consts)
        rounds = rounds_of(xs, length)
        at = lambda i: jax.tree.map(
            lambda x: lax.dynamic_index_in_dim(x, i, 0, False), xs
        )
        ys = jax.eval_shape(lambda: body(init, at(0)))[1] if length else ()
        room = jax.tree.map(lambda y: jnp.zeros((length, *y.shape), y.dtype), ys)

        def step(state: Any) -> Any:
            i, carry, room = state
            place = length - 1 - i if reverse else i
            carry, ys = body(carry, at(place))
            put = lambda all, y: lax.dynamic_update_index_in_dim(all, y, place, 0)
            return i + 1, carry, jax.tree.map(put, room, ys)

        start = jnp.int32(0), init, room
        return lax.while_loop(lambda s: s[0] < rounds, step, start)[1:]

    return loop


def rounds_of(xs: Any, length: int) -> Any:
    """How many rounds a while loop goes, by its xs."""
    if not xs or not length:
        return jnp.int32(length)
    first = jnp.ravel(xs[0])
    return jnp.abs(first[0].astype("int32")) % (length + 1) if first.size else length


def _is_float(x: Any) -> bool:
    return jnp.issubdtype(x.dtype, jnp.floating)


def _total(loop: Loop, consts: Any, init: Any, xs: Any) -> tuple[Any, list[Any]]:
    """A number that depends on all results, as a function of all floats, and these."""

    def total(floats: list[Any]) -> Any:
        rest = iter(floats)
        renew = lambda xs: tuple(next(rest) if _is_float(x) else x for x in xs)
        results = loop(renew(consts), renew(init), renew(xs))
        leaves = jax.tree.leaves(results)
        both = lambda r: r.real + r.imag if jnp.iscomplexobj(r) else r
        sums = [jnp.sin(r).sum() for r in map(both, leaves) if _is_float(r)]
        return sum(sums, jnp.float64(0))

    return total, [x for x in (*consts, *init, *xs) if _is_float(x)]


def _gradient(loop: Loop) -> Loop:
    def gradient(*args: Any) -> Any:
        total, floats = _total(loop, *args)
        return jax.value_and_grad(total)(floats)

    return gradient


def _derivative(loop: Loop) -> Loop:
    def derivative(*args: Any) -> Any:
        total, floats = _total(loop, *args)
        return jax.jvp(total, (floats,), ([jnp.ones_like(x) for x in floats],))

    return derivative
