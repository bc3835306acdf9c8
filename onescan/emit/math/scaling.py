"""y * 2**n, rounded once, whatever comes out.

AVX-512 has an instruction for it.  A module says that it may be used by
`allow_scalef`; the mark is part of the module's text, and so of the kernel's name.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from onescan.emit.math.types import Lane, select

MARK = "onescan.scalef"


def allow_scalef(module: ir.Module) -> None:
    """Say that the processor this module is for has AVX-512."""
    module.add_named_metadata(MARK)


def scale(y: Lane, n: Lane, subnormal: Lane, halved: bool = False) -> Lane:
    """y * 2**n, or half of it, for a number n + `round_bias`, given by its bits.

    `subnormal` marks where the result may be that.
    """
    if MARK in y.b.module.namedmetadata and _whole_registers(y.type):
        power = n.as_float(y) - y.format.round_bias
        return _scalef(y, power - 1.0 if halved else power)
    mantissa, bias = y.format.mantissa, y.format.bias
    offset = select(subnormal, n.like((bias + 64) << mantissa), (bias - 2) << mantissa)
    y = y * ((n << mantissa) + offset).as_float(y)
    last = 0.5 if halved else 1.0
    return y * select(subnormal, y.like(last * 2.0**-64), last * 4.0)


def _whole_registers(kind: Any) -> bool:
    return isinstance(kind, ir.VectorType) and kind.count % _numbers(kind) == 0


def _numbers(kind: Any) -> int:
    """Of a vector's type, how many fill a register."""
    return 8 if isinstance(kind.element, ir.DoubleType) else 16


def _scalef(y: Lane, power: Lane) -> Lane:
    """The instruction, once for each register's worth of the vectors."""
    b, count = y.b, _numbers(y.type)
    pieces = [
        _instruction(b, _piece(b, y.ir, k, count), _piece(b, power.ir, k, count))
        for k in range(0, y.type.count, count)
    ]
    while len(pieces) > 1:
        pieces = [_joined(b, *pieces[k : k + 2]) for k in range(0, len(pieces), 2)]
    return Lane(b, pieces[0])


def _instruction(b: Any, y: Any, power: Any) -> Any:
    suffix = "pd" if y.type.count == 8 else "ps"
    name = f"llvm.x86.avx512.mask.scalef.{suffix}.512"
    mask, mode = ir.IntType(y.type.count), ir.IntType(32)
    function = b.module.globals.get(name) or ir.Function(
        b.module, ir.FunctionType(y.type, [y.type] * 3 + [mask, mode]), name
    )
    as_set = ir.Constant(mode, 4)  # rounds as the processor is set to
    return b.call(function, [y, power, y, ir.Constant(mask, -1), as_set])


def _piece(b: Any, x: Any, start: int, count: int) -> Any:
    return (
        x if x.type.count == count else _shuffled(b, x, x, range(start, start + count))
    )


def _joined(b: Any, x: Any, y: Any) -> Any:
    return _shuffled(b, x, y, range(2 * x.type.count))


def _shuffled(b: Any, x: Any, y: Any, places: range) -> Any:
    mask = ir.Constant(ir.VectorType(ir.IntType(32), len(places)), list(places))
    return b.shuffle_vector(x, y, mask)
