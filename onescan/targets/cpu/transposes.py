"""Buffers that a kernel wants in another order: how the program turns them.

An order could be asked for as a layout of the custom call.  But XLA's CPU compiler
gives every other operation the default layout and copies in between, even where a
transposition would undo the copy.  Transpositions that undo each other, on the other
hand, it finds; and those of `jax.vmap` around a loop are of that kind.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from onescan import compat, program
from onescan.loop import Aval

Rule = Callable[..., Sequence[Any]]
#: by position: a value's type as the program has it, and the kernel's dimensions,
#: outermost first, as positions among its own
Orders = Mapping[int, tuple[Any, tuple[int, ...]]]


def transposing(rule: Rule, operands: Orders, results: Orders) -> Rule:
    """A rule for a call whose kernel has these operands and results transposed."""

    def lower(ctx: Any, *values: Any) -> Sequence[Any]:
        types_in, types_out = list(ctx.avals_in), list(ctx.avals_out)
        given = list(values)
        for i, (aval, order) in operands.items():
            given[i] = program.transposed(values[i], order)
            types_in[i] = _turned(aval, order)
        for i, (aval, order) in results.items():
            types_out[i] = _turned(aval, order)
        outs = list(rule(ctx.replace(avals_in=types_in, avals_out=types_out), *given))
        for i, (_, order) in results.items():
            outs[i] = program.transposed(outs[i], np.argsort(order).tolist())
        return outs

    return lower if operands or results else rule


def _turned(aval: Aval, order: Sequence[int]) -> Any:
    return compat.array_type([aval.shape[i] for i in order], aval.dtype)
