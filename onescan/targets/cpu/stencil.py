"""The kernel of a body in which positions of a large grid look at their neighbours.

Nothing is independent along any axis, so there are no lanes.  A step is one walk over
the grid, row by row, a vector at a time: all that a step gives is computed together at
each position, neighbours are read where they stand (`emit/pieces.py`), and nothing in
between is written down unless it would be computed too often.  A large carry has two
places, read and written in turns.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from itertools import pairwise
from math import prod
from typing import Any

from jax.extend.core import Var
from llvmlite import ir

from onescan.emit import pieces
from onescan.emit import types as ty
from onescan.emit.arrays import Array, Cuts, Index, Memory, Vec, add, scale, spanning
from onescan.emit.control import emit_body, renew
from onescan.emit.emitter import CHEAP
from onescan.emit.paired import PairedTile
from onescan.emit.rules import RULES
from onescan.loop import Atom
from onescan.plan.plan import Plan
from onescan.plan.stencils import LARGE, again
from onescan.targets.cpu.emitter import CpuEmitter, CpuTile, dot_general

#: operations that computing a value again may cost, next to a store and its loads
AGAIN = 4
#: numbers of a value from which it is written together with others
TOGETHER = 256

#: runs of rows that the code of a walk is written for
MOST_RUNS = 9

Pairs = list[tuple[Array, Array]]
#: (first row, the row after the last) of each
Runs = list[tuple[int, int]]


class StencilEmitter(CpuEmitter):
    rules = {  # noqa: RUF012, nobody changes it
        **RULES,
        "dot_general": dot_general,
        **pieces.RULES,
    }

    def __init__(self, plan: Plan, function: ir.Function) -> None:
        super().__init__(plan, function)
        self._counted: Any = None  # the body for which it is known
        self._again: dict[Any, int] = {}  # how often more than once values are pulled

    def keeps(self, body: Any, var: Atom, array: Array) -> bool:
        """Where computing a value again would take longer than reading it."""
        if prod(self.plan.local_shape(var)) < LARGE:
            return super().keeps(body, var, array)
        if self._counted is not body:
            self._counted, self._again = body, again(body.jaxpr)
        dear = self._again[var] * max(array.cost - CHEAP, 0) > AGAIN
        return dear or var in self.plan.stored

    def put(self, target: Array, source: Array, vector: int | None = -1) -> None:
        memory = target.memory
        assert memory is not None
        apart = memory.group > 1 or vector != -1 or not any(source.cuts)
        if apart or prod(target.shape) < TOGETHER:
            super().put(target, source, vector)
        else:
            self.put_all([(target, source)])

    def put_all(self, pairs: Pairs) -> None:
        """Store values of one shape, a vector of all of them at a time.

        No target is read by any of the values.
        """
        *outer, row = pairs[0][0].shape
        cuts = _cuts([source for _, source in pairs], 1 + len(outer))

        def visit(index: tuple[Index, ...]) -> None:
            values = {id(source): source.at(index) for _, source in pairs}
            for target, source in pairs:
                memory: Any = target.memory
                memory.store(self.b, index, values[id(source)])

        rows = [sorted({0, n, *cut}) for n, cut in zip(outer, cuts, strict=False)]
        walked = lambda index: self._row(row, cuts[-1], index, visit)
        self._rows([list(pairwise(bounds)) for bounds in rows], (), walked)

    def _rows(self, runs: Sequence[Runs], done: Any, body: Any) -> None:
        """What is to be done for each row, from one cut to the next."""
        if not runs:
            body(done)
            return
        for start, end in runs[0]:
            if end - start == 1:
                self._rows(runs[1:], (*done, start), body)
                continue
            with self.loop(end - start) as k:
                i: Any = add(self.b, k, start)
                spanning(self.b, i, start, end - 1)
                self._rows(runs[1:], (*done, i), body)

    def _row(self, size: int, cuts: Set[int], index: Any, visit: Any) -> None:
        """A row, in runs of vectors that lie in one piece, and those across two."""
        for start, vectors, width in self.stretches(size):
            for first, count in _runs(start, vectors, width, cuts):
                if count == 1:
                    visit((*index, Vec(first, width) if width > 1 else first))
                    continue
                with self.loop(count) as k:
                    base: Any = add(self.b, scale(self.b, k, width), first)
                    spanning(self.b, base, first, first + (count - 1) * width)
                    visit((*index, Vec(base, width) if width > 1 else base))


def _cuts(sources: Sequence[Array], rank: int) -> Cuts:
    """Where to cut loops over values: over rows only where pieces cost much."""
    found: list[frozenset[int]] = [frozenset()] * rank
    for source in sources:
        for d, cuts in enumerate(source.cuts):
            if d == rank - 1 or source.patchwork:
                found[d] |= cuts
    if prod(1 + len(cuts) for cuts in found[:-1]) > MOST_RUNS:
        return (*[frozenset()] * (rank - 1), found[-1])
    return tuple(found)


def _runs(start: int, count: int, width: int, cuts: Set[int]) -> list[tuple[int, int]]:
    """(first position, vectors) of each run of vectors that are alike."""
    runs: list[tuple[int, int]] = []
    joined = False
    for k in range(count):
        first = start + k * width
        across = any(first < cut < first + width for cut in cuts)
        if joined and not across and first not in cuts:
            runs[-1] = runs[-1][0], runs[-1][1] + 1
        else:
            runs.append((first, 1))
        joined = not across
    return runs


class StencilTile(PairedTile, CpuTile):
    """All of a grid, through all steps."""

    e: StencilEmitter

    def emit(self) -> None:
        jaxpr = self.loop.body.jaxpr
        shape, updated = self.plan.local_shape, self._updated()
        self.paired = {
            before: self.e.scratch((2, *shape(before)), (), before.aval.dtype)
            for before, after in zip(self.carries, jaxpr.outvars, strict=False)
            if prod(shape(before)) >= LARGE
            and isinstance(after, Var)
            and before not in updated
        }
        super().emit()

    def _step(
        self,
        starts: dict[Any, ty.Value],
        cells: dict[Any, Array],
        rows: dict[Any, Memory],
        step: ty.Value,
        loaded: dict[Any, Array],
    ) -> None:
        e, t, jaxpr = self.e, self._time(step), self.loop.body.jaxpr
        e.bases = dict(starts)
        e.ahead = []
        following = e.b.add(step, ir.Constant(ty.I64, 1))
        now = {**cells, **{var: self._at(var, step) for var in self.paired}}
        later = {**cells, **{var: self._at(var, following) for var in self.paired}}
        homes = {
            new: later[old]
            for old, new in zip(self.carries, jaxpr.outvars, strict=False)
            if isinstance(new, Var)
        }
        args = [now[v] if v in now else self._argument(v, t) for v in jaxpr.invars]
        owned = {cell.memory for cell in (*now.values(), *later.values())}
        outs = emit_body(e, jaxpr, args, owned, homes, self.wanted_twice)
        fresh, apart = [], []
        for var, value in zip(self.carries, outs, strict=False):
            pair = later[var], value
            (fresh if var in self.paired else apart).append(pair)
        for k, value in enumerate(outs[len(self.carries) :]):
            here = self._slice(self.first_y + k, t)
            if self._is_written_by_all(here):
                fresh.append((here, value))
            else:
                with e.one_writer(here.lanes):
                    e.put(here, value)
        self._put(fresh)
        renew(e, [cell for cell, _ in apart], [value for _, value in apart])

    def _put(self, pairs: Pairs) -> None:
        """Store what a step gives, all that has one shape together."""
        together: dict[tuple[int, ...], Pairs] = {}
        for target, value in pairs:
            if value.memory is None or value.memory is not target.memory:
                together.setdefault(target.shape, []).append((target, value))
        for shape, some in together.items():
            if prod(shape) >= TOGETHER:
                self.e.put_all(some)
                continue
            for pair in some:
                self.e.put(*pair)

    def _is_written_by_all(self, target: Array) -> bool:
        """Whether every tile has a part of a result to write."""
        several = [lane for lane in self.plan.lanes if lane.tiles > 1]
        return all(lane in target.lanes for lane in several)
