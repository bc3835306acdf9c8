"""Views: xs that a kernel reads where they stand, or does not have to read at all.

`v[:-1]` and `v[1:]` as xs are two copies of an array that XLA makes for a kernel, so is
`jnp.concatenate([v[1:], last[None]])`, and `jnp.arange(n)` is an array of what a loop
counts anyway.  The rule that puts the call of a kernel into the program is given
values of that program, and sees that one is a slice along time, two arrays one after
the other, or a count; the kernel then takes the whole array and begins where the slice
does, takes both arrays, or takes nothing.  What nobody reads, XLA does not make.

Right, because step t of a slice is step t + start of the whole, step t of two arrays
is step t of the first or what is left of t in the second, and number t of a count is t.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from onescan import program
from onescan.plan.plan import Plan, Tail

Value = Any  # of the program being lowered

#: types that count without rounding, and how far
EXACT = {"int32": 2**31, "uint32": 2**32, "int64": 2**63, "uint64": 2**64}
EXACT |= {"float32": 2**24, "float64": 2**53}

#: steps of an array whose lanes stand in front, for each that a loop reads of them
MOST = 2


@dataclass(frozen=True)
class Views:
    """What a kernel is given, and how it reads it."""

    args: list[Value]
    types: list[Any]
    starts: dict[int, int]  # by operand: the step of its array that is the first
    wholes: dict[int, int]  # and how many it has, where those of a lane lie together
    tails: dict[int, Tail]  # by operand: where its last steps are, in one more each
    counters: frozenset[int]  # operands that are the numbers of the steps

    def __bool__(self) -> bool:
        return bool(self.starts or self.tails or self.counters)

    @property
    def counts_alone(self) -> bool:
        """Whether all that a kernel need not read is numbers of steps."""
        return bool(self.counters) and not (self.starts or self.tails)

    @property
    def notes(self) -> list[str]:
        found = []
        if count := len({*self.starts, *self.tails}):
            what = "1 x" if count == 1 else f"{count} xs"
            found.append(f"read {what} in place, as parts of other arrays")
        if count := len(self.counters):
            what = "1 x that counts" if count == 1 else f"{count} xs that count"
            found.append(f"took {what} steps from the loop itself")
        return found


def views(
    plan: Plan, args: Sequence[Value], types: Sequence[Any], two_arrays: bool
) -> Views:
    """Which xs of a planned loop are slices and counts, or two arrays in a row."""
    loop = plan.loop
    found, kinds = list(args), list(types)
    starts: dict[int, int] = {}
    tails: dict[int, Tail] = {}
    wholes: dict[int, int] = {}
    counters: set[int] = set()
    rest: list[Value] = []
    for i in range(loop.num_consts + loop.num_carry, len(args)):
        joined = i in plan.joined or i - 1 in plan.joined
        if plan.layouts[i][0] != 0:  # the steps of each lane stand side by side
            whole, start = source_of(args[i])
            kind = program.type_of(whole)
            here = whole is not args[i] and two_arrays and not joined
            if here and _is_most(kind, loop.length):
                found[i], kinds[i], starts[i] = whole, kind, start
                wholes[i] = kind.shape[0]
            continue
        if i - 1 in plan.joined:  # it stands where its real part does
            continue
        value = args[i]
        if i in plan.joined:
            value = program.whole_of(*args[i : i + 2])
        if _counts(value, loop.length):  # the kernel does not read it
            found[i], kinds[i] = program.one_zero()
            counters.add(i)
            continue
        if two_arrays and (pieces := _pieces(value)) is not None:
            value, last = pieces
            after = program.array_type_of(value).shape[0]
            last, start = source_of(last)
            tails[i] = Tail(after, start)
            rest.append(last)
        found[i], start = source_of(value)
        if found[i] is not value:
            starts[i] = start
        if i in starts or i in tails or i in plan.joined:
            kinds[i] = program.array_type_of(found[i])
    kinds += map(program.array_type_of, rest)
    return Views([*found, *rest], kinds, starts, wholes, tails, frozenset(counters))


def apart(plan: Plan, args: Sequence[Value]) -> set[int]:
    """Operands that could share a buffer with the next one, but are not made of one."""
    operands = (i for i in plan.joined if i + 1 < len(args))
    return {i for i in operands if program.whole_of(*args[i : i + 2]) is None}


def source_of(value: Value) -> tuple[Value, int]:
    """The array that a value is a slice of along time, and where it begins there."""
    first = 0
    while (start := _start(value)) is not None:
        value = program.maker_of(value).operands[0]
        first += start
    return value, first


def _is_most(kind: Any, length: int) -> bool:
    """Whether a loop reads most steps of an array, which may have to be moved."""
    return kind is not None and kind.shape[0] <= MOST * length


def _start(value: Value) -> int | None:
    """Where a slice begins, if it is one along time alone."""
    op = program.maker_of(value)
    if op is None or op.name != "stablehlo.slice":
        return None
    whole = program.array_type_of(op.operands[0])
    starts, limits, strides = program.bounds_of(op)
    if whole is None or set(strides) != {1} or any(starts[1:]):
        return None
    return starts[0] if tuple(limits[1:]) == whole.shape[1:] else None


def _pieces(value: Value) -> tuple[Value, Value] | None:
    """The two arrays that a value is, one after the other along time."""
    op = program.maker_of(value)
    if op is None or op.name != "stablehlo.concatenate" or len(op.operands) != 2:
        return None
    first, last = op.operands
    plain = (
        program.array_type_of(first) is not None
        and program.array_type_of(last) is not None
    )
    return (first, last) if plain and program.dimension_of(op) == 0 else None


def _counts(value: Value, length: int) -> bool:
    """Whether a value is 0, 1, 2 and so on."""
    op, kind = program.maker_of(value), program.type_of(value)
    if op is None or op.name != "stablehlo.iota" or kind is None:
        return False
    exact = EXACT.get(np.dtype(kind.dtype).name, 0)
    return len(kind.shape) == 1 and length <= exact
