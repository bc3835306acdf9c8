"""The parts of a complex quotient where a number is infinite, or the divisor zero."""

from __future__ import annotations

from onescan.emit import types as ty
from onescan.emit.convert import any_lane
from onescan.emit.math.types import Lane, one_way, select
from onescan.loop import Equation

INF, NAN = float("inf"), float("nan")


def ends(b: ty.Builder, eqn: Equation, xs: list[ty.Value]) -> ty.Value:
    """A part as it is, unless both are NaN; what it is then is hardly ever computed."""
    part, other, *numbers = [Lane(b, x) for x in xs]
    undone = part.is_nan() & other.is_nan()

    def found() -> Lane:
        return select(undone, _end(numbers, eqn.params["imaginary"]), part)

    return one_way(Lane(b, any_lane(b, undone.ir)), found, lambda: part).ir


def _end(numbers: list[Lane], imaginary: bool) -> Lane:
    """As `passes/complex_numbers.py` has it."""
    a, b, c, d = numbers
    infinite, by_infinite = (_is_inf(u) | _is_inf(v) for u, v in ((a, b), (c, d)))
    finite, by_finite = (_finite(u) & _finite(v) for u, v in ((a, b), (c, d)))
    scale = select(by_infinite & finite, a.like(0), NAN)
    scale = select(infinite & by_finite, a.like(INF), scale)
    a_, b_ = (select(infinite, _direction(u), u) for u in (a, b))
    c_, d_ = (select(by_infinite, _direction(u), u) for u in (c, d))
    turned = b_ * c_ - a_ * d_ if imaginary else a_ * c_ + b_ * d_
    by_zero = a.like(INF).with_sign_of(c) * (b if imaginary else a)
    return select(c.equals(0) & d.equals(0), by_zero, scale * turned)


def _is_inf(x: Lane) -> Lane:
    return x.abs().equals(INF)


def _finite(x: Lane) -> Lane:
    return x.abs() < INF


def _direction(x: Lane) -> Lane:
    """One for an infinite number, zero for any other, with its sign."""
    return select(_is_inf(x), x.like(1), 0.0).with_sign_of(x)
