"""What the tests of the passes share: loops as jaxprs, printed and run."""

from __future__ import annotations

import re
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend.core import Literal
from jax.extend.core.primitives import scan_p

import onescan
from onescan import compat
from onescan.loop import Loop
from onescan.passes.inline import flatten, inline
from onescan.passes.split import Pass, Split, improved, run
from onescan.passes.surround import loop_p, results_of

#: xs of five steps, and weights for them
X = jnp.linspace(-1.0, 1.0, 5 * 2 * 16).reshape(5, 2, 16)
W = jnp.linspace(-0.2, 0.2, 16 * 256).reshape(16, 256)


def loop_of(f: Any, init: Any, xs: Any, *, raw: bool = False, **options: Any):
    """A loop as the passes see it, and its arguments.

    `raw` binds the primitive with the body as written, where `lax.scan` would
    already drop carries and ys that only pass through.
    """
    if raw:
        return _raw(f, init, xs, **options)
    call = partial(lax.scan, f, **options)
    closed = jax.make_jaxpr(call)(init, xs)
    eqns = closed.jaxpr.eqns
    (scan,) = [eqn for eqn in eqns if eqn.primitive is scan_p]
    env = dict(zip(closed.jaxpr.constvars, closed.consts, strict=True))
    leaves = jax.tree.leaves((init, xs))
    env.update(zip(closed.jaxpr.invars, leaves, strict=True))
    for eqn in eqns[: eqns.index(scan)]:
        values = compat.bind(eqn, [_read(env, v) for v in eqn.invars])
        env.update(zip(eqn.outvars, values, strict=True))
    args = [_data(_read(env, v)) for v in scan.invars]
    return inline(compat.loop_of(scan.params)), args


def _raw(f: Any, init: Any, xs: Any, reverse: bool = False):
    def flat(*args: Any) -> list[Any]:
        carry, x = jax.tree.unflatten(tree, args)
        return jax.tree.leaves(f(carry, x))

    first = jax.tree.map(lambda x: x[0], xs)
    leaves, tree = jax.tree.flatten((init, first))
    num_carry = len(jax.tree.leaves(init))
    length = jax.tree.leaves(xs)[0].shape[0]
    body = jax.make_jaxpr(flat)(*leaves)
    loop = Loop(body, 0, num_carry, length, reverse, 1, "step", "here.py:1")
    return inline(loop), jax.tree.leaves((init, xs))


def _read(env: dict[Any, Any], v: Any) -> Any:
    return v.val if isinstance(v, Literal) else env[v]


def _data(value: Any) -> Any:
    value = jnp.asarray(value)
    is_key = jnp.issubdtype(value.dtype, jax.dtypes.prng_key)
    return jax.random.key_data(value) if is_key else value


def splits_of(loop: Loop, *passes: Pass) -> list[Split]:
    return improved(loop, passes)


def core_of(splits: list[Split]) -> Loop:
    return splits[-1].loop


def notes_of(split: Split) -> list[str]:
    """What a pass says it did, with every line number as 0."""
    return [re.sub(r"(\.py):\d+", r"\1:0", note) for note in split.notes]


def shown(closed: Any) -> list[str]:
    """A jaxpr, one line each, alike in every JAX version."""
    names: dict[Any, str] = {}

    def name(v: Any) -> str:
        if isinstance(v, Literal):
            return str(v.val)
        return names.setdefault(v, chr(ord("a") + len(names)))

    def typed(v: Any) -> str:
        shape = ",".join(map(str, v.aval.shape))
        return f"{name(v)}:{v.aval.dtype}[{shape}]"

    jaxpr = closed.jaxpr
    lines = ["in  " + " ".join(map(typed, jaxpr.invars))]
    for eqn in jaxpr.eqns:
        operands = " ".join(map(name, eqn.invars))
        results = " ".join(map(typed, eqn.outvars))
        lines.append(f"{results} = {eqn.primitive.name} {operands}")
    return [*lines, "out " + " ".join(map(name, jaxpr.outvars))]


def outside(splits: list[Split], args: list[Any]) -> list[str]:
    """What a program does around the core of a loop, which is one line of it."""
    results = tuple(results_of(core_of(splits)))
    core = partial(loop_p.bind, lower=None, results=results)
    whole = jax.make_jaxpr(lambda *args: run(splits, core, list(args)))(*args)
    return shown(flatten(whole))


def stock_run(loop: Loop, *args: Any) -> list[Any]:
    return scan_p.bind(*args, **compat.scan_params(loop))


def assert_same(
    loop: Loop, splits: list[Split], args: list[Any], tolerance: float = 1e-5
) -> None:
    """The loop, and what the passes made of it, give the same types and values."""
    core = partial(stock_run, core_of(splits))
    ours = jax.jit(lambda *args: run(splits, core, list(args)))(*args)
    stock = stock_run(loop, *args)
    assert len(ours) == len(stock)
    for a, b in zip(ours, stock, strict=True):
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        scale = max(1.0, np.abs(np.asarray(b, np.float64)).max(initial=0))
        close = np.allclose(
            np.asarray(a, np.float64),
            np.asarray(b, np.float64),
            rtol=0,
            atol=tolerance * scale,
        )
        assert close, (a, b)


def by_both(program: Any, *args: Any, tolerance: float = 2e-6) -> tuple[str, list[str]]:
    """A program by our scan, which must agree with JAX's: its text, and the notes."""
    jax.clear_caches()
    onescan.clear_report()
    ours = jax.jit(partial(program, onescan.scan)).lower(*args).compile()
    rows = onescan.report().rows
    assert {row.engine for row in rows} == {"native"}
    stock = jax.jit(partial(program, lax.scan))(*args)
    pairs = zip(jax.tree.leaves(ours(*args)), jax.tree.leaves(stock), strict=True)
    for got, expected in pairs:
        assert got.dtype == expected.dtype
        np.testing.assert_allclose(got, expected, rtol=tolerance, atol=tolerance)
    return ours.as_text(), [note for row in rows for note in row.notes]
