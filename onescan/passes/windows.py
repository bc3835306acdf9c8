"""windows: small convolutions and pools as sums over the places of their window.

In goes a loop; out comes one in which a convolution (a stencil, a causal filter, a
small layer) is a sum of shifted operands, each times a number or a matrix of the
window, and a pool a maximum or a sum of shifted ones.  Kernels have rules for all of
that.  Windows with many places, and convolutions with much work, stay what they are: a
library is better at them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from itertools import product
from math import prod
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Literal

from onescan.loop import Loop
from onescan.passes.inline import expand
from onescan.passes.split import Split, unchanged

#: places of a window, and multiply-adds of a convolution in one step
PLACES, MOST = 32, 300_000


def windows(loop: Loop) -> Split | None:
    """Write small windows out."""
    count = 0

    def rewritten(closed: ClosedJaxpr) -> ClosedJaxpr:
        nonlocal count
        jaxpr = closed.jaxpr
        env: dict[Any, Any] = {}
        eqns: list[JaxprEqn] = []
        read = lambda v: v if isinstance(v, Literal) else env.get(v, v)
        for eqn in jaxpr.eqns:
            inputs = [read(v) for v in eqn.invars]
            if function := _definition(eqn):
                env[eqn.outvars[0]], count = (
                    expand(function, inputs, eqn, eqns)[0],
                    count + 1,
                )
                continue
            params = {k: _inner(value, rewritten) for k, value in eqn.params.items()}
            eqns.append(eqn.replace(invars=inputs, params=params))
        outs = [read(v) for v in jaxpr.outvars]
        debug = jaxpr.debug_info
        return ClosedJaxpr(Jaxpr([], jaxpr.invars, outs, eqns, debug_info=debug), [])

    body = rewritten(loop.body)
    if not count:
        return None
    return Split(
        "windows", loop.replace(body=body), unchanged, lambda args, results: results
    )


def _inner(value: Any, rewritten: Callable[[ClosedJaxpr], ClosedJaxpr]) -> Any:
    """A parameter, with the bodies in it rewritten."""
    if isinstance(value, ClosedJaxpr) and not value.consts:
        return rewritten(value)
    if isinstance(value, tuple) and any(isinstance(v, ClosedJaxpr) for v in value):
        return tuple(_inner(v, rewritten) for v in value)
    return value


def is_small(eqn: Any) -> bool:
    """Whether an equation is a convolution or a pool that is written out."""
    return _definition(eqn) is not None


def _definition(eqn: Any) -> Callable[..., Any] | None:
    name = eqn.primitive.name
    if name == "conv_general_dilated":
        return _convolution(eqn)
    if name in POOLS:
        return _pool(eqn)
    return None


def _shifted(
    x: Any, places: Any, dilation: Any, strides: Any, sizes: Any
) -> list[tuple[tuple[int, ...], Any]]:
    """For each place of a window, the operand as its results see it there."""
    found = []
    for place in product(*map(range, places)):
        start = [k * d for k, d in zip(place, dilation, strict=True)]
        ends = zip(start, sizes, strides, strict=True)
        stop = [a + (n - 1) * s + 1 for a, n, s in ends]
        found.append((place, lax.slice(x, start, stop, strides)))
    return found


def _sizes(shape: Any, places: Any, dilation: Any, strides: Any) -> list[int]:
    """How many results there are along each dimension."""
    return [
        max(0, (n - (k - 1) * d - 1) // s + 1)
        for n, k, d, s in zip(shape, places, dilation, strides, strict=True)
    ]


def _padded(x: Any, value: Any, padding: Any, dilation: Any) -> Any:
    config = [(a, b, d - 1) for (a, b), d in zip(padding, dilation, strict=True)]
    return lax.pad(x, jnp.asarray(value, x.dtype), config)


def _convolution(eqn: Any) -> Callable[..., Any] | None:
    params = eqn.params
    lhs_spec, rhs_spec, out_spec = params["dimension_numbers"]
    weights = eqn.invars[1].aval.shape
    (out,) = eqn.outvars
    places = [weights[i] for i in rhs_spec[2:]]
    work = prod(out.aval.shape) * prod(places) * weights[rhs_spec[1]]
    kinds = {np.dtype(v.aval.dtype).name for v in (*eqn.invars, out)}
    small = prod(places) <= PLACES and work <= MOST and params["batch_group_count"] == 1
    if not small or len(kinds) > 1 or kinds.isdisjoint({"float32", "float64"}):
        return None
    groups, strides = params["feature_group_count"], params["window_strides"]
    lhs_dilation, rhs_dilation = params["lhs_dilation"], params["rhs_dilation"]

    def convolve(x: Any, w: Any) -> Any:
        x, w = lax.transpose(x, lhs_spec), lax.transpose(w, rhs_spec)
        x = _padded(x, 0, [(0, 0)] * 2 + list(params["padding"]), (1, 1, *lhs_dilation))
        sizes = _sizes(x.shape[2:], places, rhs_dilation, strides)
        batch, channels, each = x.shape[0], x.shape[1], w.shape[0] // groups
        x = x.reshape(batch * groups, channels // groups, *x.shape[2:])
        window, apart, moves = ((1, 1, *v) for v in (places, rhs_dilation, strides))
        seen = _shifted(x, window, apart, moves, (*x.shape[:2], *sizes))
        along = "xyzuvw"[: len(sizes)]
        terms = []
        for (_, _, *place), there in seen:
            here = w[(slice(None), slice(None), *place)]  # outputs, inputs of a group
            here = here.reshape(groups, each, channels // groups)
            there = there.reshape(batch, groups, channels // groups, *sizes)
            if channels == groups:
                terms.append(there * here.reshape(1, groups, each, *[1] * len(sizes)))
            else:
                terms.append(jnp.einsum(f"bgc{along},goc->bgo{along}", there, here))
        total = reduce(lax.add, terms).reshape(batch, groups * each, *sizes)
        return lax.transpose(total, tuple(np.argsort(out_spec).tolist()))

    return convolve


POOLS: dict[str, tuple[Callable[..., Any], float]] = {
    "reduce_window_sum": (lax.add, 0.0),
    "reduce_window_max": (lax.max, -np.inf),
    "reduce_window_min": (lax.min, np.inf),
}


def _pool(eqn: Any) -> Callable[..., Any] | None:
    params, (operand,) = eqn.params, eqn.invars
    combine, neutral = POOLS[eqn.primitive.name]
    places = params["window_dimensions"]
    if prod(places) > PLACES or operand.aval.dtype.kind != "f":
        return None
    strides, dilation = params["window_strides"], params["window_dilation"]

    def pool(x: Any) -> Any:
        x = _padded(x, neutral, params["padding"], params["base_dilation"])
        sizes = _sizes(x.shape, places, dilation, strides)
        shifted = _shifted(x, places, dilation, strides, sizes)
        return reduce(combine, [there for _, there in shifted])

    return pool
