"""Products with real matrices that became complex, computed by their parts.

``u @ b`` of real inputs and complex weights (S5 and its kin drive their states so)
makes the inputs complex first, and half of the product, or three quarters of it where
the weights were real too, is with zeros.  Where the steps of a loop take the product by
its parts, each part is a product of real matrices; a part that is all zeros is none.

Right, because (a + 0i)(b + ci) is ab + aci; only where a number is infinite, the parts
here are what they should be, and not NaN.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from onescan import program
from onescan.plan.plan import Plan

Value = Any  # of the program being lowered
#: the real and the imaginary part; None where it is all zeros
Parts = tuple[Value, Value | None]


def by_parts(plan: Plan, args: Sequence[Value]) -> tuple[list[Value], frozenset[int]]:
    """The arguments, such products as two, and those that are only zeros."""
    loop, found = plan.loop, list(args)
    zeros: set[int] = set()
    for i in range(loop.num_consts + loop.num_carry, len(args) - 1):
        whole = program.whole_of(*args[i : i + 2]) if i in plan.joined else None
        parts = None if whole is None else _product(whole)
        if parts is not None:
            found[i], other = parts
            found[i + 1] = found[i] if other is None else other
            zeros.update([i + 1] if other is None else [])
    return found, frozenset(zeros)


def _product(value: Value) -> Parts | None:
    """The parts of a product, if one of its operands is real."""
    op = program.maker_of(value)
    if op is None or op.name != "stablehlo.dot_general":
        return None
    left, right = map(_real, op.operands)
    if left is None and right is None:
        return None
    product = lambda x, y: program.product_like(op, x, y)
    if left is not None and right is not None:
        return product(left, right), None
    if left is not None:
        re, im = program.parts_of(op.operands[1])
        return product(left, re), product(left, im)
    re, im = program.parts_of(op.operands[0])
    return product(re, right), product(im, right)


def _real(value: Value) -> Value | None:
    """The real numbers that complex ones were made of, without a second part."""
    op = program.maker_of(value)
    if op is None or op.name not in ("stablehlo.complex", "stablehlo.convert"):
        return None
    first, *others = op.operands
    if others:
        return first if program.is_zero(others[0]) else None
    before, after = map(program.array_type_of, (first, value))
    if before is None:
        return None
    if before == after:
        return _real(first)
    same = before.dtype == np.zeros(0, after.dtype).real.dtype
    return first if same else None
