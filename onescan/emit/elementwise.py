"""Elementwise primitives: one function each, on scalars or vectors.

An operation gets the builder, its equation (for dtypes and parameters) and one
register value for each operand, all of one width.  Multiplications and additions
may be contracted into fused multiply-adds, as XLA allows too.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np
from jax import lax
from jax.extend.core import Literal
from llvmlite import ir

from onescan.emit import bits, complex_quotient
from onescan.emit import types as ty
from onescan.emit.arrays import Array, Index
from onescan.emit.comparisons import compare, maximum, minimum
from onescan.emit.convert import convert, intrinsic, leading_zeros, like, rounded
from onescan.emit.division import divide
from onescan.emit.emitter import Emitter
from onescan.emit.math import FUNCTIONS, shared
from onescan.emit.math.features import GPU, has
from onescan.emit.math.power import by_halves
from onescan.emit.math.remainder import remainder as exact_remainder
from onescan.loop import Atom, Equation
from onescan.primitives import record_of

Op = Callable[[ty.Builder, Any, list[ir.Value]], ir.Value]
CONTRACT = ("contract",)
#: exponents that are products and a root, in halves
HALVES = frozenset(range(-8, 9))
#: what gives back a number that it is given, perhaps with another sign, or one that
#: has no more digits than these
GIVEN_BACK = frozenset("abs clamp copy copy_p max min neg rem select_n".split())


def rule(e: Emitter, eqn: Equation, operands: list[Array]) -> list[Array]:
    """The lazy result of an elementwise equation."""
    op = OPS[eqn.primitive.name]
    if eqn.primitive.name == "sub" and id(eqn) in e.body.differences:
        op = _rounded_sub
    guessed = id(eqn) in e.late
    (out,) = eqn.outvars
    size = prod(out.aval.shape)
    operands = [
        e.pulled_often(v, a, out) if prod(v.aval.shape) < size else a
        for a, v in zip(operands, eqn.invars, strict=True)
    ]

    def at(index: tuple[Index, ...]) -> ir.Value:
        values = [
            a.at(spread(v.aval.shape, out.aval.shape, index))
            for a, v in zip(operands, eqn.invars, strict=True)
        ]
        before = e.b.written
        if guessed and ty.width_of(values[0]) == 0:
            which, no, yes = values[0], *ty.match(e.b, *values[1:])
            value = e.b.guess(which, yes, no)
        else:
            value = op(e.b, eqn, ty.match(e.b, *values))
        if e.b.written > before:
            made = e.b.trips * max(ty.width_of(value), 1)
            e.elements[id(eqn)] = e.elements.get(id(eqn), 0.0) + made
        if eqn.primitive.name in GIVEN_BACK:
            return ty.as_in_memory(e.b, value, out.aval.dtype)
        return rounded(e.b, value, out.aval.dtype)

    cost = record_of(eqn).cost
    if np.dtype(out.aval.dtype) in ty.HALVES:
        cost += ROUNDING
    return [e.lazy(out, at, operands, cost, pointwise=True)]


def spread(
    shape: tuple[int, ...], out: tuple[int, ...], index: tuple[Index, ...]
) -> tuple[Index, ...]:
    """The index of an operand that is spread over the dimensions it lacks."""
    if not shape:
        return ()
    return tuple(
        0 if n == 1 and m != 1 else i for i, n, m in zip(index, shape, out, strict=True)
    )


def _dtype(eqn: Equation, i: int = 0) -> np.dtype:
    return np.dtype(eqn.invars[i].aval.dtype)


# arithmetic


def _rounded_sub(b: ty.Builder, eqn: Equation, xs: list[ty.Value]) -> ty.Value:
    return b.fsub(*xs) if ty.is_float(_dtype(eqn)) else b.sub(*xs)


def _arithmetic(for_float: str, for_int: str) -> Op:
    def op(b: ty.Builder, eqn: Equation, xs: list[ty.Value]) -> ty.Value:
        if ty.is_float(dtype := _dtype(eqn)):
            # 16-bit floats are rounded after each operation, also by a processor
            # that could do two at once
            flags = () if dtype in ty.HALVES else CONTRACT
            return getattr(b, for_float)(*xs, flags=flags)
        return getattr(b, for_int)(*xs)

    return op


def _div(b: ty.Builder, eqn: Equation, xs: list[ty.Value]) -> ty.Value:
    if ty.is_float(_dtype(eqn)):
        return b.fdiv(*xs)
    quotient, _ = divide(b, _dtype(eqn), *xs)
    return quotient


def _rem(b: ty.Builder, eqn: Equation, xs: list[ty.Value]) -> ty.Value:
    if ty.is_float(_dtype(eqn)):
        return exact_remainder(b, *xs)
    _, remainder = divide(b, _dtype(eqn), *xs)
    return remainder


def _comparison(sign: str) -> Op:
    return lambda b, eqn, xs: compare(b, _dtype(eqn), sign, *xs)


def _total_order(sign: str) -> Op:
    """Comparison by IEEE's total order: -nan, -inf, ..., -0, 0, ..., inf, nan."""

    def rank(b: ty.Builder, x: ir.Value, dtype: np.dtype) -> ir.Value:
        element = ir.IntType(8 * dtype.itemsize)
        stored = ty.to_memory(b, x, dtype)  # a NaN in a register may have lost its sign
        bits = b.bitcast(stored, ty.with_width(element, ty.width_of(x)))
        mirrored = b.xor(bits, like(bits, (1 << (element.width - 1)) - 1))
        return b.select(b.icmp_signed("<", bits, like(bits, 0)), mirrored, bits)

    def op(b: ty.Builder, eqn: Equation, xs: list[ty.Value]) -> ty.Value:
        if ty.is_float(_dtype(eqn)):
            return b.icmp_signed(sign, *(rank(b, x, _dtype(eqn)) for x in xs))
        return compare(b, _dtype(eqn), sign, *xs)

    return op


