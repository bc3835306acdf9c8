"""All elementwise operations of a type in one loop, and what is wrong with them.

The loop stands alone, where every axis is a lane; with a reversal beside it, so that
no axis is; and vmapped along the last axis, so that only the new axis is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import old_xla
from engine_elementwise import ALL, OPS, Op
from engines import difference, is_subnormal, values

import onescan

Run = Callable[..., Any]  # (engine, function, *arguments) -> results

SHAPES = {"lanes": ((), (33,)), "mixed": ((21,),), "vmapped": ((3, 17),)}
EXACT = Op(jax.lax.rev, 1, ALL)
STEPS = 6


def loop(dtype: str, mixed: bool) -> Callable[..., Any]:
    """A loop that applies every operation of a type to its xs."""
    ops = {name: op for name, op in OPS.items() if dtype in op.dtypes}

    def body(carry: Any, x: tuple[Any, Any]) -> tuple[Any, Any]:
        ys = {name: op.f(*x[: op.arity]) for name, op in ops.items()}
        if mixed:
            ys["rev"] = jax.lax.rev(x[0], range(x[0].ndim))
        return carry + 1, ys

    return lambda *xs: onescan.scan(body, jnp.int32(0), xs)[1]


def inputs(dtype: str, shape: tuple[int, ...]) -> tuple[Any, ...]:
    return tuple(values(dtype, (STEPS, *shape), seed) for seed in (1, 2))


def exactly(op: Op, args: tuple[Any, ...], xla: np.ndarray) -> np.ndarray | None:
    """The right result of an inexact operation, by long doubles or by float64."""
    if not op.ulps:
        return None
    with np.errstate(all="ignore"):
        if op.exact is not None:
            wide = [np.asarray(x).astype(np.float64) for x in args]
            result = op.exact(*(x.astype(np.longdouble) for x in wide[: op.arity]))
        else:
            wide = [jnp.asarray(x).astype(np.float64) for x in args]
            result = np.asarray(op.f(*wide[: op.arity]))
        return np.asarray(result).astype(np.float64).astype(xla.dtype)


def trouble_with(dtype: str, kind: str, run: Run) -> list[str]:
    """The operations of a type whose results are wrong, and how."""
    trouble = []
    for shape in SHAPES[kind]:
        f = loop(dtype, mixed=kind != "lanes")
        args = inputs(dtype, shape)
        if kind == "vmapped":
            f = jax.vmap(f, in_axes=-1, out_axes=-1)
        native, xla = run("native", f, *args), run("xla", f, *args)
        skipped = np.any([is_subnormal(np.asarray(x)) for x in args], axis=0)
        for name, result in native.items():
            assert jax.typeof(result) == jax.typeof(xla[name]), name
            a, b, op = np.asarray(result), np.asarray(xla[name]), OPS.get(name, EXACT)
            judge = exactly(op, args, b)
            unjudged = old_xla.wrong_at(name, *args[: op.arity])
            if not op.subnormals:
                unjudged |= skipped
            a = np.where(unjudged, b, a)
            if message := difference(a, b, op.ulps, judge, op.floor):
                trouble.append(f"{name} {shape}: {message}")
    return trouble
