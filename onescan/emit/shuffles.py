"""Many shuffles that together give vectors another order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from llvmlite import ir

from onescan.emit import types as ty
from onescan.emit.constants import positions
from onescan.emit.convert import declared

#: the floats that are moved for numbers of as many bits
FLOATS = {32: ir.FloatType(), 64: ir.DoubleType()}


def exchanged(
    b: ty.Builder, x: ty.Value, y: ty.Value, places: Sequence[int | None]
) -> ty.Value:
    """Numbers of two vectors by their positions in both; where that is None, anything.

    LLVM takes it as it is.  Else it looks for less through all that the operands are
    shuffled from, and finds nothing, in most of the time of LLVM.
    """
    found: Any = b.shuffle_vector(x, y, positions(*places))
    single = FLOATS.get(_bits(found.type.element))
    if single is not None and "\n" not in found.text:  # of one that stands there
        found.text = _apart(b.module, found, single)
    return found


def _apart(module: ir.Module, found: Any, single: ir.Type) -> str:
    """The text of an instruction whose result comes through a fence: floats only do."""
    kind, name = found.type, found.name
    moved = ty.with_width(single, kind.count)
    function = declared(module, "llvm.arithmetic.fence", [moved], moved)
    first = found.text.replace(name, f"{name}.first", 1)
    through = f"call {moved} {function.get_reference()}({moved} {name}.{{}})"
    if moved == kind:
        return f"{first}\n  {name} = {through.format('first')}"
    return (
        f"{first}\n  {name}.float = bitcast {kind} {name}.first to {moved}"
        f"\n  {name}.there = {through.format('float')}"
        f"\n  {name} = bitcast {moved} {name}.there to {kind}"
    )


def _bits(element: ir.Type) -> int:
    if isinstance(element, ir.IntType):
        return element.width
    return {ir.FloatType(): 32, ir.DoubleType(): 64}.get(element, 0)


def transposed_square(b: ty.Builder, lines: Sequence[ty.Value]) -> list[ty.Value]:
    """The columns of as many vectors as each of them has numbers, a power of two."""
    lines, side, step = list(lines), len(lines), 1
    while step < side:
        # squares of `step` numbers that face each other across the diagonal change
        lower = [i if not i & step else side + i - step for i in range(side)]
        upper = [i + step if not i & step else side + i for i in range(side)]
        for k in range(side):
            if not k & step:
                x, y = lines[k], lines[k + step]
                lines[k] = exchanged(b, x, y, lower)
                lines[k + step] = exchanged(b, x, y, upper)
        step *= 2
    return lines
