"""What many elements are combined by: reductions, running ones, order."""

from __future__ import annotations

from math import prod

from onescan.loop import Equation
from onescan.primitives.axes import Axes
from onescan.primitives.record import Primitive, results
from onescan.primitives.views import along


def _reduction(eqn: Equation, axes: Axes) -> None:
    (x,), (out,) = eqn.invars, eqn.outvars
    gone = eqn.params["axes"]
    kept = [i for i in range(len(x.aval.shape)) if i not in gone]
    for place, i in enumerate(kept):
        axes.join(x, i, out, place)
    for i in gone:
        axes.combine((x, i))


def _position(eqn: Equation, axes: Axes) -> None:
    _reduction(eqn, axes)
    for i in eqn.params["axes"]:
        axes.strike(eqn.invars[0], i)


def _cumulative(eqn: Equation, axes: Axes) -> None:
    along(eqn, axes, {eqn.params["axis"]})


def _sort(eqn: Equation, axes: Axes) -> None:
    along(eqn, axes, {eqn.params["dimension"]})


def _each_operand(eqn: Equation) -> tuple[int, float]:
    """An operation for each element that is combined."""
    found = results(eqn)
    return found, prod(eqn.invars[0].aval.shape) / max(found, 1)


def _comparisons(eqn: Equation) -> tuple[int, float]:
    n = eqn.invars[0].aval.shape[eqn.params["dimension"]]
    return results(eqn), 2.0 * max(n, 2).bit_length() ** 2


def _top(eqn: Equation, axes: Axes) -> None:
    (x,) = eqn.invars
    axis = eqn.params["axis"] % len(x.aval.shape)
    axes.strike(x, axis)
    for out in eqn.outvars:
        for i in range(len(out.aval.shape)):
            if i != axis:
                axes.join(x, i, out, i)
        axes.strike(out, axis)


def _selections(eqn: Equation) -> tuple[int, float]:
    """A look at every element for each that is found, or a sort of all."""
    (x,) = eqn.invars
    n, k = prod(x.aval.shape), eqn.params["k"]
    each = x.aval.shape[eqn.params["axis"]]
    return n, 8.0 * min(k, max(each, 2).bit_length() ** 2)


#: numbers of the largest ones that are kept in a list, rather than found by sorting
#: all, and elements up to which sorting is no slower than what XLA does
FEW, SORTED = 16, 512


def _too_many(eqn: Equation) -> str | None:
    aval, k = eqn.invars[0].aval, eqn.params["k"]
    if aval.dtype.kind == "b":
        return "works on bool"
    n = aval.shape[eqn.params["axis"]]
    if k > FEW and n > SORTED:
        return f"asks for {k} of {n} elements, which XLA finds as fast"
    return None


def _several_axes(eqn: Equation) -> str | None:
    return None if len(eqn.params["axes"]) == 1 else "is over several axes"


#: what takes all numbers along some axes as one
REDUCED = tuple(f"reduce_{name}" for name in "and max min or prod sum xor".split())
RECORDS = [
    *(
        Primitive(
            name=name,
            kind="reduction",
            axes=_reduction,
            work=_each_operand,
            linear=name == "reduce_sum",
            exact=name in ("reduce_max", "reduce_min"),
        )
        for name in REDUCED
    ),
    *(
        Primitive(
            name=name,
            kind="reduction",
            axes=_position,
            work=_each_operand,
            refuses=_several_axes,
            exact=True,
        )
        for name in ("argmax", "argmin")
    ),
    *(
        Primitive(
            name=name,
            kind="cumulative",
            axes=_cumulative,
            work=_each_operand,
            exact=name in ("cummax", "cummin"),
        )
        for name in ("cummax", "cummin", "cumprod", "cumsum")
    ),
    Primitive(
        name="sort",
        kind="sort",
        axes=_sort,
        work=_comparisons,
        exact=True,
    ),
    Primitive(
        name="top_k",
        kind="sort",
        axes=_top,
        work=_selections,
        refuses=_too_many,
        exact=True,
    ),
]
