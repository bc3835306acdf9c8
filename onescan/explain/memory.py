"""How much memory a loop needs, forwards and for a gradient, from its types alone.

A gradient needs values of every step (residuals), which JAX stacks as the loop runs.
Tracing `jax.vjp` of the loop tells which, without computing anything.  Checkpoints
trade them for time: keep the carry now and then, and run the steps in between again.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.core import Literal, jaxpr_as_fun

from onescan import compat
from onescan.long.schedule import (
    Schedule,
    logarithmic,
    peak,
    recomputed,
    square_root,
)
from onescan.loop import Loop, nbytes


@dataclass(frozen=True)
class Choice:
    """What a gradient needs under one choice of checkpoints."""

    checkpoint: str | None  # as `onescan.scan` takes it
    meaning: str
    kept: int  # bytes beside arguments and results
    again: float  # steps that are run again, for each step of the loop


@dataclass(frozen=True)
class Memory:
    """Bytes of a loop."""

    constants: int  # what all steps read
    carry: int
    xs: int
    ys: int
    residuals: int  # of each step, for a gradient
    why_no_gradient: str | None
    choices: tuple[Choice, ...]

    @property
    def forward(self) -> int:
        """Arguments and results."""
        return self.constants + 2 * self.carry + self.xs + self.ys


SHORT = "the loop is too short for segments: keep what every step leaves"
#: of a loop in one piece, and of one in segments
MEANINGS = (
    {"sqrt": SHORT, "log": SHORT},
    {
        "sqrt": "keep the carry now and then, and run the steps between again",
        "log": "segments inside segments: keep few carries, run steps several times",
    },
)


def memory_of(loop: Loop) -> Memory:
    """The memory that a loop needs."""
    length = loop.length
    carry = _bytes(loop.carry_avals)
    residuals, trouble = _residuals(loop)
    choices = () if trouble else tuple(_choices(length, carry, residuals))
    return Memory(
        constants=_bytes(loop.const_avals),
        carry=carry,
        xs=_bytes(loop.x_avals, length),
        ys=_bytes(loop.y_avals, length),
        residuals=residuals // max(length, 1),
        why_no_gradient=trouble,
        choices=choices,
    )


def _choices(length: int, carry: int, residuals: int) -> list[Choice]:
    """As JAX does it, and by the schedules that `onescan.scan(checkpoint=...)` has."""
    step = ceil(residuals / max(length, 1))

    def choice(name: str, schedule: Schedule) -> Choice:
        return Choice(
            name,
            MEANINGS[len(schedule[0].sizes) > 1][name],
            peak(schedule, carry, step),
            recomputed(schedule) / max(length, 1),
        )

    return [
        Choice(None, "keep what every step leaves, as JAX does", residuals, 0.0),
        choice("sqrt", square_root(length)),
        choice("log", logarithmic(length)),
    ]


def _residuals(loop: Loop) -> tuple[int, str | None]:
    """Bytes that a gradient keeps of all steps, or why there is none."""
    if loop.differentiated:
        return 0, "this loop is itself a part of one"
    types = [
        *loop.const_avals,
        *loop.carry_avals,
        *(compat.stacked(aval, loop.length) for aval in loop.x_avals),
    ]
    structs = [jax.ShapeDtypeStruct(t.shape, t.dtype) for t in types]
    smooth = [i for i, struct in enumerate(structs) if _is_smooth(struct)]
    if not smooth:
        return 0, "nothing that goes into this loop has a derivative"

    def run(*args: Any) -> Any:
        consts, rest = args[: loop.num_consts], args[loop.num_consts :]
        init, xs = list(rest[: loop.num_carry]), list(rest[loop.num_carry :])

        def body(carry: Any, x: Any) -> Any:
            outs = jaxpr_as_fun(loop.body)(*consts, *carry, *x)
            return list(outs[: loop.num_carry]), list(outs[loop.num_carry :])

        outs = jax.lax.scan(body, init, xs, loop.length, loop.reverse)
        return [y for y in jax.tree.leaves(outs) if _is_smooth(y)]

    def backwards(*args: Any) -> list[Any]:
        def of(*values: Any) -> Any:
            whole = list(args)
            for i, value in zip(smooth, values, strict=True):
                whole[i] = value
            return run(*whole)

        outs, pull = jax.vjp(of, *(args[i] for i in smooth))
        pull(jax.tree.map(jnp.ones_like, outs))  # which not every body can
        return jax.tree.leaves(pull)

    try:
        jaxpr = jax.make_jaxpr(backwards)(*structs).jaxpr
    except Exception as error:  # whatever a body may do that has no gradient
        return 0, str(error).split("\n")[0].rstrip(".")
    made = {v for v in jaxpr.outvars if not isinstance(v, Literal)}
    return _held(made - {*jaxpr.invars, *jaxpr.constvars}), None


def _is_smooth(value: Any) -> bool:
    return jnp.issubdtype(value.dtype, jnp.inexact)


def _held(values: set[Any]) -> int:
    return _bytes([v.aval for v in values])


def _bytes(avals: list[Any], times: int = 1) -> int:
    """As they lie in memory: a key, say, has a type of its own."""
    return nbytes([compat.physical(aval) for aval in avals], times)
