"""spread: constants of fewer dimensions than the state are spread before the loop.

In goes a loop such as ``h = a * h + x`` whose state has a batch and channels, and whose
``a`` has channels only.  The two axes of the state do not walk together then: one of
them is looped over for pieces of the other, and the memory of xs and ys is read and
written with gaps.  With ``a`` spread over the batch, once, they are one long axis, and
a step reads and writes row after row.

Done where constants are all that keeps the axes apart, for loops with xs or ys, and as
long as what is spread stays close to the processor.
"""

from __future__ import annotations

from math import prod
from typing import Any

import jax.numpy as jnp
from jax.core import ShapedArray
from jax.extend.core import JaxprEqn, Var

from onescan.loop import Loop, nbytes
from onescan.passes.overtime import evaluate, kinds_of
from onescan.passes.split import Parts, Split, Values, parts_of, rebuilt, variables
from onescan.passes.worth import elements
from onescan.plan.lanes import lane_axes
from onescan.plan.merged import merged
from onescan.primitives import record_of

#: bytes of all that is spread
MOST = 1 << 16

Wanted = dict[tuple[Var, tuple[int, ...]], Var]


def spread(loop: Loop) -> Split | None:
    """Spread constants that keep axes apart."""
    parts = parts_of(loop)
    if not (parts.xs or parts.ys):
        return None
    wanted = _wanted(parts)
    if not wanted or nbytes([v.aval for v in wanted.values()]) > MOST:
        return None
    consts = (*parts.consts, *wanted.values())
    eqns = tuple(_given(eqn, wanted) for eqn in parts.eqns)
    wide = rebuilt(loop, parts.replace(consts=consts, eqns=eqns))
    if _longest(wide) <= _longest(loop):
        return None

    def before(args: Values) -> Values:
        consts, carry, xs = parts.split(args)
        fixed = dict(zip(parts.consts, consts, strict=True))
        small = evaluate(parts.eqns, fixed, [v for v, _ in wanted])
        shapes = (shape for _, shape in wanted)
        large = map(jnp.broadcast_to, small, shapes)
        return [*consts, *large, *carry, *xs]

    what = "1 constant" if len(wanted) == 1 else f"{len(wanted)} constants"
    return Split(
        name="spread",
        loop=wide,
        before=before,
        after=lambda args, results: results,
        notes=(f"spread {what} over the state, so that steps run along one long axis",),
    )


def _given(eqn: JaxprEqn, wanted: Wanted) -> JaxprEqn:
    """An equation, with constants as they are wanted."""
    if not _is_elementwise(eqn):
        return eqn
    shape = _shape(eqn)
    read = lambda v: wanted.get((v, shape), v) if isinstance(v, Var) else v
    return eqn.replace(invars=list(map(read, eqn.invars)))


def _wanted(parts: Parts) -> Wanted:
    """By constant and shape, what it becomes."""
    kinds = kinds_of(parts)
    made = {v: eqn for eqn in parts.eqns for v in eqn.outvars}
    found: Wanted = {}
    for eqn in parts.eqns:
        if not _is_elementwise(eqn) or kinds[eqn.outvars[0]] == "fixed":
            continue
        shape = _shape(eqn)
        for v in variables(eqn.invars):
            aval: Any = v.aval
            small = elements([v])
            if v in made and made[v].primitive.name == "broadcast_in_dim":
                small = elements(made[v].invars)
            if kinds[v] == "fixed" and 1 < small < prod(shape):
                found[v, shape] = Var(ShapedArray(shape, aval.dtype))
    return found


def _is_elementwise(eqn: JaxprEqn) -> bool:
    return record_of(eqn).kind == "elementwise" and len(eqn.outvars) == 1


def _shape(eqn: JaxprEqn) -> tuple[int, ...]:
    aval: Any = eqn.outvars[0].aval
    return aval.shape


def _longest(loop: Loop) -> int:
    return max((axis.size for axis in merged(lane_axes(loop), loop)), default=0)
