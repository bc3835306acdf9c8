"""linear: recurrences ``c' = a * c + b`` leave the loop, to be solved in parallel.

In goes a loop; out comes one without the carries that follow a linear recurrence
(`onescan.passes.recurrences`) and that no other carry reads.  What their
coefficients are made from is left behind by the loop, the recurrence is solved for
all steps in chunks of time (`onescan.passes.chunked`), and everything that reads
the carry is computed afterwards, for all steps at once.

Right, because the rest of the loop does not depend on these carries: it runs as
before without them, and the equations that do are evaluated with the same operands
as in the loop.  Where no other carry is left, neither is a loop.

The order of additions is another one, so results differ from the loop's by
rounding, which a user who wants them bit for bit can refuse
(``onescan.options(sequential=True)``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
from jax.extend.core import Var

from onescan import compat
from onescan.loop import Loop, nbytes
from onescan.passes.chunked import solve
from onescan.passes.overtime import evaluate, kinds_of, over_time, used_inputs
from onescan.passes.recurrences import Recurrence, last_ones, recurrences
from onescan.passes.split import (
    Parts,
    Split,
    Values,
    parts_of,
    rebuilt,
    slice_of,
    variables,
)
from onescan.passes.worth import elements, is_movable, pays_in_chunks


def linear(loop: Loop, chunks: int | None = None) -> Split | None:
    """Solve the linear recurrences of a loop in chunks, where that is worth it."""
    parts = parts_of(loop)
    taken = last_ones(parts, recurrences(parts))
    if chunks is None:
        chunks = _worthwhile(loop, parts, taken)
    if not chunks or all(r.factor == "none" for r in taken):
        return None
    places = {r.place for r in taken}
    kept = [i for i in range(len(parts.carry)) if i not in places]
    moved = _moved(parts, places, everything=not kept)
    if moved is None:
        return None
    goes = [(isinstance(y, Var) and y in moved) or not kept for y in parts.ys]
    stays = tuple(y for y, gone in zip(parts.ys, goes, strict=True) if not gone)
    left = tuple(v for v in _left(parts, moved, kept) if v not in variables(stays))
    smaller = parts.replace(
        carry=tuple(parts.carry[i] for i in kept),
        new_carry=tuple(parts.new_carry[i] for i in kept),
        ys=(*stays, *left),
    )

    def before(args: Values) -> Values:
        consts, carry, xs = parts.split(args)
        return [*consts, *(carry[i] for i in kept), *xs]

    def after(args: Values, results: Values) -> Values:
        consts, init, xs = parts.split(args)
        finals = dict(zip(kept, results[: len(kept)], strict=True))
        stacks = results[len(kept) :]
        fixed = dict(zip(parts.consts, consts, strict=True))
        stacked = dict(zip(parts.xs, xs, strict=True))
        by_place = zip((*stays, *left), stacks, strict=True)
        stacked.update((v, stack) for v, stack in by_place if isinstance(v, Var))
        for r in taken:
            start = jnp.asarray(init[r.place])
            new = _solved(loop, parts, r, start, fixed, stacked, chunks)
            old, finals[r.place] = _shifted(new, start, loop.reverse)
            stacked[parts.carry[r.place]] = old
            if isinstance(made := parts.new_carry[r.place], Var):
                stacked[made] = new
        wanted = [y for y, gone in zip(parts.ys, goes, strict=True) if gone]
        rows = iter(over_time(parts.eqns, fixed, stacked, wanted, loop.length))
        rest = iter(stacks)
        ordered = [finals[i] for i in range(len(parts.carry))]
        return [*ordered, *(next(rows if gone else rest) for gone in goes)]

    return Split(
        name="linear",
        loop=rebuilt(loop, smaller),
        before=before,
        after=after,
        notes=_notes(taken, chunks),
        extra=nbytes([v.aval for v in left])
        + 3 * nbytes([parts.carry[i].aval for i in places]),
    )


def _worthwhile(loop: Loop, parts: Parts, taken: Sequence[Recurrence]) -> int:
    """Chunks of time, 0 where there is nothing to gain.

    A carry that stays takes all its steps anyway, one after the other, so all of
    them have to go.
    """
    if len(taken) < len(parts.carry):
        return 0
    return pays_in_chunks(loop.length, elements(parts.carry))


def _moved(parts: Parts, places: set[int], everything: bool) -> set[Any] | None:
    """The values computed after the loop, or None if one cannot be.

    That is whatever depends on the carries at these places, or everything.
    """
    moved: set[Any] = {parts.carry[i] for i in places}
    for eqn in slice_of(parts.eqns, parts.results, parts.inputs):
        if everything or not moved.isdisjoint(variables(eqn.invars)):
            if not is_movable(eqn):
                return None
            moved.update(eqn.outvars)
    return moved


def _left(parts: Parts, moved: set[Any], kept: list[int]) -> list[Var]:
    """What the loop must leave behind for what is computed after it."""
    kinds = kinds_of(parts)
    inside = {v for i in kept for v in variables([parts.new_carry[i]])}
    read: dict[Any, None] = {}
    for eqn in parts.eqns:
        if not moved.isdisjoint(eqn.outvars):
            read.update(dict.fromkeys(variables(eqn.invars)))
    gone = [v for i, v in enumerate(parts.new_carry) if i not in kept]
    read.update(dict.fromkeys(variables(gone)))
    wanted = [v for v in read if v not in moved and kinds[v] == "bound"]
    assert inside.isdisjoint(moved), "a carry that stays depends on one that leaves"
    return wanted


def _solved(
    loop: Loop,
    parts: Parts,
    r: Recurrence,
    start: Any,
    fixed: dict[Var, Any],
    stacked: dict[Var, Any],
    chunks: int,
) -> Any:
    """The new values of one carry, of all steps."""
    new, carry = parts.new_carry[r.place], parts.carry[r.place]
    if r.factor == "none":
        return over_time(parts.eqns, fixed, stacked, [new], loop.length)[0]
    used = used_inputs(parts.eqns, [new], [*fixed, *stacked, carry])
    rows = [v for v in stacked if v in used]

    def step(c: Any, *row: Any) -> Any:
        env = {**fixed, carry: c, **dict(zip(rows, row, strict=True))}
        return evaluate(parts.eqns, env, [new])[0]

    return solve(
        step,
        start,
        [stacked[v] for v in rows],
        loop.length,
        reverse=loop.reverse,
        chunks=chunks,
        steady=r.factor == "one",
    )


def _shifted(new: Any, start: Any, reverse: bool) -> tuple[Any, Any]:
    """The old values of all steps, and the last new one."""
    first = start.astype(new.dtype)[None]
    if reverse:
        return jnp.concatenate([new[1:], first]), new[0]
    return jnp.concatenate([first, new[:-1]]), new[-1]


def _notes(taken: Sequence[Recurrence], chunks: int) -> tuple[str, ...]:
    """In the user's terms, one for each line that makes a recurrence."""
    places = dict.fromkeys(
        compat.source_of(r.eqn) for r in taken if r.eqn and r.factor != "none"
    )
    return tuple(
        f"ran c' = a*c + b ({place}) as a parallel scan of {chunks} chunks"
        for place in places
    )
