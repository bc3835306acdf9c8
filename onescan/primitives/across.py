"""Questions to all lanes that run together, whose answer no lane depends on.

`passes/equinox.py` says whose they are.  They join and strike nothing: the positions of
a batch do not meet there.
"""

from __future__ import annotations

from math import prod

from onescan.loop import Equation
from onescan.primitives.axes import Axes
from onescan.primitives.record import Primitive


def _none(eqn: Equation, axes: Axes) -> None:
    return


def _each_lane(eqn: Equation) -> tuple[int, float]:
    return 1, float(prod(eqn.invars[0].aval.shape))


RECORDS = [
    Primitive(name=name, kind="across", axes=_none, work=_each_lane, exact=True)
    for name in ("unvmap_all", "unvmap_any")
]
