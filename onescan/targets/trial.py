"""A loop tried on the device at hand: its kernel and XLA's loop, in turns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import prod
from typing import Any

import numpy as np
from jax import lax

from onescan import compat
from onescan.loop import Loop, nbytes
from onescan.passes.surround import arguments, bound, stock
from onescan.plan.joined import whole_type
from onescan.plan.plan import Plan
from onescan.primitives import record_of
from onescan.targets.base import Placed, Target
from onescan.tune.measure import Trial, measured
from onescan.tune.speed import Speed

#: seconds that a trial's loop takes the slower engine by prediction, and bytes it moves
SECONDS, BYTES = 0.01, 64 << 20
#: the same of the faster engine up to which the whole loop is tried, which is compiled
#: already, if compiling a copy does not take longer
WHOLE_SECONDS, WHOLE_BYTES = 0.3, 256 << 20
#: steps of a copy in which what a kernel does once, before the first, weighs little,
#: and seconds that they may take
LASTING, LASTING_SECONDS = 32, 0.025


def tried(
    target: Target, plan: Plan, kernel: Any, expected: Speed, placed: Placed | None
) -> Speed:
    """Both engines on some steps of a loop: by the kernel itself if that is short.

    Then what was compiled for the trial is what the program runs: the kernel as it is
    `placed` there, or else one that reads its operands elsewhere.
    """
    loop = plan.loop.in_steps()
    each, step = nbytes(loop.x_avals + loop.y_avals), expected.native or 1e-9
    slower, faster = max(step, expected.xla or 0.0), min(step, expected.xla or step)
    some = max(int(SECONDS / slower) + 1, min(LASTING, int(LASTING_SECONDS / faster)))
    some = max(2, min(loop.length, some, BYTES // max(each, 1)))
    theirs = (loop.plain or loop).in_steps().replace(length=some)
    scales = _weights(loop)
    xla = Trial(bound(theirs, stock(theirs)), arguments(theirs), theirs.length, scales)
    short = loop.length * faster <= max(WHOLE_SECONDS, target.making(kernel))
    whole = loop is plan.loop and loop.length * each <= WHOLE_BYTES and short
    ours = loop if whole else loop.replace(length=some)
    if ours is not plan.loop:
        plan, kernel = target.verified(*target.fitting(target.plan(ours)))
        placed = None
    if placed is None or plan.joined:
        placed = Placed(partial(target.lower, plan, kernel), _given(plan))
    lower = placed.lower
    call = bound(ours, lambda ctx, *args: lower()(ctx, *args))
    types = [compat.array_type(aval.shape, aval.dtype) for aval in placed.types]
    native = Trial(_of_whole_numbers(plan, call), types, ours.length, scales)
    turns = [] if plan.joined or loop.plain else plan.batch_major
    orders, count = {i: plan.layouts[i] for i in turns}, len(loop.body.in_avals)
    return measured(_turned(native, orders, count), _turned(xla, orders, count))


def _weights(loop: Loop) -> dict[int, float]:
    """Constants that steps multiply with, by place: with numbers up to this, the mean
    of what is summed up neither grows nor vanishes.
    """
    constants = loop.body.jaxpr.invars[: loop.num_consts]
    scales: dict[int, float] = {}
    for eqn in loop.body.jaxpr.eqns:
        if record_of(eqn).kind != "product":
            continue
        contracted, _ = eqn.params["dimension_numbers"]
        for var, dims in zip(eqn.invars, contracted, strict=True):
            aval: Any = var.aval
            for place in (i for i, v in enumerate(constants) if v is var):
                scales[place] = 2 / max(1, prod(aval.shape[i] for i in dims))
    return scales


def _turned(trial: Trial, orders: Mapping[int, Sequence[int]], count: int) -> Trial:
    """The same from and to arrays whose dimensions are in these orders.

    Programs have them so; what XLA's loop needs in another order, it has to turn.
    Results are numbered from `count` on.
    """
    if not orders:
        return trial
    types = list(trial.types)
    for i, order in orders.items():
        if i < count:
            shape = [types[i].shape[axis] for axis in order]
            types[i] = compat.array_type(shape, types[i].dtype)

    def turned(*args: Any) -> list[Any]:
        back = {i: np.argsort(order) for i, order in orders.items()}
        given = [x.transpose(back[i]) if i in back else x for i, x in enumerate(args)]
        outs = trial.function(*given)
        return [
            y.transpose(orders[i]) if i in orders else y
            for i, y in enumerate(outs, start=count)
        ]

    return replace(trial, function=turned, types=types)


def _given(plan: Plan) -> list[Any]:
    """The types of what a kernel takes, complex numbers whole."""
    types = arguments(plan.loop)
    operands, _ = plan.buffers
    return [whole_type(plan, i, types[i]) for i in operands]


def _of_whole_numbers(plan: Plan, call: Callable[..., Sequence[Any]]) -> Any:
    """The same call, which takes and gives complex numbers whole."""
    if not plan.joined:
        return call
    operands, results = plan.buffers
    count = len(plan.loop.body.in_avals)

    def called(*args: Any) -> list[Any]:
        outs = call(
            *(
                part
                for i, x in zip(operands, args, strict=True)
                for part in ((x.real, x.imag) if i in plan.joined else (x,))
            )
        )
        return [
            lax.complex(*outs[i - count : i - count + 2])
            if i in plan.joined
            else outs[i - count]
            for i in results
        ]

    return called
