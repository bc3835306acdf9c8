"""Vectors put together of numbers that were read one by one."""

from __future__ import annotations

from llvmlite import ir

from onescan.emit import types as ty
from onescan.emit.constants import nothing
from onescan.emit.lines import SIZES
from onescan.emit.math.features import NEON, has


def together(b: ty.Builder, values: list[ty.Value]) -> ty.Value:
    """A vector of numbers.

    By words of 64 bits on aarch64, whose instruction that reads a number into a lane
    waits for the other lanes: vectors read in pieces take two thirds of the time.
    """
    kind, width = values[0].type, len(values)
    size = 8 * SIZES.get(str(kind), 8)
    if not has(b, NEON) or size >= 64 or size * width % 64:
        result = nothing(ty.with_width(kind, width))
        for lane, value in enumerate(values):
            result = b.insert_element(result, value, ir.Constant(ty.I32, lane))
        return result
    number = ir.IntType(size)
    bits = [v if v.type == number else b.bitcast(v, number) for v in values]
    words = []
    for first in range(0, width, 64 // size):
        word = b.zext(bits[first], ty.I64)
        for k in range(1, 64 // size):
            place = ir.Constant(ty.I64, k * size)
            word = b.or_(word, b.shl(b.zext(bits[first + k], ty.I64), place))
        words.append(word)
    result = nothing(ty.with_width(ty.I64, len(words)))
    for lane, word in enumerate(words):
        result = b.insert_element(result, word, ir.Constant(ty.I32, lane))
    return b.bitcast(result, ty.with_width(kind, width))