def _clamp(b: ty.Builder, eqn: Equation, xs: list[ty.Value]) -> ty.Value:
    low, x, high = xs
    dtype = _dtype(eqn, 1)
    return minimum(b, dtype, maximum(b, dtype, x, low), high)


def _neg(b: ty.Builder, eqn: Equation, xs: list[ty.Value]) -> ty.Value:
    return b.fneg(xs[0]) if ty.is_float(_dtype(eqn)) else b.neg(xs[0])


def _abs(b: ty.Builder, eqn: Equation, xs: list[ty.Value]) -> ty.Value:
    (x,) = xs
    if ty.is_float(_dtype(eqn)):
        return intrinsic(b, "llvm.fabs", x)
    if ty.is_signed(_dtype(eqn)):
        return b.select(b.icmp_signed("<", x, like(x, 0)), b.neg(x), x)
    return x


def _sign(b: ty.Builder, eqn: Equation, xs: list[ty.Value]) -> ty.Value:
    (x,) = xs
    zero, one = like(x, 0), like(x, 1)
    if ty.is_float(_dtype(eqn)):
        # zeros keep their sign, and so does what the processor reads as zero; NaN stays
        size = b.select(b.fcmp_ordered("==", x, zero), zero, one)
        signed = intrinsic(b, "llvm.copysign", size, x)
        return b.select(b.fcmp_unordered("uno", x, x), x, signed)
    if ty.is_signed(_dtype(eqn)):
        unit = b.select(b.icmp_signed("<", x, zero), like(x, -1), one)
    else:
        unit = one
    return b.select(b.icmp_signed("==", x, zero), zero, unit)


def _square(b: ty.Builder, eqn: Equation, xs: list[ty.Value]) -> ty.Value:
    return OPS["mul"](b, eqn, [xs[0], xs[0]])


