"""Lane axes as plans use them: joined where they lie together, and weighed.

Axes that are neighbours in every value are one, and so are axes of one size that no
value has two of.  An axis may be cut into tiles where little of the work does not lie
along it, because every tile would do that work again.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, prod
from typing import Any

from jax.extend.core import Var

from onescan.loop import Atom, Loop
from onescan.plan.work import Work, equations

Axis = dict[Any, tuple[int, ...]]


@dataclass(frozen=True, eq=False)
class Merged:
    """Lane axes that always lie side by side, as one: positions outer times inner."""

    parts: tuple[Axis, ...]  # outermost first
    sizes: tuple[int, ...]

    @property
    def size(self) -> int:
        return prod(self.sizes)

    def holds(self, var: Atom) -> bool:
        return isinstance(var, Var) and var in self.parts[-1]


def _size(axis: Axis) -> int:
    var, (dim,) = next(iter(axis.items()))
    return var.aval.shape[dim]


def single(axis: Axis) -> Merged:
    """One axis by itself."""
    return Merged((axis,), (_size(axis),))


def merged(axes: list[Axis], loop: Loop, row: float = inf) -> list[Merged]:
    """Join lane axes that are neighbours in every value that has either.

    But for batches of rows of so many numbers, whose steps may stand between them.
    """
    counted = _counted(loop.body.jaxpr)
    added = loop.added_axes
    rows = [v for v in _stacked(loop) if prod(v.aval.shape[added:]) >= row]
    groups = list(map(single, axes))
    joined = True
    while joined:
        joined = False
        for a in groups:
            for b in groups:
                x, y = a.parts[-1], b.parts[0]
                if (
                    a is not b
                    and _adjacent(x, y)
                    and counted.isdisjoint(x)
                    and not any(v in y and y[v][0] == added for v in rows)
                ):
                    groups = [g for g in groups if g is not a and g is not b]
                    groups.append(Merged(a.parts + b.parts, a.sizes + b.sizes))
                    joined = True
                    break
            if joined:
                break
    return side_by_side(groups)


def _stacked(loop: Loop) -> list[Any]:
    """Arrays of xs and ys that `jax.vmap` gave axes."""
    jaxpr: Any = loop.body.jaxpr
    first = loop.num_consts + loop.num_carry
    atoms = (*jaxpr.invars[first:], *jaxpr.outvars[loop.num_carry :])
    return [v for v in atoms if isinstance(v, Var)] if loop.added_axes else []


def side_by_side(groups: list[Merged]) -> list[Merged]:
    """Axes of one size that no value has two of, as one axis.

    Their positions have nothing to do with each other, so position i of all of them
    can be one lane's work.
    """
    found: list[Merged] = []
    for group in groups:
        for k, other in enumerate(found):
            apart = other.parts[-1].keys().isdisjoint(group.parts[-1])
            if other.sizes == group.sizes and apart:
                both = zip(other.parts, group.parts, strict=True)
                found[k] = Merged(tuple({**x, **y} for x, y in both), group.sizes)
                break
        else:
            found.append(group)
    return found


def _counted(jaxpr: Any) -> set[Var]:
    """Values made from positions: joined axes would count positions wrongly."""
    return {
        v
        for eqn in equations(jaxpr)
        if eqn.primitive.name.startswith("iota")
        for v in eqn.outvars
    }


def _adjacent(a: Axis, b: Axis) -> bool:
    return a.keys() == b.keys() and all(b[v][0] == a[v][0] + 1 for v in a)


def repeated(works: list[Work], cut: list[Merged]) -> float:
    """Operations of a step in all tiles, with `cut` axes cut into single positions.

    An operation that does not lie along such an axis is done by every tile of it.
    """
    total = 0.0
    for work in works:
        held = [*work.eqn.outvars, *work.eqn.invars]
        again = prod(a.size for a in cut if not any(a.holds(v) for v in held))
        total += work.operations * again
    return total


def without_repeats(
    works: list[Work], cut: list[Merged], axes: list[Merged], most: float
) -> list[Merged]:
    """The axes that may be cut, together, without much work done more than once.

    Those of `cut` are given; of the others those that most work lies along first.
    """
    given = len(cut)
    needed = max(repeated(works, []), 1.0)
    for axis in sorted(axes, key=lambda a: -share(works, a)):
        if axis not in cut and repeated(works, [*cut[given:], axis]) <= most * needed:
            cut = [*cut, axis]
    return cut


def share(works: list[Work], axis: Merged) -> float:
    """The part of the work that lies along an axis, and need not be repeated."""
    along = sum(
        w.operations for w in works if any(axis.holds(v) for v in w.eqn.outvars)
    )
    return along / max(sum(w.operations for w in works), 1)
