"""What rounding does to the results of a loop, measured.

The loop runs again with every input, and the result of every operation that
rounds, moved by about one unit in the last place, up or down as a hash of the
element's position decides (Monte Carlo arithmetic: D. S. Parker, 1997).  How far
the results move is how far two right programs for the loop may be apart, whatever
the loop does to an error: cancel it, keep it or amplify it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count
from math import prod
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend.core import Literal

from onescan import compat
from onescan.loop import Atom, Equation, Loop
from onescan.passes.inline import CALLS
from onescan.primitives import record_of

RUNS = 2

#: what rounds nothing, of the primitives that no kernel sees
_EXACT = frozenset(("imag", "real", "stop_gradient"))


def perturbed_runs(loop: Loop, inputs: Sequence[Any]) -> list[list[Any]]:
    """The results of the loop under stock JAX, rounded otherwise, `RUNS` times."""
    return [_run(loop, inputs, count(1 + (run << 20))) for run in range(RUNS)]


def _run(loop: Loop, inputs: Sequence[Any], salts: Iterator[int]) -> list[Any]:
    moved = [_moved(x, next(salts)) for x in inputs]
    after_carry = loop.num_consts + loop.num_carry
    consts, init = moved[: loop.num_consts], moved[loop.num_consts : after_carry]

    def body(carry: list[Any], x: list[Any]) -> tuple[list[Any], list[Any]]:
        outs = _evaluate(loop.body, [*consts, *carry, *x], salts)
        return outs[: loop.num_carry], outs[loop.num_carry :]

    xs = moved[after_carry:]
    carry, ys = lax.scan(body, init, xs, loop.length, loop.reverse)
    return [*carry, *ys]


def _evaluate(closed: Any, args: Sequence[Any], salts: Iterator[int]) -> list[Any]:
    """Evaluate a jaxpr, moving the result of everything that rounds."""
    jaxpr = getattr(closed, "jaxpr", closed)
    env = dict(zip(jaxpr.constvars, getattr(closed, "consts", ()), strict=True))
    env |= zip(jaxpr.invars, args, strict=True)

    def read(atom: Atom) -> Any:
        return atom.val if isinstance(atom, Literal) else env[atom]

    for eqn in jaxpr.eqns:
        values = [read(v) for v in eqn.invars]
        called = eqn.params.get(CALLS.get(eqn.primitive.name, ""))
        if called is not None:
            outs = _evaluate(called, values, salts)
        else:
            outs = compat.bind(eqn, values)
            if _rounds(eqn):
                outs = [_moved(out, next(salts)) for out in outs]
        env |= zip(eqn.outvars, outs, strict=True)
    return [read(v) for v in jaxpr.outvars]


def _rounds(eqn: Equation) -> bool:
    if eqn.primitive.name != "convert_element_type":
        return not record_of(eqn).exact and eqn.primitive.name not in _EXACT
    before, after = (v.aval.dtype for v in (eqn.invars[0], eqn.outvars[0]))
    return _is_float(before) and np.dtype(after).itemsize < before.itemsize


def _is_float(dtype: Any) -> bool:
    return jnp.issubdtype(dtype, jnp.inexact)


def _moved(x: Any, salt: int) -> Any:
    """Every element one unit in the last place up or down; a zero stays."""
    if not _is_float(x.dtype) or not np.size(x):
        return x
    index = lax.iota(jnp.uint32, prod(x.shape)).reshape(x.shape)
    mixed = (index + np.uint32(salt)) * np.uint32(0x9E3779B1)
    mixed = (mixed ^ (mixed >> 15)) * np.uint32(0x85EBCA6B)
    eps = float(jnp.finfo(x.dtype).eps)
    factor = jnp.where(mixed >> 31, 1 + eps, 1 - eps)
    return x * factor.astype(x.dtype)
