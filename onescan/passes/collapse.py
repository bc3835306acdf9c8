"""collapse: dimensions that nothing tells apart become one.

In goes a loop in whose body ``x.sum()`` of a (4096, 8) array follows on operations that
treat all its elements alike; out comes one in which it has 32,768 elements in a row.
The vectors of a kernel would otherwise be half empty, or lie across the eight numbers
and be shuffled into place.  Arrays get their shapes back outside, where that costs
nothing: in memory they are the same.

Done where some reduction takes two dimensions at once, so that they are no lanes, and
the last one is shorter than a vector, or where some ``reshape`` makes one of them, or
them of one, which then is nothing to do.  Everything else that they meet has to be
elementwise, a reduction of both or neither, or a broadcast into both or neither.

Right, because each element is computed as before; reductions take theirs in another
order, as every kernel's do.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from math import prod
from typing import Any

import jax.numpy as jnp
from jax.core import ShapedArray
from jax.extend.core import JaxprEqn, Literal, Var

from onescan.loop import Equation, Loop
from onescan.passes.split import Parts, Split, Values, parts_of, rebuilt
from onescan.primitives import record_of
from onescan.primitives.axes import Axes, Node
from onescan.primitives.reductions import REDUCED

#: numbers of a last dimension that fill the widest vectors
FULL = 16


def collapse(loop: Loop) -> Split | None:
    """Make one dimension of those that nothing tells apart."""
    parts = parts_of(loop)
    flat = _Flat(_Seams(parts, loop.added_axes))
    atoms: set[Any] = {*parts.inputs, *(v for eqn in parts.eqns for v in eqn.outvars)}
    changed = [v for v in atoms if flat.shape(v) != v.aval.shape]
    if not any(map(_is_narrow, changed)) and not any(map(flat.spares, parts.eqns)):
        return None
    smaller = Parts(
        consts=flat.all(parts.consts),
        carry=flat.all(parts.carry),
        xs=flat.all(parts.xs),
        eqns=tuple(map(flat.equation, parts.eqns)),
        new_carry=flat.all(parts.new_carry),
        ys=flat.all(parts.ys),
    )

    alone, front = len(parts.consts) + len(parts.carry), loop.added_axes
    return Split(
        name="collapse",
        loop=rebuilt(loop, smaller),
        before=lambda args: _like(smaller.inputs, args, alone, front),
        after=lambda _, results: _like(parts.results, results, loop.num_carry, front),
        notes=("took dimensions that nothing tells apart as one",),
    )


def _like(
    variables: Sequence[Any], values: Values, alone: int, front: int = 0
) -> Values:
    """Values in the shapes of variables; behind the first ones, of all steps.

    Those of a batch with its axes in `front` are reshaped as they lie outside of the
    loop, lane by lane: XLA undoes the transpositions of `jax.vmap` where nothing stands
    between them.
    """

    def stacked(x: Any, shape: Sequence[int]) -> Any:
        if x.shape[1:] == shape:
            return x
        if front == 0 or x.shape[1 : 1 + front] != shape[:front]:
            return x.reshape((len(x), *shape))
        by_lane = jnp.moveaxis(x, 0, front)
        turned = by_lane.reshape((*shape[:front], len(x), *shape[front:]))
        return jnp.moveaxis(turned, front, 0)

    shapes = [tuple(v.aval.shape) for v in variables]
    return [
        x.reshape(shape) if k < alone else stacked(x, shape)
        for k, (x, shape) in enumerate(zip(values, shapes, strict=True))
    ]


def _is_var(v: Any) -> bool:
    return isinstance(v, Var)


def _is_narrow(var: Any) -> bool:
    return var.aval.shape[-1:] < (FULL,)


# what is told apart: seam i of a value is between its dimensions i and i + 1


class _Seams(Axes):
    """Seams that are gone in one value if in another, and those that must stay."""

    def __init__(self, parts: Parts, added: int = 0) -> None:
        super().__init__(_no_rule)
        taken: list[Node] = []
        for value in filter(_is_var, (*parts.xs, *parts.ys)):
            for i in _seams(value)[:added]:  # a batch has its steps side by side
                self.strike(value, i)
        for eqn in parts.eqns:
            if _is_elementwise(eqn):
                self._meet(*eqn.outvars, *eqn.invars)
            elif eqn.primitive.name in REDUCED:
                taken += self._reduced(eqn)
            elif eqn.primitive.name == "broadcast_in_dim":
                self._broadcast(eqn)
            elif eqn.primitive.name == "reshape" and _is_plain(eqn):
                taken += self._reshape(eqn)
            else:
                self._stay(*eqn.invars, *eqn.outvars)
        for before, after in zip(parts.carry, parts.new_carry, strict=True):
            self._meet(before, after)
        #: those that some reduction takes with both sides
        self.taken = set(map(self.find, taken)) - set(map(self.find, self.struck))

    def _meet(self, value: Any, *others: Any) -> None:
        """A value and those it is made of, element by element or of one for many."""
        for other in others:
            many = [
                m != n for m, n in zip(value.aval.shape, other.aval.shape, strict=False)
            ]
            for i in _seams(other):
                if many[i] == many[i + 1]:
                    self.join(value, i, other, i)
                else:
                    self._stay(value, other)

    def _stay(self, *values: Any) -> None:
        for value in values:
            for i in _seams(value):
                self.strike(value, i)

    def _reduced(self, eqn: Equation) -> list[Node]:
        """Those with both sides reduced."""
        (x,), (out,), axes = eqn.invars, eqn.outvars, set(eqn.params["axes"])
        taken = []
        for i in _seams(x):
            sides = {i in axes, i + 1 in axes}
            if sides == {True}:
                taken.append((x, i))
            elif sides == {False}:
                self.join(x, i, out, i - sum(axis < i for axis in axes))
            else:
                self.strike(x, i)
        kept = [i for i in range(len(x.aval.shape)) if i not in axes]
        for k, (i, j) in enumerate(pairwise(kept)):
            if j != i + 1:
                self.strike(out, k)
        return taken

    def _broadcast(self, eqn: Equation) -> None:
        """Both sides are made, or both are given, as they are or as one number."""
        (x,), (out,) = eqn.invars, eqn.outvars
        given = eqn.params["broadcast_dimensions"]
        sizes = dict(zip(given, x.aval.shape, strict=True))
        spread = [sizes.get(i) != n for i, n in enumerate(out.aval.shape)]
        for i in _seams(out):
            sides = {i in sizes, i + 1 in sizes}
            if sides == {True} and spread[i] == spread[i + 1]:
                self.join(x, given.index(i), out, i)
            elif sides != {False}:
                self.strike(out, i)
        for k, (i, j) in enumerate(pairwise(given)):
            if j != i + 1 or spread[i] != spread[j]:
                self.strike(x, k)

    def _reshape(self, eqn: Equation) -> list[Node]:
        """Those between dimensions that become one, or that one becomes."""
        (x, *_), (out,) = eqn.invars, eqn.outvars
        taken: list[Node] = []
        for given, made in _groups(x.aval.shape, out.aval.shape):
            if given.start and made.start:
                self.join(x, given.start - 1, out, made.start - 1)
            whole = 1 in (len(given), len(made))
            for value, dims in ((x, given), (out, made)):
                seams = [(value, i) for i in dims[:-1]]
                if whole and all(value.aval.shape[i] > 1 for i in dims):
                    taken += seams
                else:
                    for seam in seams:
                        self.strike(*seam)
        return taken


def _is_plain(eqn: Equation) -> bool:
    """Whether a reshape keeps the order of its numbers, and says nothing of devices."""
    return eqn.params.get("dimensions") is None and eqn.params.get("sharding") is None


def _groups(given: Sequence[int], made: Sequence[int]) -> list[tuple[range, range]]:
    """The fewest dimensions that a reshape makes others of, side by side."""
    groups, i, j = [], 0, 0
    while i < len(given) or j < len(made):
        first, left, right = (i, j), given[i : i + 1], made[j : j + 1]
        i, j = i + len(left), j + len(right)
        while prod(left) != prod(right) or (i == len(given)) != (j == len(made)):
            if j == len(made) or (i < len(given) and prod(left) <= prod(right)):
                left, i = given[first[0] : i + 1], i + 1
            else:
                right, j = made[first[1] : j + 1], j + 1
        groups.append((range(first[0], i), range(first[1], j)))
    return groups


def _no_rule(name: str) -> Any:
    raise NotImplementedError(name)  # seams follow rules of their own


def _seams(value: Any) -> range:
    return range(len(value.aval.shape) - 1)


def _is_elementwise(eqn: Equation) -> bool:
    ranks = {len(v.aval.shape) for v in [*eqn.invars, *eqn.outvars]}
    one = len(eqn.outvars) == 1 and len(ranks - {0}) <= 1
    return one and record_of(eqn).kind == "elementwise"


# the body without seams


class _Flat:
    """Values, and equations of them, with fewer dimensions."""

    def __init__(self, seams: _Seams) -> None:
        self.seams = seams
        self.made: dict[Any, Var] = {}

    def places(self, value: Any) -> list[int]:
        """By dimension of a value, the one that it is a part of."""
        places = [0]
        for i in _seams(value):
            gone = self.seams.find((value, i)) in self.seams.taken
            places.append(places[-1] + (not gone))
        return places[: len(value.aval.shape)]

    def shape(self, value: Any) -> tuple[int, ...]:
        places, sizes = self.places(value), value.aval.shape
        return tuple(
            prod(n for n, place in zip(sizes, places, strict=True) if place == k)
            for k in range(len(set(places)))
        )

    def atom(self, value: Any) -> Any:
        if isinstance(value, Literal) or self.shape(value) == value.aval.shape:
            return value
        if value not in self.made:
            aval = ShapedArray(self.shape(value), value.aval.dtype)
            self.made[value] = Var(aval)
        return self.made[value]

    def all(self, values: Iterable[Any]) -> tuple[Any, ...]:
        return tuple(map(self.atom, values))

    def spares(self, eqn: Equation) -> bool:
        """Whether this is nothing to do any more."""
        if eqn.primitive.name != "reshape":
            return False
        before: Any = eqn.invars[0]
        after: Any = eqn.outvars[0]
        same = before.aval.shape == after.aval.shape
        return not same and self.shape(before) == self.shape(after)

    def equation(self, eqn: JaxprEqn) -> JaxprEqn:
        params = eqn.params
        if eqn.primitive.name in REDUCED:
            places = self.places(eqn.invars[0])
            axes = tuple(sorted({places[i] for i in params["axes"]}))
            params = {**params, "axes": axes}
        elif eqn.primitive.name == "broadcast_in_dim":
            out = eqn.outvars[0]
            places = self.places(out)
            dims = tuple(
                dict.fromkeys(places[i] for i in params["broadcast_dimensions"])
            )
            params = {**params, "shape": self.shape(out), "broadcast_dimensions": dims}
        elif eqn.primitive.name == "reshape":
            params = {**params, "new_sizes": self.shape(eqn.outvars[0])}
        return eqn.replace(
            invars=list(self.all(eqn.invars)),
            outvars=list(self.all(eqn.outvars)),
            params=params,
        )
