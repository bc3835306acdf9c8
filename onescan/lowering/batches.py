"""Batches: what the program around a loop tells of an axis that `jax.vmap` added.

A loop that is marked as ours says how many axes it had before (`compat.added_axes`).
Those of libraries, which call JAX's own scan, say nothing; but where `jax.vmap` had its
batch in front of time, the program shows it: xs are moved before the loop, from
(lanes, steps, ...) to (steps, lanes, ...), or steps take their part of an array which
has all lanes in front, by a gather that only a batched index is.

Only time depends on it: the kernel says which layout it wants, and XLA provides it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from onescan import program
from onescan.loop import Loop
from onescan.lowering.views import source_of
from onescan.plan.batch_major import is_in_rows
from onescan.plan.plan import Plan

Value = Any  # of the program being lowered


def seen_axes(loop: Loop, args: Sequence[Value]) -> int:
    """1 where a batch stands in front of time around a loop, 0 where none is seen."""
    first = loop.num_consts + loop.num_carry
    xs = zip(args[first:], loop.x_avals, strict=True)
    lanes = {aval.shape[0] for aval in loop.carry_avals if aval.shape}
    along = [x for x, aval in xs if aval.shape and aval.shape[0] in lanes]
    if along:
        return int(all(map(_is_moved, along)))
    return int(any(_is_read_in_part(loop, k, lanes) for k in range(loop.num_consts)))


def rows_as_they_lie(plan: Plan, args: Sequence[Value]) -> Plan:
    """The plan, in which rows of xs have time in front where the program has.

    And rows of ys, where it has for any of the xs.
    """
    loop, layouts, jaxpr = plan.loop, list(plan.layouts), plan.loop.body.jaxpr
    first, count = loop.num_consts + loop.num_carry, len(args)
    xs = list(enumerate(jaxpr.invars))[first:]
    ys = list(enumerate(jaxpr.outvars[loop.num_carry :], count + loop.num_carry))
    changed = [
        i for i, v in xs if is_in_rows(plan, v) and not _is_moved(_value(plan, args, i))
    ]
    if changed:
        changed += [i for i, v in ys if is_in_rows(plan, v)]
    for i in changed:
        layouts[i] = tuple(range(len(layouts[i])))
    return replace(plan, layouts=tuple(layouts)) if changed else plan


def _value(plan: Plan, args: Sequence[Value], i: int) -> Value:
    """An argument, or the complex numbers that it and another one share a buffer of."""
    first = i - 1 if i - 1 in plan.joined else i
    if first not in plan.joined:
        return args[i]
    return program.whole_of(*args[first : first + 2])


def _is_moved(value: Value) -> bool:
    """Whether time was another axis of an array than the first, and is that here."""
    op = program.maker_of(source_of(value)[0])
    if op is None or op.name != "stablehlo.transpose":
        return False
    order = program.order_of(op)
    return order[0] != 0 and order[1:] == sorted(order[1:])


def _is_read_in_part(loop: Loop, k: int, lanes: set[int]) -> bool:
    """Whether each step gathers one place of a constant, for all lanes in front."""
    var: Any = loop.body.jaxpr.invars[k]
    if len(var.aval.shape) < 2 or var.aval.shape[0] not in lanes:
        return False
    return any(
        eqn.primitive.name == "gather"
        and eqn.invars[0] is var
        and eqn.params["slice_sizes"][:2] == (var.aval.shape[0], 1)
        and 0 in eqn.params["dimension_numbers"].offset_dims
        for eqn in loop.body.jaxpr.eqns
    )