def _one_minus_square(b: ty.Builder, eqn: Equation, xs: list[ty.Value]) -> ty.Value:
    (x,) = xs
    one = like(x, 1)
    if ty.is_float(_dtype(eqn)):
        return b.fmul(b.fadd(one, x), b.fsub(one, x))
    return b.mul(b.add(one, x), b.sub(one, x))


def _integer_pow(b: ty.Builder, eqn: Equation, xs: list[ty.Value]) -> ty.Value:
    (x,), power = xs, eqn.params["y"]
    result, factor, left = None, x, abs(power)
    while left:
        if left & 1:
            result = factor if result is None else OPS["mul"](b, eqn, [result, factor])
        left >>= 1
        if left:
            factor = OPS["mul"](b, eqn, [factor, factor])
    if result is None:
        return like(x, 1)
    return b.fdiv(like(x, 1), result) if power < 0 else result


def _polynomial(b: ir.IRBuilder, eqn: Equation, xs: list[ty.Value]) -> ty.Value:
    """Horner's rule, from the last coefficient."""
    x, *coefficients = xs
    result = coefficients[-1]
    for c in coefficients[-2::-1]:
        result = OPS["add"](b, eqn, [OPS["mul"](b, eqn, [result, x]), c])
    return result


def _pow(b: ty.Builder, eqn: Equation, xs: list[ty.Value]) -> ty.Value:
    x, y = xs
    if not ty.is_float(_dtype(eqn, 1)):
        y = convert(b, y, _dtype(eqn, 1), _dtype(eqn, 0))
    halves = _halves(eqn.invars[1])
    if halves and ty.element_type(x) == ty.F32 and not has(b, GPU):
        return by_halves(b, x, halves)
    return shared.apply(b, "pow", x, y)


def _halves(exponent: Atom) -> int:
    """A constant exponent counted in halves; 0 where it is no small number of them."""
    if not isinstance(exponent, Literal) or np.ndim(exponent.val):
        return 0
    halves = 2 * float(exponent.val)
    return int(halves) if halves in HALVES else 0


# bits


def _not(b: ty.Builder, eqn: Equation, xs: list[ty.Value]) -> ty.Value:
    return b.xor(xs[0], like(xs[0], -1))


def _bits(name: str) -> Op:
    return lambda b, eqn, xs: getattr(b, name)(*xs)


def _shift(name: str) -> Op:
    """Shifts past the width give zero, or the sign for an arithmetic one."""

    def op(b: ty.Builder, eqn: Equation, xs: list[ty.Value]) -> ty.Value:
        x, by = xs
        bits = ty.element_type(x).width
        if isinstance(by, ir.Constant) and _is_small(by, bits):
            return getattr(b, name)(x, by)
        inside = b.icmp_unsigned("<", by, like(by, bits))
        if name == "ashr":
            return b.ashr(x, b.select(inside, by, like(by, bits - 1)))
        if bits == 64:  # LLVM's PTX looks at the lower half of `by` only, if it can
            last = b.select(inside, by, like(by, 63))
            rest = b.zext(b.not_(inside), x.type)
            return getattr(b, name)(getattr(b, name)(x, last), rest)
        shifted = getattr(b, name)(x, b.select(inside, by, like(by, 0)))
        return b.select(inside, shifted, like(x, 0))

    return op


def _is_small(constant: ty.Value, bits: int) -> bool:
    value = constant.constant
    if isinstance(value, (list, tuple)):
        value = getattr(value[0], "constant", value[0])
    return isinstance(value, int) and 0 <= value < bits


def _population_count(b: ty.Builder, eqn: Equation, xs: list[ty.Value]) -> ty.Value:
    return intrinsic(b, "llvm.ctpop", xs[0])


def _clz(b: ty.Builder, eqn: Equation, xs: list[ty.Value]) -> ty.Value:
    return leading_zeros(b, xs[0])


# types


