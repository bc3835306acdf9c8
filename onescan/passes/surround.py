"""A loop with work around it: how the passes' result enters the program.

`Passed` lowers what was taken out of a loop as ordinary JAX operations, and in their
middle the smaller loop by whichever engine runs it.

The work around a loop waits in memory for all its steps.  Where that would be more
than `budget` bytes, the loop is cut into chunks of time: the same passes, applied to
a loop of that many steps, inside a plain loop over the chunks.  The carry goes from
chunk to chunk as it goes from step to step, so only how much is batched changes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.core import ShapedArray
from jax.extend.core import JaxprEqn, Primitive, Var
from jax.interpreters import mlir

from onescan import compat
from onescan.loop import Aval, Loop, nbytes
from onescan.passes.simplify import simplify
from onescan.passes.split import Pass, Split, Values, improved, parts_of, rebuilt, run

Lower = Callable[..., Sequence[Any]]

#: bytes that the work around any loop may keep in memory
ALWAYS_ALLOWED = 64 << 20
#: and this many times what the loop itself holds
TIMES_THE_LOOP = 2
#: steps of a chunk below which there is too little in it to run at once
FEWEST = 16

loop_p = Primitive("onescan_loop")
loop_p.multiple_results = True
loop_p.def_abstract_eval(lambda *args, lower, results: list(results))
compat.register_seeing(loop_p, lambda ctx, *args, lower, results: lower(ctx, *args))


@dataclass(frozen=True, eq=False)
class Piece:
    """Steps of a loop that are taken at once, and what passes make of them."""

    loop: Loop
    splits: Sequence[Split]

    @property
    def core(self) -> Loop:
        """What is left of the loop."""
        return self.splits[-1].loop if self.splits else self.loop

    def run_by(self, call: Callable[..., Sequence[Any]]) -> Callable[..., Values]:
        """A function of the loop's arguments, with its core run by `call`."""
        return lambda *args: run(self.splits, call, list(args))


@dataclass(frozen=True, eq=False)
class Passed:
    """A loop and what passes make of it, some steps at a time."""

    whole: Piece
    #: all of it, or a chunk of time and, where it does not go evenly, what is left over
    pieces: tuple[Piece, ...]
    extra: tuple[str, ...] = ()  # what else there is to tell

    @staticmethod
    def of(loop: Loop, passes: Sequence[Pass], memory: int | None = None) -> Passed:
        """All that the passes can do, or next to nothing where memory is short."""
        whole = Piece(loop, improved(loop, passes))
        steps = chunk_of(loop, whole.splits, memory)
        if steps == loop.length:
            return Passed(whole, (whole,))
        if steps:
            sizes = (steps, loop.length % steps) if loop.length % steps else (steps,)
            parts = [loop.replace(length=size) for size in sizes]
            cut = tuple(Piece(part, improved(part, passes)) for part in parts)
            return Passed(whole, cut)
        whole = Piece(loop, improved(loop, (simplify,)))
        extra = "left work in the loop that would need too much memory outside"
        return Passed(whole, (whole,), (extra,))

    @property
    def told(self) -> dict[str, tuple[str, ...]]:
        """What the report says."""
        splits = self.whole.splits
        notes = tuple(note for split in splits for note in split.notes)
        names = tuple(dict.fromkeys(split.name for split in splits))
        return {"passes": names, "notes": notes + self.extra}

    @property
    def moved(self) -> list[JaxprEqn]:
        """What was taken out of the loop, where that was the point."""
        return [eqn for split in self.whole.splits for eqn in split.moved]

    @property
    def cores(self) -> list[Loop]:
        """The loops that are left to be run, if any."""
        if not self.whole.splits:
            return [self.whole.loop]
        cores = (piece.core for piece in self.pieces)
        return [core for core in cores if core.body.out_avals]

    def run_by(self, lowers: Sequence[Lower]) -> Callable[..., Values]:
        """A function of the loop's arguments, its cores run in these ways."""
        calls = [bound(c, low) for c, low in zip(self.cores, lowers, strict=True)]
        calls = calls or [lambda *args: []] * len(self.pieces)
        runs = [
            piece.run_by(call) for piece, call in zip(self.pieces, calls, strict=True)
        ]
        loop, steps = self.whole.loop, self.pieces[0].loop.length
        if steps == loop.length:
            return runs[0]
        return partial(_in_chunks, loop, steps, runs)

    def around(self, lowers: Sequence[Lower]) -> Lower:
        """How the program runs the loop, its cores in these ways."""
        if not self.whole.splits:
            (lower,) = lowers
            return lower
        loop, function = self.whole.loop, self.run_by(lowers)

        def lower_all(ctx: Any, *args: Any) -> Sequence[Any]:
            ctx = ctx.replace(avals_in=arguments(loop), avals_out=results_of(loop))
            return mlir.lower_fun(function, multiple_results=True)(ctx, *args)

        return lower_all


