"""A body: its equations in order, what is fused, and what may be overwritten.

Each equation's rule turns arrays into arrays.  A result that is read more than
once and costs something is put into memory; the rest is computed where it is
pulled.  An update (a dynamic update slice, a scatter) writes into its operand's
memory when that memory belongs to this body and nobody reads the old values
later; readers of the old values are moved in front of it where they can be.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from math import prod
from typing import Any

import numpy as np
from jax.extend.core import Jaxpr, Literal, Var

from onescan.emit import types as ty
from onescan.emit.arrays import Array, Memory
from onescan.emit.convert import convert
from onescan.emit.emitter import DEEPEST, Emitter
from onescan.emit.extremes import differences
from onescan.emit.states import TABLE, carried
from onescan.loop import Atom, Equation
from onescan.plan.parts_read import parts_read
from onescan.primitives import ELEMENTWISE, FREE, IDENTITIES, UPDATES

#: what pulls its operands at its own index
POINTWISE = ELEMENTWISE | IDENTITIES
#: what computes each element where it is pulled
FUSED = POINTWISE | FREE
#: what reads values that are put together of pieces, position by position
IN_PIECES = POINTWISE | {
    *("broadcast_in_dim", "concatenate", "expand_dims", "pad", "reshape", "rev"),
    *("slice", "split", "squeeze", "transpose"),
}
#: elements that are put away, for each that is copied otherwise, at most
COPY = 2


class Body:
    """The emission of one jaxpr."""

    def __init__(
        self,
        e: Emitter,
        jaxpr: Jaxpr,
        args: list[Array],
        owned: set[Memory],
        homes: dict[Any, Array],
        wanted_twice: Iterable[Any] = (),
    ) -> None:
        self.e = e
        self.jaxpr = jaxpr
        self.owned = owned  # memory that this body may write to
        self.homes = homes  # by result: the carry that it renews
        self.env: dict[Var, Array] = dict(zip(jaxpr.invars, args, strict=True))
        self.eqns = ordered(jaxpr, early=e.early)
        self.uses = Counter(
            v for eqn in jaxpr.eqns for v in eqn.invars if isinstance(v, Var)
        )
        self.uses.update(v for v in jaxpr.outvars if isinstance(v, Var))
        self.uses.update(v for v in wanted_twice if v in self.uses)
        self.last: dict[Any, int] = {
            v: k
            for k, eqn in enumerate(self.eqns)
            for v in eqn.invars
            if isinstance(v, Var)
        }
        self.last.update({v: len(self.eqns) for v in jaxpr.outvars if _is_var(v)})
        self.now = 0
        self.in_part = parts_read(jaxpr) if e.pulls_parts else {}
        self.differences = differences(jaxpr)
        self._sinks: dict[Any, set[Any]] | None = None
        self._places: dict[Any, set[Any]] | None = None

    def places(self, var: Var) -> set[Any]:
        """Where a value is pulled from at its own index, and where else."""
        if self._places is None:
            self._places = _places(self.jaxpr, self.uses)
        return self._places[var]

    def sinks(self, var: Var) -> set[Any]:
        """Where a value is pulled from in the end, if nobody puts it away before.

        All results of one shape count as one place.
        """
        if self._sinks is None:
            self._sinks = _sinks(self.jaxpr)
        return self._sinks[var]

    def run(self) -> list[Array]:
        """Emit every equation; the results may still be lazy."""
        outer, self.e.body = self.e.body, self
        for k, eqn in enumerate(self.eqns):
            self.now = k
            name = eqn.primitive.name
            operands = [self._operand(v, name) for v in eqn.invars]
            self.e.reading(operands)
            results = self.e.rules[name](self.e, eqn, operands)
            for var, array in zip(eqn.outvars, results, strict=True):
                deep = array.depth >= DEEPEST
                if array.memory is None and (deep or self.e.keeps(self, var, array)):
                    array = self._put_away(var, array)
                elif array.memory is None and self.uses[var] > 1:
                    array = self.e.computed_once(var, array)
                self.env[var] = array
        self.now = len(self.eqns)
        outs = [self.read(v) for v in self.jaxpr.outvars]
        self.e.reading(outs)
        self.e.body = outer
        return outs

    def read(self, atom: Any) -> Array:
        return literal(self.e, atom) if isinstance(atom, Literal) else self.env[atom]

    def _operand(self, atom: Any, reader: str) -> Array:
        """A value as an operation reads it: whole, unless it looks for cuts."""
        array = self.read(atom)
        if any(array.cuts) and reader not in IN_PIECES:
            array = self.env[atom] = self.e.materialise(array)
            self.owned.add(array.memory)  # type: ignore[arg-type]
        return array

    def _put_away(self, var: Atom, array: Array) -> Array:
        """A value in memory: that of the carry it renews, if nobody needs the old."""
        home = self.homes.get(var)
        if home is not None and self._may_go_home(array, home):
            self.e.put(home, array)
            return home
        array = self.e.materialise(array)
        self.owned.add(array.memory)  # type: ignore[arg-type]
        return array

    def _may_go_home(
        self, array: Array, home: Array, sources: Sequence[Array] = ()
    ) -> bool:
        """Whether a carry can be overwritten now, by what reads it place by place."""
        memory = home.memory
        if not self.e.renews_in_place or memory not in self.owned:
            return False
        waiting = [
            self.env[v]
            for v in self.env
            if memory in self.env[v].reads and self.last.get(v, -1) > self.now
        ]
        waiting += [source for source in sources if memory in source.reads]
        # those would have to be put away first, which should cost less than it saves
        dear = sum(prod(a.shape) for a in waiting) * 2 > prod(home.shape)
        if dear or memory in array.elsewhere or home.shape != array.shape:
            return False
        return not self._needed_later(home)

    def overwritable(
        self, eqn: Equation, x: Array, sources: Sequence[Array]
    ) -> tuple[Array, list[Array]]:
        """Memory that holds the values of `x` and may be written to.

        And `sources` that are not read from it.
        """
        var, e = eqn.invars[0], self.e
        memory = x.memory
        if (
            memory in self.owned
            and isinstance(var, Var)
            and self.last[var] <= self.now
            and not self._needed_later(x)
        ):
            target = e.stored(memory, x.shape, x.lanes)  # type: ignore[arg-type]
            return target, e.apart_from(target, sources)
        home = self.homes.get(eqn.outvars[0])
        if memory is None and home and self._may_go_home(x, home, sources):
            target, sources = home, e.apart_from(home, sources)
        else:
            target = e.fresh(eqn.outvars[0])
            self.owned.add(target.memory)  # type: ignore[arg-type]
        e.put(target, x)
        return target, list(sources)

    def taken_over(
        self, given: Atom, var: Atom, others: Iterable[Array]
    ) -> Array | None:
        """The memory of `given`, if a loop or branch may write `var` into it.

        That is, where nobody reads what stands there later.  What `others`, which it
        reads on the way, have of it is put away before, where that is little.
        """
        x = self.env[given] if isinstance(given, Var) else None
        if x is None or x.memory not in self.owned:
            return None
        types = (self.e.plan.local_shape(var), self.e.plan.local_lanes(var))
        readers = [other for other in others if x.memory in other.reads]
        dear = sum(prod(other.shape) for other in readers) * 2 > prod(x.shape)
        stays = any(other.memory is not None for other in readers)
        if (x.shape, x.lanes) != types or dear or stays or self.last[given] > self.now:
            return None
        if self._needed_later(x):
            return None
        return self.e.stored(x.memory, x.shape, x.lanes)  # type: ignore[arg-type]

    def _needed_later(self, x: Array) -> bool:
        """Put lazy readers of an array's memory aside; say if somebody still needs it.

        So do readers that are larger by far: a copy of the array is cheaper.
        """
        waiting = [
            (var, array)
            for var, array in self.env.items()
            if x.memory in array.reads and self.last.get(var, -1) > self.now
        ]
        dear = sum(prod(array.shape) for _, array in waiting) > COPY * prod(x.shape)
        if dear or any(array.memory is x.memory for _, array in waiting):
            return True
        for var, array in waiting:
            self.env[var] = self.e.materialise(array)
        return False


def _sinks(jaxpr: Jaxpr) -> dict[Any, set[Any]]:
    """For each value the places it is pulled from, found from the last to the first."""
    found: dict[Any, set[Any]] = defaultdict(set)
    outs: list[Any] = [v for v in jaxpr.outvars if _is_var(v)]
    for var in outs:
        found[var].add(tuple(var.aval.shape))
    for eqn in reversed(jaxpr.eqns):
        fused = eqn.primitive.name in FUSED
        places = set().union(*(found[v] for v in eqn.outvars)) if fused else {id(eqn)}
        for var in filter(_is_var, eqn.invars):
            found[var] |= places
    return found


def _places(jaxpr: Jaxpr, uses: Counter[Any]) -> dict[Any, set[Any]]:
    """For each value that takes long the results and operands that pull it.

    One that is pulled from several is put away, and pulls what it is made of once.
    """
    found: dict[Any, set[Any]] = defaultdict(set)
    for k, var in enumerate(jaxpr.outvars):
        if _is_var(var):
            found[var] |= {(k, n) for n in range(uses[var])}
    for eqn in reversed(jaxpr.eqns):
        out: Any = eqn.outvars[0]
        through = eqn.primitive.name in POINTWISE
        ends = found[out] if len(found[out]) == 1 else {id(out)}
        var: Any
        for k, var in enumerate(eqn.invars):
            if through and _is_var(var) and var.aval.shape == out.aval.shape:
                found[var] |= ends
            elif _is_var(var):
                found[var].add((id(eqn), k))
    return found


def _is_var(v: Any) -> bool:
    return isinstance(v, Var)


def ordered(jaxpr: Jaxpr, early: bool) -> list[Equation]:
    """The equations, with readers of a value moved in front of its update.

    With `early`, those that wait for the same number of others stand together.
    """
    producer = {v: k for k, eqn in enumerate(jaxpr.eqns) for v in eqn.outvars}
    readers: dict[Var, list[int]] = {}
    for k, eqn in enumerate(jaxpr.eqns):
        for v in eqn.invars:
            if isinstance(v, Var):
                readers.setdefault(v, []).append(k)
    done: set[int] = set()
    order: list[Equation] = []

    def before(k: int) -> list[int]:
        """What an equation reads."""
        found = (producer.get(v) for v in jaxpr.eqns[k].invars if isinstance(v, Var))
        return [p for p in found if p is not None]

    def needs(reader: int, update: int) -> bool:
        """Whether a reader of the old value waits for the new one too."""
        seen, left = {reader}, [reader]
        while left:
            for p in before(left.pop()):
                if p == update:
                    return True
                if p > update and p not in seen:
                    seen.add(p)
                    left.append(p)
        return False

    def first(k: int, waiting: list[int]) -> list[int]:
        """What comes before an equation: producers, readers of what it overwrites.

        But for readers that need what is `waiting` itself: they come too late, and the
        update is made in a copy.
        """
        later = [
            r
            for v in _overwritten(jaxpr.eqns[k])
            for r in readers[v]
            if r > k and not any(needs(r, w) for w in (k, *waiting))
        ]
        return [*before(k), *later]

    for start in _levels(jaxpr, producer) if early else range(len(jaxpr.eqns)):
        waiting = [(start, iter(first(start, [])))] if start not in done else []
        begun = {start}
        while waiting:
            k, others = waiting[-1]
            following = next(
                (o for o in others if o not in done and o not in begun), None
            )
            if following is not None:
                begun.add(following)
                earlier = [w for w, _ in waiting]
                waiting.append((following, iter(first(following, earlier))))
                continue
            waiting.pop()
            if k not in done:
                done.add(k)
                order.append(jaxpr.eqns[k])
    return order


def _overwritten(eqn: Equation) -> list[Var]:
    """What an equation may write to: the operand of an update, tables of a loop."""
    operands: list[Any] = []
    if eqn.primitive.name in UPDATES:
        operands = list(eqn.invars[:1])
    else:
        first, end = carried(eqn)
        if eqn.primitive.name == "cond":
            first, end = 1, len(eqn.invars)
        inits: list[Any] = list(eqn.invars[first:end])
        operands = [v for v in inits if prod(v.aval.shape) >= TABLE]
    return [v for v in operands if isinstance(v, Var)]


def _levels(jaxpr: Jaxpr, producer: dict[Any, int]) -> list[int]:
    """The equations by how many, one after the other, must put results away before."""
    level: list[int] = []
    for eqn in jaxpr.eqns:
        before = (producer.get(v) for v in eqn.invars if isinstance(v, Var))
        latest = max((level[k] for k in before if k is not None), default=0)
        level.append(latest + (eqn.primitive.name not in FUSED))
    return sorted(range(len(level)), key=level.__getitem__)


def literal(e: Emitter, atom: Any) -> Array:
    """A constant of the jaxpr: a number, or a small array kept with the code."""
    dtype = np.dtype(atom.aval.dtype)
    shape = tuple(atom.aval.shape)
    if not shape:
        value = ty.literal(np.asarray(atom.val)[()], dtype)
        return Array((), dtype, lambda index: value)
    memory = e.constant_data(np.asarray(atom.val, dtype))
    return e.stored(memory, shape, (None,) * len(shape))


def counted(b: ty.Builder, step: ty.Value, dtype: Any) -> Array:
    """The number of a step."""
    dtype = np.dtype(dtype)
    value = convert(b, step, np.dtype(np.int64), dtype)
    return Array((), dtype, lambda index: value)


def zeros(dtype: Any, shape: tuple[int, ...]) -> Array:
    """An array of nothing else."""
    dtype = np.dtype(dtype)
    value = ty.literal(dtype.type(0), dtype)
    return Array(shape, dtype, lambda index: value)
