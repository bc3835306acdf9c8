"""x rem y as C's fmod: exact, with the sign of x.

LLVM's own instruction calls the C library on a CPU, for one number after the other, so
it is only asked where a quotient is large or a number unusual.  A GPU has no such
library, and LLVM would put x - trunc(x / y) * y in its place, which is wrong for large
quotients.  A module for a GPU gets a function of its own.
"""

from __future__ import annotations

import math
from typing import Any

from llvmlite import ir

from onescan.emit.convert import any_lane
from onescan.emit.math.features import GPU, has
from onescan.emit.math.types import Lane, one_way, select

#: bits that one round takes off a quotient, and those it can have in its last
BITS = {ir.FloatType(): (20, 22), ir.DoubleType(): (48, 51)}


def remainder(b: Any, x: Any, y: Any) -> Any:
    """x rem y; numbers, or on a CPU vectors of them."""
    if not has(b, GPU):
        x, y = Lane(b, x), Lane(b, y)
        if isinstance(x.type, ir.VectorType):
            return _quick(x, y).ir
        # a phase goes around now and then: a guess spares the next step all of it
        return one_way(x.abs() < y.abs(), lambda: x, lambda: _quick(x, y)).ir
    name = f"onescan.remainder.{x.type}"
    function = b.module.globals.get(name) or _define(b.module, x.type, name)
    return b.call(function, [x, y])


def _quick(x: Lane, y: Lane) -> Lane:
    """One subtraction, as `_define` has it, where that is enough for all lanes.

    It is not where the divisor is infinite, or so small that what is left may be
    subnormal.
    """
    b, size, divisor = x.b, x.abs(), y.abs()
    _, most = BITS[x.element]
    quotient = size / divisor
    whole = quotient.intrinsic("llvm.trunc")
    left = (-whole).intrinsic("llvm.fma", divisor, size)
    left = select(left < 0.0, left + divisor, left).with_sign_of(x)
    left = select(size < divisor, x, left)  # also if it is subnormal
    usual = (quotient < 2.0**most) & (divisor < math.inf)
    usual = usual & (divisor > x.format.tiny * 2.0 ** (x.format.mantissa + 1))
    slow = Lane(b, any_lane(b, (~usual).ir))
    return one_way(slow, lambda: Lane(b, b.frem(x.ir, y.ir)), lambda: left)


def _define(module: ir.Module, kind: Any, name: str) -> ir.Function:
    """Subtract whole multiples of y times a power of two, until less than y is left.

    Let r >= t, where t is |y| times a power of two and r / t below 2**bits, and n the
    rounded quotient cut to a whole number: the right one, or one more.  r and n * t
    are multiples of t's last bit and differ by at most t, so their difference fits
    the format, and the fused operation gives it exactly; so does the correction.
    """
    step, most = BITS[kind]
    function = ir.Function(module, ir.FunctionType(kind, [kind, kind]), name)
    function.linkage = "internal"
    function.attributes.add("alwaysinline")
    blocks = [function.append_basic_block(n) for n in ("", "again", "grow", "take", "")]
    entry, again, grow, take, done = blocks
    b: Any = ir.IRBuilder(entry)
    number = lambda value: ir.Constant(kind, value)
    x, y = function.args
    size, divisor = (_call(b, "llvm.fabs", v) for v in (x, y))
    finite = b.fcmp_ordered("<", size, number(float("inf")))
    fine = b.and_(finite, b.fcmp_ordered(">", divisor, number(0.0)))
    start = b.select(fine, size, number(float("nan")))
    b.branch(again)

    b.position_at_end(again)
    r = b.phi(kind)
    b.cbranch(b.fcmp_ordered(">=", r, divisor), grow, done)

    b.position_at_end(grow)
    t = b.phi(kind)
    quotient = b.fdiv(r, t)
    larger = b.fmul(t, number(2.0**step))
    b.cbranch(b.fcmp_ordered(">=", quotient, number(2.0**most)), grow, take)
    t.add_incoming(divisor, again)
    t.add_incoming(larger, grow)

    b.position_at_end(take)
    whole = _call(b, "llvm.trunc", quotient)
    left = _call(b, "llvm.fma", b.fneg(whole), t, r)
    corrected = b.fadd(left, t)
    below = b.fcmp_ordered("<", left, number(0.0))
    less = b.select(below, corrected, left)
    b.branch(again)
    r.add_incoming(start, entry)
    r.add_incoming(less, take)

    b.position_at_end(done)
    b.ret(_call(b, "llvm.copysign", r, x))
    return function


def _call(b: Any, name: str, *args: Any) -> Any:
    kind = args[0].type
    full = f"{name}.{'f64' if isinstance(kind, ir.DoubleType) else 'f32'}"
    function = b.module.globals.get(full) or ir.Function(
        b.module, ir.FunctionType(kind, [kind] * len(args)), full
    )
    return b.call(function, args)