def _convert(b: ty.Builder, eqn: Equation, xs: list[ty.Value]) -> ty.Value:
    return convert(b, xs[0], _dtype(eqn), np.dtype(eqn.outvars[0].aval.dtype))


def _bitcast(b: ty.Builder, eqn: Equation, xs: list[ty.Value]) -> ty.Value:
    (x,) = xs
    old, new = _dtype(eqn), np.dtype(eqn.outvars[0].aval.dtype)
    raw = ty.to_memory(b, x, old)
    kind = ty.with_width(ty.memory_type(new), ty.width_of(x))
    return ty.from_memory(b, raw if raw.type == kind else b.bitcast(raw, kind), new)


def _is_finite(b: ty.Builder, eqn: Equation, xs: list[ty.Value]) -> ty.Value:
    size = intrinsic(b, "llvm.fabs", xs[0])
    return b.fcmp_ordered("<", size, like(size, float("inf")))


def _round(b: ty.Builder, eqn: Equation, xs: list[ty.Value]) -> ty.Value:
    even = eqn.params["rounding_method"] == lax.RoundingMethod.TO_NEAREST_EVEN
    return intrinsic(b, "llvm.roundeven" if even else "llvm.round", xs[0])


def _select_n(b: ty.Builder, eqn: Equation, xs: list[ty.Value]) -> ty.Value:
    which, *cases = xs
    if ty.is_bool(_dtype(eqn)):
        return b.select(which, cases[1], cases[0]) if len(cases) == 2 else cases[0]
    result = cases[-1]
    for i in range(len(cases) - 2, -1, -1):
        here = b.icmp_signed("<=", which, like(which, i))
        result = b.select(here, cases[i], result)
    return result


def _function(name: str) -> Op:
    return lambda b, eqn, xs: shared.apply(b, name, *xs)


OPS: dict[str, Op] = {
    "abs": _abs,
    "add": _arithmetic("fadd", "add"),
    "add_any": _arithmetic("fadd", "add"),
    "and": _bits("and_"),
    "bitcast_convert_type": _bitcast,
    "ceil": lambda b, eqn, xs: intrinsic(b, "llvm.ceil", xs[0]),
    "clamp": _clamp,
    "clz": _clz,
    "convert_element_type": _convert,
    "div": _div,
    "eq": _comparison("=="),
    "eq_to": _total_order("=="),
    "floor": lambda b, eqn, xs: intrinsic(b, "llvm.floor", xs[0]),
    "ge": _comparison(">="),
    "gt": _comparison(">"),
    "integer_pow": _integer_pow,
    "is_finite": _is_finite,
    "le": _comparison("<="),
    "le_to": _total_order("<="),
    "lt": _comparison("<"),
    "lt_to": _total_order("<"),
    "max": lambda b, eqn, xs: maximum(b, _dtype(eqn), *xs),
    "min": lambda b, eqn, xs: minimum(b, _dtype(eqn), *xs),
    "mul": _arithmetic("fmul", "mul"),
    "ne": _comparison("!="),
    "neg": _neg,
    "nextafter": bits.nextafter,
    "not": _not,
    "one_minus_square": _one_minus_square,
    "onescan_quotient": complex_quotient.ends,
    "or": _bits("or_"),
    "polynomial": _polynomial,
    "population_count": _population_count,
    "pow": _pow,
    "reduce_precision": bits.reduce_precision,
    "rem": _rem,
    "round": _round,
    "select_n": _select_n,
    "shift_left": _shift("shl"),
    "shift_right_arithmetic": _shift("ashr"),
    "shift_right_logical": _shift("lshr"),
    "sign": _sign,
    "square": _square,
    "sub": _arithmetic("fsub", "sub"),
    "xor": _bits("xor"),
    **{name: _function(name) for name in FUNCTIONS if name != "pow"},
}

#: rough operations of rounding to a half type
ROUNDING = 20
