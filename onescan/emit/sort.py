"""sort along a small axis: a merge network of compare-and-exchange steps.

The same exchanges happen whatever the values are, so all lanes sort at once.
Batcher's odd-even merge network is not stable by itself; a position is carried
along and breaks ties, which makes it so.  NaN sorts last, and -0 with 0.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from onescan.emit import elementwise as el
from onescan.emit import types as ty
from onescan.emit.arrays import Array, Index
from onescan.emit.emitter import Emitter

LONGEST = 64


def exchanges(n: int) -> Iterator[tuple[int, int]]:
    """Pairs (low, high) of Batcher's odd-even merge sort for n elements."""
    p = 1
    while p < n:
        k = p
        while k >= 1:
            for j in range(k % p, n - k, 2 * k):
                for i in range(min(k, n - j - k)):
                    if (i + j) // (2 * p) == (i + j + k) // (2 * p):
                        yield i + j, i + j + k
            k //= 2
        p *= 2


def sort(e: Emitter, eqn: Any, operands: list[Array]) -> list[Array]:
    axis, num_keys = eqn.params["dimension"], eqn.params["num_keys"]
    targets = [e.fresh(out) for out in eqn.outvars]
    first = targets[0]
    n = first.shape[axis]
    others = tuple(s for i, s in enumerate(first.shape) if i != axis)
    lanes = tuple(l for i, l in enumerate(first.lanes) if i != axis)

    def visit(index: tuple[Index, ...]) -> None:
        place = lambda k: (*index[:axis], k, *index[axis:])
        rows = [[x.at(place(k)) for x in operands] for k in range(n)]
        width = max(ty.width_of(v) for row in rows for v in row)
        rows = [
            [*(ty.splat(e.b, v, width) for v in row), ty.constant(ty.I32, k, width)]
            for k, row in enumerate(rows)
        ]
        for low, high in exchanges(n):
            swap = _before(e.b, operands[:num_keys], rows[high], rows[low])
            pairs = zip(rows[low], rows[high], strict=True)
            rows[low], rows[high] = map(
                list,
                zip(
                    *(
                        (e.b.select(swap, b, a), e.b.select(swap, a, b))
                        for a, b in pairs
                    ),
                    strict=True,
                ),
            )
        for k, row in enumerate(rows):
            for target, value in zip(targets, row[:-1], strict=True):
                assert target.memory is not None
                target.memory.store(e.b, place(k), value)

    e.nest(others, lanes, visit, None if axis == len(first.shape) - 1 else -1)
    return targets


def _before(
    b: ty.Builder, keys: list[Array], x: list[ty.Value], y: list[ty.Value]
) -> ty.Value:
    """Whether row x comes before row y: by the keys, then by position."""
    result = b.icmp_signed("<", x[-1], y[-1])
    for i in reversed(range(len(keys))):
        less, equal = _order(b, keys[i].dtype, x[i], y[i])
        result = b.or_(less, b.and_(equal, result))
    return result


def _order(
    b: ty.Builder, dtype: Any, x: ty.Value, y: ty.Value
) -> tuple[ty.Value, ty.Value]:
    less = el.compare(b, dtype, "<", x, y)
    equal = el.compare(b, dtype, "==", x, y)
    if ty.is_float(dtype):
        x_nan, y_nan = (b.fcmp_unordered("uno", v, v) for v in (x, y))
        less = b.or_(less, b.and_(y_nan, b.not_(x_nan)))
        equal = b.or_(equal, b.and_(x_nan, y_nan))
    return less, equal


RULES = {"sort": sort}
