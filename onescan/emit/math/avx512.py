"""Instructions of AVX-512 that other processors have none for."""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from onescan.emit.constants import positions
from onescan.emit.math.features import AVX512, has
from onescan.emit.math.types import Lane


def usable(x: Lane) -> bool:
    """Whether these instructions are there, and a value is whole registers."""
    kind = x.type
    whole = isinstance(kind, ir.VectorType) and kind.count % _numbers(kind) == 0
    return whole and has(x.b, AVX512)


def scaled(y: Lane, power: Lane) -> Lane:
    """y * 2**power, for a power that is a whole number, rounded once."""
    as_set = ir.Constant(ir.IntType(32), 4)  # rounds as the processor is set to
    return _by_registers("mask.scalef", [y, power, y], [as_set])


def about_one_over(x: Lane) -> Lane:
    """1 / x but for one part in 2**14."""
    return _by_registers("rcp14", [x, x], [])


def about_one_over_root(x: Lane) -> Lane:
    """1 / sqrt(x) but for one part in 2**14."""
    return _by_registers("rsqrt14", [x, x], [])


def _numbers(kind: Any) -> int:
    """Of a vector's type, how many fill a register."""
    return 8 if isinstance(kind.element, ir.DoubleType) else 16


def _by_registers(name: str, operands: list[Lane], rest: list[Any]) -> Lane:
    """An instruction, once for each register's worth of the operands."""
    b, kind = operands[0].b, operands[0].type
    count = _numbers(kind)
    pieces = [
        _instruction(b, name, [_piece(b, x.ir, k, count) for x in operands], rest)
        for k in range(0, kind.count, count)
    ]
    while len(pieces) > 1:
        pieces = [_joined(b, *pieces[k : k + 2]) for k in range(0, len(pieces), 2)]
    return Lane(b, pieces[0])


def _instruction(b: Any, name: str, operands: list[Any], rest: list[Any]) -> Any:
    kind = operands[0].type
    name = f"llvm.x86.avx512.{name}.{'pd' if kind.count == 8 else 'ps'}.512"
    every = ir.Constant(ir.IntType(kind.count), -1)
    values = [*operands, every, *rest]
    function = b.module.globals.get(name) or ir.Function(
        b.module, ir.FunctionType(kind, [v.type for v in values]), name
    )
    return b.call(function, values)


def _piece(b: Any, x: Any, start: int, count: int) -> Any:
    if x.type.count == count:
        return x
    return _shuffled(b, x, x, range(start, start + count))


def _joined(b: Any, x: Any, y: Any) -> Any:
    return _shuffled(b, x, y, range(2 * x.type.count))


def _shuffled(b: Any, x: Any, y: Any, places: range) -> Any:
    return b.shuffle_vector(x, y, positions(*places))
