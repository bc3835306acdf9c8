"""Products, and what JAX gives to a library."""

from __future__ import annotations

from math import prod

from onescan.loop import Equation
from onescan.primitives.axes import Axes
from onescan.primitives.record import Primitive, results


def _dot_general(eqn: Equation, axes: Axes) -> None:
    (x, y), (out,) = eqn.invars, eqn.outvars
    (cx, cy), (bx, by) = eqn.params["dimension_numbers"]
    for i, j in zip(cx, cy, strict=True):
        axes.combine((x, i), (y, j))
    place = 0
    for i, j in zip(bx, by, strict=True):
        axes.join(x, i, out, place)
        axes.join(y, j, out, place)
        place += 1
    for v, used in ((x, {*cx, *bx}), (y, {*cy, *by})):
        for i in range(len(v.aval.shape)):
            if i not in used:
                axes.join(v, i, out, place)
                place += 1


def _multiply_adds(eqn: Equation) -> tuple[int, float]:
    (contracted, _), _ = eqn.params["dimension_numbers"]
    shape = eqn.invars[0].aval.shape
    return results(eqn), float(prod(shape[i] for i in contracted))


def _sharded(eqn: Equation) -> str | None:
    return None if eqn.params.get("out_sharding") is None else "has a sharding"


RECORDS = [
    Primitive(
        name="dot_general",
        kind="product",
        axes=_dot_general,
        work=_multiply_adds,
        refuses=_sharded,
        words=("matrix product", "matrix products"),
    ),
    *(
        Primitive(name=name, kind="library")
        for name in (
            "conv_general_dilated eig householder_product schur "
            "tridiagonal tridiagonal_solve"
        ).split()
    ),
]
