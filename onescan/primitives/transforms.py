"""Fourier transforms: JAX's, and that of pairs along one axis."""

from __future__ import annotations

from math import log2

from onescan.loop import Equation
from onescan.primitives.axes import Axes
from onescan.primitives.record import Primitive, results

#: numbers along an axis up to which a kernel transforms them
LONGEST = 1024


def sizes_refused(eqn: Equation) -> str | None:
    """Why a kernel does not take a transform."""
    for n in eqn.params["fft_lengths"]:
        if n & (n - 1) or not 0 < n <= LONGEST:
            return (
                f"is of {n} points; kernels have powers of two up to {LONGEST}, and "
                "a library the others"
            )
    return None


def _others_walk(eqn: Equation, axes: Axes) -> None:
    first, *rest = [*eqn.invars, *eqn.outvars]
    for i in range(len(first.aval.shape)):
        for var in (first, *rest):
            if i == eqn.params["axis"]:
                axes.strike(var, i)
            elif var is not first:
                axes.join(first, i, var, i)


def _work(eqn: Equation) -> tuple[int, float]:
    n = eqn.invars[0].aval.shape[eqn.params["axis"]]
    return results(eqn), 2.5 * max(log2(max(n, 1)), 1)


RECORDS = [
    Primitive(
        name="fft",
        kind="library",
        refuses=sizes_refused,
        words=("Fourier transform", "Fourier transforms"),
    ),
    Primitive(
        name="onescan_fft",
        kind="transform",
        axes=_others_walk,
        work=_work,
        words=("Fourier transform", "Fourier transforms"),
    ),
]
