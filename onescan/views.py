"""Views: xs that a kernel reads where they stand, or does not have to read at all.

`v[:-1]` and `v[1:]` as xs are two copies of an array that XLA makes for a kernel, and
`jnp.arange(n)` is an array of what a loop counts anyway.  The rule that puts the call
of a kernel into the program is given values of that program, and sees that one is a
slice along time or a count; the kernel then takes the whole array and begins where
the slice does, or takes nothing.  What nobody reads, XLA does not make.

Right, because step t of a slice is step t + start of the whole, and number t of a
count is t.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from onescan import compat
from onescan.plan.plan import Plan

Value = Any  # of the program being lowered

#: types that count without rounding, and how far
EXACT = {"int32": 2**31, "uint32": 2**32, "int64": 2**63, "uint64": 2**64}
EXACT |= {"float32": 2**24, "float64": 2**53}


@dataclass(frozen=True)
class Views:
    """What a kernel is given, and how it reads it."""

    args: list[Value]
    types: list[Any]
    starts: dict[int, int]  # by operand: the step of its array that is the first
    counters: frozenset[int]  # operands that are the numbers of the steps

    def __bool__(self) -> bool:
        return bool(self.starts or self.counters)

    @property
    def notes(self) -> list[str]:
        found = []
        if count := len(self.starts):
            what = "1 x" if count == 1 else f"{count} xs"
            found.append(f"read {what} in place, as slices of larger arrays")
        if count := len(self.counters):
            what = "1 x that counts" if count == 1 else f"{count} xs that count"
            found.append(f"took {what} steps from the loop itself")
        return found


def views(plan: Plan, args: Sequence[Value], types: Sequence[Any]) -> Views:
    """Which xs of a planned loop are slices and counts."""
    loop = plan.loop
    found, kinds = list(args), list(types)
    starts: dict[int, int] = {}
    counters: set[int] = set()
    for i in range(loop.num_consts + loop.num_carry, len(args)):
        if plan.layouts[i][0] != 0:  # time is not what it is stacked along
            continue
        while (start := _start(found[i])) is not None:
            starts[i] = starts.get(i, 0) + start
            found[i] = compat.maker_of(found[i]).operands[0]
        if i in starts:
            kinds[i] = compat.type_of(found[i])
        elif _counts(found[i], loop.length):
            counters.add(i)
    for i in counters:  # the kernel does not read it
        found[i], kinds[i] = compat.one_zero()
    return Views(found, kinds, starts, frozenset(counters))


def _start(value: Value) -> int | None:
    """Where a value begins in an array that it is a slice of along time."""
    op = compat.maker_of(value)
    if op is None or op.name != "stablehlo.slice":
        return None
    whole = compat.type_of(op.operands[0])
    starts, limits, strides = compat.bounds_of(op)
    if whole is None or set(strides) != {1} or any(starts[1:]):
        return None
    return starts[0] if tuple(limits[1:]) == whole.shape[1:] else None


def _counts(value: Value, length: int) -> bool:
    """Whether a value is 0, 1, 2 and so on."""
    op, kind = compat.maker_of(value), compat.type_of(value)
    if op is None or op.name != "stablehlo.iota" or kind is None:
        return False
    exact = EXACT.get(np.dtype(kind.dtype).name, 0)
    return len(kind.shape) == 1 and length <= exact
