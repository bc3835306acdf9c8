"""Between which two numbers the integers of a body lie, whatever it is given.

An interval for each value, from those of its operands (Moore, "Interval Analysis",
1966).  What may not fit its type, where it would wrap around, or what no rule is known
for, lies anywhere in its type.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import product
from typing import Any

import numpy as np
from jax.extend.core import JaxprEqn, Literal

#: from the least to the largest, both included
Range = tuple[int, int]
BITS = 64


def of_type(dtype: Any) -> Range | None:
    """What an integer or a truth may be."""
    dtype = np.dtype(dtype)
    if dtype.kind == "b":
        return 0, 1
    if dtype.kind not in "iu":
        return None
    found = np.iinfo(dtype)
    return int(found.min), int(found.max)


def fits(found: Range, into: Range) -> bool:
    return into[0] <= found[0] and found[1] <= into[1]


def joined(ranges: Iterable[Range]) -> Range:
    """The least that holds all of these."""
    lows, highs = zip(*ranges, strict=True)
    return min(lows), max(highs)


class Ranges:
    """The integers of a body, as its equations are gone through in order."""

    def __init__(self) -> None:
        self._known: dict[Any, Range] = {}

    def of(self, v: Any) -> Range | None:
        if isinstance(v, Literal):
            values = np.asarray(v.val)
            if of_type(values.dtype) is None or not values.size:
                return None
            return int(values.min()), int(values.max())
        return self._known.get(v, of_type(v.aval.dtype))

    def add(self, eqn: JaxprEqn) -> None:
        """One more equation: its result."""
        rule = RULES.get(eqn.primitive.name)
        if rule is None or len(eqn.outvars) != 1:
            return
        out = eqn.outvars[0]
        whole = of_type(getattr(out.aval, "dtype", np.float32))
        given = [self.of(v) for v in eqn.invars]
        if whole is None or None in given:
            return
        found = rule(eqn, *given)
        if found is not None and fits(found, whole):
            self._known[out] = found


def _corners(apply: Callable[..., int]) -> Callable[..., Range]:
    """Of a function that is monotone in each operand: its ends are at their ends."""

    def rule(_: JaxprEqn, *given: Range) -> Range:
        values = [apply(*each) for each in product(*given)]
        return min(values), max(values)

    return rule


def _any_of(_: JaxprEqn, *given: Range) -> Range:
    return joined(given)


def _first(_: JaxprEqn, x: Range, *__: Range) -> Range:
    return x


def _selected(_: JaxprEqn, __: Range, *cases: Range) -> Range:
    return joined(cases)


def _abs(_: JaxprEqn, x: Range) -> Range:
    ends = sorted(map(abs, x))
    return 0 if x[0] <= 0 <= x[1] else ends[0], ends[1]


def _square(_: JaxprEqn, x: Range) -> Range:
    low, high = _abs(_, x)
    return low * low, high * high


def _power(eqn: JaxprEqn, x: Range) -> Range | None:
    exponent = eqn.params["y"]
    if exponent < 0:
        return None
    low, high = x if exponent % 2 else _abs(eqn, x)
    return low**exponent, high**exponent


def _not(eqn: JaxprEqn, x: Range) -> Range:
    return (0, 1) if is_truth(eqn.outvars[0]) else (~x[1], ~x[0])


def _sign(_: JaxprEqn, x: Range) -> Range:
    low, high = ((n > 0) - (n < 0) for n in x)
    return low, high


def _divided(eqn: JaxprEqn, x: Range, y: Range) -> Range | None:
    """Towards zero.  By a range around 0 the ends would not be at the ends."""
    if y[0] <= 0 <= y[1]:
        return None
    toward_zero = lambda a, b: abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
    return _corners(toward_zero)(eqn, x, y)


def _remainder(_: JaxprEqn, x: Range, y: Range) -> Range | None:
    """With the sign of what is divided, and nearer to zero than both."""
    if y[0] <= 0 <= y[1]:
        return None
    most = max(map(abs, y)) - 1
    return max(-most, min(x[0], 0)), min(most, max(x[1], 0))


def _shifted(by: Callable[[int, int], int], least: int) -> Any:
    """By a number of bits that is no less than 0 and does not go too far."""

    def rule(eqn: JaxprEqn, x: Range, bits: Range) -> Range | None:
        out: Any = eqn.outvars[0].aval
        most = 8 * out.dtype.itemsize
        if not fits(bits, (0, most - 1)) or x[0] < least:
            return None
        return _corners(by)(eqn, x, bits)

    return rule


def _bits(either: bool) -> Any:
    """Of two numbers, either of which or both of which have each bit."""

    def rule(eqn: JaxprEqn, x: Range, y: Range) -> Range:
        if is_truth(eqn.outvars[0]):
            return 0, 1
        if min(x[0], y[0]) >= 0:
            length = max(x[1].bit_length(), y[1].bit_length())
            return 0, (1 << length) - 1 if either else min(x[1], y[1])
        if not either and max(x[0], y[0]) >= 0:  # with one of them no bit is a sign
            return 0, x[1] if x[0] >= 0 else y[1]
        length = max(_length(n) for n in (*x, *y))
        return -(1 << length), (1 << length) - 1

    return rule


def is_truth(v: Any) -> bool:
    return v.aval.dtype.kind == "b"


def _length(n: int) -> int:
    """Bits that a number needs beside its sign."""
    return (n if n >= 0 else ~n).bit_length()


def _converted(eqn: JaxprEqn, x: Range) -> Range | None:
    return (0, 1) if np.dtype(eqn.params["new_dtype"]).kind == "b" else x


def _places(eqn: JaxprEqn) -> Range | None:
    size = eqn.params["shape"][eqn.params["dimension"]]
    return (0, size - 1) if size else None


VIEWS = (
    "broadcast_in_dim copy dynamic_slice reshape rev slice squeeze transpose".split()
)
_TRUTH = dict.fromkeys("eq ne lt le gt ge".split(), lambda *_: (0, 1))
RULES: dict[str, Callable[..., Range | None]] = {
    "add": _corners(lambda x, y: x + y),
    "add_any": _corners(lambda x, y: x + y),
    "sub": _corners(lambda x, y: x - y),
    "mul": _corners(lambda x, y: x * y),
    "neg": _corners(lambda x: -x),
    "max": _corners(max),
    "min": _corners(min),
    "clamp": _corners(lambda low, x, high: min(max(x, low), high)),
    "not": _not,
    "integer_pow": _power,
    "abs": _abs,
    "sign": _sign,
    "square": _square,
    "div": _divided,
    "rem": _remainder,
    "and": _bits(either=False),
    "or": _bits(either=True),
    "xor": _bits(either=True),
    "shift_left": _shifted(lambda x, bits: x << bits, -(1 << BITS)),
    "shift_right_arithmetic": _shifted(lambda x, bits: x >> bits, -(1 << BITS)),
    "shift_right_logical": _shifted(lambda x, bits: x >> bits, 0),
    "select_n": _selected,
    "convert_element_type": _converted,
    "iota": _places,
    **_TRUTH,
    **dict.fromkeys("concatenate pad".split(), _any_of),
    **dict.fromkeys(VIEWS, _first),
}
