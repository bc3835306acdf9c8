"""Lane values: LLVM scalars or vectors that read like numbers.

A `Lane` pairs an LLVM value with the builder that extends it, so that the elementary
functions can be written as formulas. The same formula serves a scalar and a vector of
any width; Python numbers become constants of the other operand's type. Arithmetic is
emitted without fast-math flags, so every operation rounds once and in the order
written: the error-free transformations at the end depend on it. Only `fma` may be
fused, and no function depends on whether it is.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import Any

from llvmlite import ir

from onescan.emit.constants import repeated, vector
from onescan.emit.math.features import NEON, has


@dataclass(frozen=True)
class Format:
    """A binary floating-point format: sizes in bits, exponents of two."""

    bits: int
    mantissa: int
    bias: int

    @property
    def tiny(self) -> float:
        """The smallest normal number."""
        return 2.0 ** (1 - self.bias)

    @property
    def one(self) -> int:
        """The bit pattern of 1.0."""
        return self.bias << self.mantissa

    @property
    def round_bias(self) -> float:
        """Adding this to a small number rounds it to an integer in the low bits."""
        return 1.5 * 2.0**self.mantissa


SINGLE = Format(32, 23, 127)
DOUBLE = Format(64, 52, 1023)


def const(type: ir.Type, value: float) -> ir.Constant:
    """The constant `value` of a scalar type, or repeated over a vector type."""
    element = type.element if isinstance(type, ir.VectorType) else type
    return repeated(type, ir.Constant(element, value))


def with_element(type: ir.Type, element: ir.Type) -> ir.Type:
    """`type` with its scalar type replaced by `element`, the width kept."""
    if isinstance(type, ir.VectorType):
        return vector(element, type.count)
    return element


def rounding_error(value: float, format: Format) -> float:
    """What a constant loses when it becomes a float of this format."""
    if format is DOUBLE:
        return 0.0
    return value - struct.unpack("f", struct.pack("f", value))[0]


class Lane:
    """A float, integer or mask in every lane; operators emit instructions."""

    __slots__ = ("b", "ir")

    def __init__(self, b: ir.IRBuilder, value: Any):
        self.b = b
        self.ir = value

    @property
    def type(self) -> Any:
        return self.ir.type

    @property
    def is_vector(self) -> bool:
        return isinstance(self.type, ir.VectorType)

    @property
    def element(self) -> ir.Type:
        t = self.type
        return t.element if isinstance(t, ir.VectorType) else t

    @property
    def format(self) -> Format:
        return DOUBLE if isinstance(self.element, ir.DoubleType) else SINGLE

    @property
    def is_float(self) -> bool:
        return isinstance(self.element, ir.FloatType | ir.DoubleType)

    def like(self, value: Lane | float) -> Lane:
        """`value` as a lane of this type."""
        if isinstance(value, Lane):
            return value
        if self.is_float:
            value = float(value)
        return Lane(self.b, const(self.type, value))

    def _emit(self, float_op: str, int_op: str, x: Any, y: Any) -> Lane:
        op = getattr(self.b, float_op if self.is_float else int_op)
        return Lane(self.b, op(self.like(x).ir, self.like(y).ir))

    def __add__(self, y: Lane | float) -> Lane:
        return self._emit("fadd", "add", self, y)

    def __radd__(self, y: float) -> Lane:
        return self._emit("fadd", "add", y, self)

    def __sub__(self, y: Lane | float) -> Lane:
        return self._emit("fsub", "sub", self, y)

    def __rsub__(self, y: float) -> Lane:
        return self._emit("fsub", "sub", y, self)

    def __mul__(self, y: Lane | float) -> Lane:
        return self._emit("fmul", "mul", self, y)

    def __rmul__(self, y: float) -> Lane:
        return self._emit("fmul", "mul", y, self)

    def __truediv__(self, y: Lane | float) -> Lane:
        return self._emit("fdiv", "sdiv", self, y)

    def __rtruediv__(self, y: float) -> Lane:
        return self._emit("fdiv", "sdiv", y, self)

    def __neg__(self) -> Lane:
        return Lane(self.b, self.b.fneg(self.ir) if self.is_float else (0 - self).ir)

    def __and__(self, y: Lane | int) -> Lane:
        return Lane(self.b, self.b.and_(self.ir, self.like(y).ir))

    def __or__(self, y: Lane | int) -> Lane:
        return Lane(self.b, self.b.or_(self.ir, self.like(y).ir))

    def __xor__(self, y: Lane | int) -> Lane:
        return Lane(self.b, self.b.xor(self.ir, self.like(y).ir))

    def __invert__(self) -> Lane:
        return self ^ -1

    def __lshift__(self, y: Lane | int) -> Lane:
        return Lane(self.b, self.b.shl(self.ir, self.like(y).ir))

    def __rshift__(self, y: Lane | int) -> Lane:
        """Logical: zeros come in from the left."""
        return Lane(self.b, self.b.lshr(self.ir, self.like(y).ir))

    def ashr(self, y: Lane | int) -> Lane:
        return Lane(self.b, self.b.ashr(self.ir, self.like(y).ir))

    def _compare(self, op: str, y: Lane | float) -> Lane:
        compare = self.b.fcmp_ordered if self.is_float else self.b.icmp_signed
        return Lane(self.b, compare(op, self.ir, self.like(y).ir))

    def __lt__(self, y: Lane | float) -> Lane:
        return self._compare("<", y)

    def __le__(self, y: Lane | float) -> Lane:
        return self._compare("<=", y)

    def __gt__(self, y: Lane | float) -> Lane:
        return self._compare(">", y)

    def __ge__(self, y: Lane | float) -> Lane:
        return self._compare(">=", y)

    def equals(self, y: Lane | float) -> Lane:
        return self._compare("==", y)

    def is_nan(self) -> Lane:
        return Lane(self.b, self.b.fcmp_unordered("uno", self.ir, self.ir))

    def bits(self) -> Lane:
        """The bit pattern as an integer."""
        integer = with_element(self.type, ir.IntType(self.format.bits))
        return Lane(self.b, self.b.bitcast(self.ir, integer))

    def as_float(self, like: Lane) -> Lane:
        """The float that has this integer as its bit pattern."""
        return Lane(self.b, self.b.bitcast(self.ir, like.type))

    def to(self, element: ir.Type) -> Lane:
        """The value converted between the two float types."""
        target = with_element(self.type, element)
        if target == self.type:
            return self
        widen = isinstance(element, ir.DoubleType)
        op = self.b.fpext if widen else self.b.fptrunc
        return Lane(self.b, op(self.ir, target))

    def intrinsic(self, name: str, *others: Lane | float) -> Lane:
        function = intrinsic(self.b.module, name, self.type, 1 + len(others))
        arguments = [self.ir, *(self.like(y).ir for y in others)]
        return Lane(self.b, self.b.call(function, arguments))

    def abs(self) -> Lane:
        return self.intrinsic("llvm.fabs")

    def sqrt(self) -> Lane:
        return self.intrinsic("llvm.sqrt")

    def with_sign_of(self, y: Lane) -> Lane:
        return self.intrinsic("llvm.copysign", y)


#: computes a value
Way = Callable[[], Lane]


def intrinsic(module: ir.Module, name: str, type: Any, arity: int) -> ir.Function:
    """The overloaded intrinsic `name` at `type`, declared once per module."""
    if isinstance(type, ir.VectorType):
        suffix = f"v{type.count}{type.element.intrinsic_name}"
    else:
        suffix = type.intrinsic_name
    full_name = f"{name}.{suffix}"
    existing = module.globals.get(full_name)
    if existing is not None:
        return existing
    return ir.Function(module, ir.FunctionType(type, [type] * arity), full_name)


def fma(x: Lane, y: Lane | float, z: Lane | float) -> Lane:
    """x * y + z, rounded once or twice as the target prefers."""
    return x.intrinsic("llvm.fmuladd", y, z)


def select(mask: Lane, yes: Lane | float, no: Lane | float) -> Lane:
    like = yes if isinstance(yes, Lane) else no
    if not isinstance(like, Lane):
        raise TypeError("select() needs a lane value to take the type from")
    b = mask.b
    return Lane(b, b.select(mask.ir, like.like(yes).ir, like.like(no).ir))


def one_way(mask: Lane, yes: Way, no: Way) -> Lane:
    """One of two values, the other not computed: for a mask that is a scalar."""
    b = mask.b
    with b.if_else(mask.ir) as (then, otherwise):
        with then:
            first, from_first = yes(), b.block
        with otherwise:
            second, from_second = no(), b.block
    result = b.phi(first.type)
    result.add_incoming(first.ir, from_first)
    result.add_incoming(second.ir, from_second)
    return Lane(b, result)


def clamp(x: Lane, low: float, high: float) -> Lane:
    """x within [low, high]; NaN stays NaN."""
    lowest, highest = x.like(low), x.like(high)
    if has(x.b, NEON):  # one instruction each
        return x.intrinsic("llvm.maximum", lowest).intrinsic("llvm.minimum", highest)
    x = select(lowest > x, lowest, x)
    return select(highest < x, highest, x)


def poly(x: Lane, coefficients: Sequence[float]) -> Lane:
    """Sum of coefficients[k] * x**k, in a tree (Estrin) so that it pipelines."""
    terms: list[Lane | float] = list(coefficients)
    while len(terms) > 1:
        pairs: list[Lane | float] = []
        for low, high in zip(terms[::2], terms[1::2], strict=False):
            pairs.append(fma(x, high, low))
        if len(terms) % 2:
            pairs.append(terms[-1])
        terms = pairs
        if len(terms) > 1:
            x = x * x
    return x.like(terms[0])


def series(x: Lane, coefficients: Sequence[float]) -> Lane:
    """The same sum for a result of its own: its first term is added last, once."""
    return fma(x, poly(x, coefficients[1:]), coefficients[0])


def elementary(f: Callable[..., Lane]) -> Callable[..., ir.Value]:
    """Turn a formula on lanes into a function of a builder and LLVM values."""

    @wraps(f)
    def emit(b: ir.IRBuilder, *x: ir.Value) -> ir.Value:
        return f(*(Lane(b, value) for value in x)).ir

    return emit


# Error-free transformations: a pair (high, low) whose exact sum is the exact result.


def two_sum(x: Lane, y: Lane) -> tuple[Lane, Lane]:
    """x + y exactly, in any order of size."""
    s = x + y
    v = s - x
    return s, (x - (s - v)) + (y - v)


def fast_two_sum(x: Lane, y: Lane) -> tuple[Lane, Lane]:
    """x + y exactly, for |x| >= |y| or x = 0."""
    s = x + y
    return s, y - (s - x)


def split(x: Lane) -> tuple[Lane, Lane]:
    """x as a sum of two halves of its significand."""
    dropped = (x.format.mantissa + 2) // 2
    high = (x.bits() & -(1 << dropped)).as_float(x)
    return high, x - high


def two_product(x: Lane, y: Lane) -> tuple[Lane, Lane]:
    """x * y exactly (Dekker: no fused multiply-add is assumed)."""
    p = x * y
    xh, xl = split(x)
    yh, yl = split(y)
    return p, (((xh * yh - p) + xh * yl) + xl * yh) + xl * yl