def budget(loop: Loop, memory: int | None = None) -> int:
    """Bytes that the work taken out of a loop may keep in memory."""
    if memory is not None:
        return memory
    held = nbytes(loop.x_avals + loop.y_avals, loop.length)
    held += nbytes(loop.const_avals + loop.carry_avals)
    return max(ALWAYS_ALLOWED, TIMES_THE_LOOP * held)


def chunk_of(loop: Loop, splits: Sequence[Split], memory: int | None = None) -> int:
    """Steps that may be taken out at once, 0 when that is too few to gain.

    A divisor of the length, if one is near, because the rest is a loop of its own.
    """
    each = sum(split.extra for split in splits)
    most = budget(loop, memory) // each if each else loop.length
    if most >= loop.length:
        return loop.length
    near = (n for n in range(most, most // 2, -1) if loop.length % n == 0)
    return next(near, most) if most >= FEWEST else 0


def stock(loop: Loop) -> Lower:
    """A loop by JAX's own rule."""
    fixed = [*loop.const_avals, *loop.carry_avals]
    types = [*fixed, *(compat.stacked(a, loop.length) for a in loop.x_avals)]

    def lower(ctx: Any, *args: Any) -> Sequence[Any]:
        if loop.is_while:
            rule, params = compat.stock_while_rule, loop.whole.params
            return rule(ctx.replace(avals_in=types), *args, **params)
        on_cpu = compat.platform(ctx) == "cpu"
        params = compat.scan_params(_with_barrier(loop) if on_cpu else loop)
        # with the types of the body, which may be those of one device's shards
        return compat.stock_rule(ctx.replace(avals_in=types), *args, **params)

    return lower


def _with_barrier(loop: Loop) -> Loop:
    """The same loop, which takes each x as it comes.

    XLA for CPUs otherwise reads it inside other computations, which it then no
    longer vectorises.
    """
    parts = parts_of(loop)
    if not parts.xs:
        return loop
    raw = tuple(Var(v.aval) for v in parts.xs)
    traced = jax.make_jaxpr(lax.optimization_barrier)([1.0])
    barrier = traced.eqns[0].replace(invars=list(raw), outvars=list(parts.xs))
    return rebuilt(loop, parts.replace(xs=raw, eqns=(barrier, *parts.eqns)))


def bound(loop: Loop, lower: Lower) -> Callable[..., Sequence[Any]]:
    """A function of a loop's arguments that is lowered in this way."""
    return partial(loop_p.bind, lower=lower, results=tuple(results_of(loop)))


def _in_chunks(
    loop: Loop, steps: int, runs: Sequence[Callable[..., Values]], *args: Any
) -> Values:
    """The chunks in the order of the loop, and the steps that are left over."""
    chunk, *rest = runs
    remainder = rest[0] if rest else None
    chunks = loop.length // steps
    consts, carry, xs = parts_of(loop).split(list(args))
    cut = chunks * steps
    main = [x[:cut].reshape(chunks, steps, *x.shape[1:]) for x in xs]

    def over_chunks(carry: Sequence[Any]) -> tuple[Values, Values]:
        body = jax.make_jaxpr(chunk)(*consts, *carry, *(x[0] for x in main))
        outer = loop.replace(body=body, length=chunks, unroll=1)
        results = bound(outer, stock(outer))(*consts, *carry, *main)
        ys = [y.reshape(cut, *y.shape[2:]) for y in results[loop.num_carry :]]
        return list(results[: loop.num_carry]), ys

    def left_over(carry: Sequence[Any]) -> tuple[Values, Values]:
        if remainder is None:
            return list(carry), []
        results = remainder(*consts, *carry, *(x[cut:] for x in xs))
        return results[: loop.num_carry], results[loop.num_carry :]

    if loop.reverse:
        carry, last = left_over(carry)
        carry, first = over_chunks(carry)
    else:
        carry, first = over_chunks(carry)
        carry, last = left_over(carry)
    if remainder is not None:
        first = [jnp.concatenate(pair) for pair in zip(first, last, strict=True)]
    return [*carry, *first]


def arguments(loop: Loop) -> list[Any]:
    """The types of what a loop takes."""
    fixed = loop.const_avals + loop.carry_avals
    return [*map(_plain, fixed), *(_plain(a, loop.length) for a in loop.x_avals)]


def results_of(loop: Loop) -> list[Any]:
    """The types of what a loop returns."""
    stacks = (_plain(a, loop.length) for a in loop.y_avals)
    return [*map(_plain, loop.carry_avals), *stacks]


def _plain(aval: Aval, *length: int) -> Any:
    """Shape and dtype alone: what is lowered here is local to one device."""
    return ShapedArray((*length, *aval.shape), aval.dtype)
