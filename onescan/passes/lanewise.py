"""lanewise: a while loop that asks its whole batch becomes one that asks each lane.

Equinox's loops, and Diffrax's with them, go on while `any(goes_on) & (step < most)`.
Their body computes all of the batch and keeps the old values of what is done: a flag
for each lane, `active`, is carried along and chooses.  Here each lane stops when its
own condition says so, as in JAX's own loops under `jax.vmap`:

    carry of the batch    stays; it is not changed any more once a lane is not active
    counters              one for all lanes becomes one for each

Right, if a lane that is not active changes nothing, which is read off the body here,
and if the condition and `active` agree, which is how Equinox makes them.  Afterwards
the counters are those of the lane that went on longest, for as long did the whole loop.
What a lane would only have changed in a round in which it is not active (that it was
active in the round before) is changed then, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import Jaxpr, Literal, Var

from onescan import compat
from onescan.loop import Loop
from onescan.passes.idle import OFF, Idle, idle_results
from onescan.passes.split import Split, Values
from onescan.passes.whiles import While, rebuilt
from onescan.primitives import ELEMENTWISE


class NoCounterError(Exception):
    """A number that all lanes share is used for more than counting."""


def lanewise(loop: Loop) -> Split | None:
    """One condition for each lane, where that is what a while loop means."""
    parts = While.of(loop)
    batch = _batch(parts)
    if batch is None or prod(batch) == 0:
        return None
    idle = _idle(parts, batch)
    if idle is None:
        return None
    shared = [not v.aval.shape for v in parts.carry]
    try:
        smaller = _with_own_conditions(loop, parts, batch, shared)
    except NoCounterError:
        return None

    def before(args: Values) -> Values:
        of_cond, of_body, carry = parts.split(args)
        own = [
            jnp.broadcast_to(x, batch) if s else x
            for x, s in zip(carry, shared, strict=True)
        ]
        return [*of_cond, *of_body, *own, jnp.zeros(batch, np.int32)]

    def after(args: Values, results: Values) -> Values:
        *carry, rounds = results
        longest = jnp.argmax(rounds.ravel())
        ended = rounds < rounds.ravel()[longest]
        for k, what in enumerate(idle):
            if shared[k]:
                carry[k] = carry[k].ravel()[longest]
            elif what == OFF:
                carry[k] = carry[k] & ~ended
        return carry

    note = "each lane goes on as long as its own condition says"
    return Split("lanewise", smaller, before, after, (note,))


def _batch(parts: While) -> tuple[int, ...] | None:
    """The shape of the batch that the condition asks, if it asks one."""
    asked: list[Any] = [eqn.invars[0] for eqn in parts.cond.eqns if _asks(eqn)]
    shapes = {v.aval.shape for v in asked}
    test: Any = parts.cond.outvars[0]
    return shapes.pop() if len(shapes) == 1 and not test.aval.shape else None


def _asks(eqn: Any) -> bool:
    return eqn.primitive.name == "unvmap_any"


def _idle(parts: While, batch: tuple[int, ...]) -> list[Idle] | None:
    """What becomes of each carry in a round in which a lane is not active.

    None where that is not known of all that have lanes, or nobody says who is active.
    """
    laned = [k for k, v in enumerate(parts.carry) if v.aval.shape]
    if any(parts.carry[k].aval.shape[: len(batch)] != batch for k in laned):
        return None
    is_flag = [v.aval.shape == batch and v.aval.dtype == np.bool_ for v in parts.carry]
    for flag in (k for k in laned if is_flag[k]):
        found = _evaluated(parts, flag)
        stays = all(found[k] == k or (found[k] == OFF and is_flag[k]) for k in laned)
        if stays and found[flag] == OFF:
            found[flag] = flag  # off it was, and off it is
            return found
    return None


def _evaluated(parts: While, flag: int) -> list[Idle]:
    """The results of a body where one of its carries is False."""
    carry: list[Idle] = list(range(len(parts.carry)))
    carry[flag] = OFF
    return idle_results(parts.body, [*[None] * parts.body_consts, *carry])


def _with_own_conditions(
    loop: Loop, parts: While, batch: tuple[int, ...], shared: Sequence[bool]
) -> Loop:
    """The loop with a counter of each kind, and one of rounds, for each lane."""
    consts, first = parts.body_consts, parts.cond_consts

    def widened(variables: Sequence[Any]) -> set[Any]:
        return {v for v, s in zip(variables, shared, strict=True) if s}

    def cond(*args: Any) -> Any:
        (test,) = _replayed(
            parts.cond, args[:-1], widened(parts.tested), batch, per_lane=True
        )
        return jnp.broadcast_to(test, batch)

    def body(*args: Any) -> list[Any]:
        *given, rounds = args
        after = _replayed(parts.body, given, widened(parts.carry), batch)
        own = [
            jnp.broadcast_to(x, batch) if s else x
            for x, s in zip(after, shared, strict=True)
        ]
        return [*own, rounds + np.int32(1)]

    struct = lambda v, wide=False: jax.ShapeDtypeStruct(
        batch if wide else v.aval.shape, v.aval.dtype
    )
    carry = [struct(v, s) for v, s in zip(parts.carry, shared, strict=True)]
    carry.append(jax.ShapeDtypeStruct(batch, np.int32))
    return rebuilt(
        loop,
        jax.make_jaxpr(cond)(*map(struct, parts.cond.invars[:first]), *carry),
        jax.make_jaxpr(body)(*map(struct, parts.body.invars[:consts]), *carry),
        first,
        consts,
        [True] * len(parts.carry),
    )


def _replayed(
    jaxpr: Jaxpr,
    args: Sequence[Any],
    wide: set[Any],
    batch: tuple[int, ...],
    per_lane: bool = False,
) -> list[Any]:
    """The results of a body in which some numbers are one for each lane.

    With `per_lane`, a question to the batch is one to each of its lanes.
    """
    env: dict[Any, Any] = dict(zip(jaxpr.invars, args, strict=True))
    read = lambda atom: atom.val if isinstance(atom, Literal) else env[atom]
    for eqn in jaxpr.eqns:
        values = [read(v) for v in eqn.invars]
        touched = any(isinstance(v, Var) and v in wide for v in eqn.invars)
        if per_lane and _asks(eqn) and not touched:
            outs = values
            wide = wide.union(eqn.outvars)
        elif touched:
            if not _counts(eqn):
                raise NoCounterError
            outs = compat.bind(eqn, [jnp.broadcast_to(x, batch) for x in values])
            wide = wide.union(eqn.outvars)
        else:
            outs = compat.bind(eqn, values)
        env.update(zip(eqn.outvars, outs, strict=True))
    return [read(v) for v in jaxpr.outvars]


def _counts(eqn: Any) -> bool:
    """Whether an equation makes numbers of numbers, as any lane can for itself."""
    numbers = all(not v.aval.shape for v in (*eqn.invars, *eqn.outvars))
    return numbers and eqn.primitive.name in ELEMENTWISE
