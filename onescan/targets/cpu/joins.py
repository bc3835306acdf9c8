"""Buffers of complex numbers: how a program gives them to a kernel that knows parts.

The program around a kernel has the parts (`passes/pairs.py`).  Where both are taken
from one array, that array is given; where XLA's compiler sees a number put together of
the parts of a result, it takes the result.  So what is done here costs nothing, unless
something else happens to the parts in between.
"""

from __future__ import annotations

from typing import Any

from onescan import program
from onescan.plan.joined import whole_type
from onescan.plan.plan import Plan
from onescan.targets.cpu.transposes import Rule


def joining(rule: Rule, plan: Plan) -> Rule:
    """A rule for a call whose kernel takes and gives complex numbers."""
    if not plan.joined:
        return rule
    operands, results = plan.buffers
    count = len(plan.loop.body.in_avals)

    def lower(ctx: Any, *values: Any) -> Any:
        tails = range(count, len(values))
        given = [_whole(values, i) if i in plan.joined else values[i] for i in operands]
        types = [whole_type(plan, i, ctx.avals_in[i]) for i in operands]
        there = ctx.replace(
            avals_in=[*types, *(ctx.avals_in[i] for i in tails)],
            avals_out=[whole_type(plan, i, ctx.avals_out[i - count]) for i in results],
        )
        outs = rule(there, *given, *(values[i] for i in tails))
        return [
            part
            for i, out in zip(results, outs, strict=True)
            for part in (program.parts_of(out) if i in plan.joined else (out,))
        ]

    return lower


def _whole(values: Any, i: int) -> Any:
    """The numbers whose real part is value i, unless it is those already."""
    if program.is_complex(values[i]):
        return values[i]
    return program.whole_of(*values[i : i + 2]) or program.joined(*values[i : i + 2])
