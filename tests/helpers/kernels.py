"""A loop's kernel, called directly, on buffers beside forbidden pages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import jax
import numpy as np
from engines import values
from guarded import call_directly
from jax.extend.core import jaxpr_as_fun

from onescan import compat
from onescan.loop import Loop
from onescan.passes.inline import flatten, inline
from onescan.plan.plan import Plan
from onescan.targets.cpu import current
from onescan.targets.cpu.kernel import Kernel


def loop_in(f: Callable[..., Any], *args: Any) -> Loop:
    """The first loop in what a function does, as the planner sees it."""
    jaxpr = flatten(jax.make_jaxpr(f)(*args)).jaxpr
    eqn = next(eqn for eqn in jaxpr.eqns if eqn.primitive.name == "scan")
    return inline(compat.loop_of(eqn.params))


def plan_of(loop: Loop) -> Plan:
    return current().plan(loop)


def kernel_of(plan: Plan) -> Kernel:
    return current().build(plan)


def inputs_of(loop: Loop, seed: int = 0) -> list[np.ndarray]:
    """Constants, first carry and xs; integers are of any size."""
    stacked = [(loop.length, *aval.shape) for aval in loop.x_avals]
    whole = [aval.shape for aval in (*loop.const_avals, *loop.carry_avals)]
    kinds = [np.dtype(aval.dtype).name for aval in loop.body.in_avals]
    return [
        values(kind, shape, seed + k, edges=kind.startswith(("int", "uint")))
        for k, (kind, shape) in enumerate(zip(kinds, [*whole, *stacked], strict=True))
    ]


def stock(loop: Loop) -> Callable[..., list[Any]]:
    """A loop under stock JAX, as a function of its inputs."""
    middle = loop.num_consts + loop.num_carry

    def run(*args: Any) -> list[Any]:
        def body(carry: Any, x: Any) -> Any:
            outs = jaxpr_as_fun(loop.body)(*args[: loop.num_consts], *carry, *x)
            return tuple(outs[: loop.num_carry]), tuple(outs[loop.num_carry :])

        init, xs = args[loop.num_consts : middle], args[middle:]
        carry, ys = jax.lax.scan(body, init, xs, loop.length, loop.reverse)
        return [*carry, *ys]

    return jax.jit(run, compiler_options={"xla_backend_optimization_level": 0})


def by_xla(loop: Loop, inputs: list[np.ndarray]) -> list[np.ndarray]:
    """The results of a loop under stock JAX."""
    return [np.asarray(x) for x in stock(loop)(*inputs)]


def by_kernel(
    plan: Plan,
    inputs: list[np.ndarray],
    side: Literal["end", "start"] = "end",
    one_by_one: bool = False,
) -> list[np.ndarray]:
    """The results of a loop's kernel, on buffers that end or begin at forbidden pages.

    `one_by_one` calls it for each tile, last first.
    """
    loop, kernel = plan.loop, kernel_of(plan)
    shapes = [aval.shape for aval in loop.carry_avals]
    shapes += [(loop.length, *aval.shape) for aval in loop.y_avals]
    kinds = [np.dtype(aval.dtype) for aval in loop.body.out_avals]
    before, after = plan.layouts[: len(inputs)], plan.layouts[len(inputs) :]
    results = call_directly(
        kernel,
        [x.transpose(order) for x, order in zip(inputs, before, strict=True)],
        [
            (tuple(shape[i] for i in order), kind)
            for shape, order, kind in zip(shapes, after, kinds, strict=True)
        ],
        side,
        # as the code may count on
        alignment=max(k.itemsize for k in [*kinds, *(x.dtype for x in inputs)]),
        ranges=[(t, t + 1) for t in reversed(range(kernel.tiles))]
        if one_by_one
        else None,
    )
    return [
        x.transpose(np.argsort(order)) for x, order in zip(results, after, strict=True)
    ]
