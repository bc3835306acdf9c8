"""`Fold`: what a reduction holds while it walks over its elements.

Most hold one number.  The largest or smallest of floats, which is NaN if any is NaN
and knows -0 from 0, takes x86 some seven instructions for each element by the book;
here it is three, with the fine print left for the end: the largest by plain comparison
(which passes NaN over), and the largest bit patterns as signed and as unsigned
integers.  The first of these is above infinity's if a positive NaN was seen, the
second above minus infinity's if a negative one was; and where the largest number is a
zero, they tell which: any zero without a sign makes it positive.  (aarch64 has one
instruction for all of it.)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from onescan.emit import types as ty
from onescan.emit.convert import like

Combine = Callable[[ty.Builder, Any, ty.Value, ty.Value], ty.Value]


@dataclass(frozen=True)
class Fold:
    combines: tuple[Combine, ...]  # for each number held: with one more of its kind
    starts: tuple[ty.Value, ...]
    enter: Callable[[ty.Builder, ty.Value], list[ty.Value]]
    leave: Callable[[ty.Builder, list[ty.Value]], ty.Value]


def plain(combine: Combine, start: ty.Value) -> Fold:
    """One number, combined with each element."""
    return Fold((combine,), (start,), lambda b, value: [value], lambda b, held: held[0])


def extreme(dtype: Any, largest: bool) -> Fold:
    """The largest or smallest of floats, as `llvm.maximum` and `minimum` have it."""
    number: Any = ty.register_type(dtype)
    bits = ty.I64 if number == ty.F64 else ty.I32
    infinity = 0x7FF << 52 if bits is ty.I64 else 0xFF << 23
    sign = 1 << (bits.width - 1)

    def better(b: ty.Builder, dtype: Any, held: ty.Value, x: ty.Value) -> ty.Value:
        return b.select(b.fcmp_ordered(">" if largest else "<", x, held), x, held)

    def signed(b: ty.Builder, dtype: Any, held: ty.Value, x: ty.Value) -> ty.Value:
        return b.select(b.icmp_signed(">", x, held), x, held)

    def unsigned(b: ty.Builder, dtype: Any, held: ty.Value, x: ty.Value) -> ty.Value:
        return b.select(b.icmp_unsigned(">", x, held), x, held)

    def enter(b: ty.Builder, x: ty.Value) -> list[ty.Value]:
        pattern = b.bitcast(x, ty.with_width(bits, ty.width_of(x)))
        return [x, pattern, pattern]

    def leave(b: ty.Builder, held: list[ty.Value]) -> ty.Value:
        x, high, low = held
        is_nan = b.or_(
            b.icmp_signed(">", high, like(high, infinity)),
            b.icmp_unsigned(">", low, like(low, sign | infinity)),
        )
        which = b.and_(high if largest else low, like(high, sign))
        zero = b.bitcast(which, x.type)
        x = b.select(b.fcmp_ordered("==", x, like(x, 0)), zero, x)
        return b.select(is_nan, like(x, float("nan")), x)

    worst = float("-inf") if largest else float("inf")
    starts = (number, worst), (bits, sign), (bits, 0)
    return Fold(
        (better, signed, unsigned),
        tuple(ty.constant(kind, value) for kind, value in starts),
        enter,
        leave,
    )
