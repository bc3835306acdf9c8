"""The ways a loop is called, each a function of the scan that runs it; and oracles.

What is right comes from `jax.lax.scan` and from the plain loop, each once per
process.  The plain loop runs operation by operation wherever that is cheap; its
batch is one problem after the other, with no `jax.vmap` at all.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
from cases import Case
from table import Problem

from onescan.api import reference

Scan = Callable[..., tuple[Any, Any]]


def plain(scan: Scan, case: Case) -> Any:
    f, init, xs, kwargs = case.problem()
    return scan(f, init, xs, **kwargs)


def jit(scan: Scan, case: Case) -> Any:
    f, init, xs, kwargs = case.problem()
    return jax.jit(lambda init, xs: scan(f, init, xs, **kwargs))(init, xs)


def vmap(scan: Scan, case: Case) -> Any:
    """Three problems at once: the arguments of three seeds, the function of one."""
    f, arguments, kwargs = _three_problems(case)
    init, xs = _stacked(arguments)
    return jax.jit(jax.vmap(lambda init, xs: scan(f, init, xs, **kwargs)))(init, xs)


def nested(scan: Scan, case: Case) -> Any:
    """The whole loop as the body of a loop of two steps."""
    f, init, xs, kwargs = case.problem()

    def outer(carry, _):
        return scan(f, carry, xs, **kwargs)

    return scan(outer, init, None, 2)


def grad(scan: Scan, case: Case) -> Any:
    """The gradient of a weighted sum of all float results, by all float arguments."""
    value, floats = _as_function_of_floats(scan, case.problem())

    def loss(floats):
        leaves = [leaf for leaf in jax.tree.leaves(value(floats)) if _is_float(leaf)]
        return sum(jnp.sum(_weights(leaf) * leaf) for leaf in leaves)

    return jax.jit(jax.grad(loss))(floats)


def jvp(scan: Scan, case: Case) -> Any:
    value, floats = _as_function_of_floats(scan, case.problem())

    def only_floats(floats):
        return [leaf for leaf in jax.tree.leaves(value(floats)) if _is_float(leaf)]

    tangents = [_weights(x) for x in floats]
    return jax.jvp(only_floats, (floats,), (tangents,))


TRANSFORMS = {t.__name__: t for t in (plain, jit, vmap, nested, grad, jvp)}
OF_DERIVATIVES = ("grad", "jvp")


@cache
def by_jax(transform: str, case: Case) -> Any:
    if transform == "jit":
        return by_jax("plain", case)
    return TRANSFORMS[transform](jax.lax.scan, case)


@cache
def by_reference(transform: str, case: Case) -> Any:
    if transform == "jit":
        return by_reference("plain", case)
    if transform == "vmap":
        f, arguments, kwargs = _three_problems(case)
        return _stacked([reference.scan(f, *a, **kwargs) for a in arguments])
    return TRANSFORMS[transform](reference.scan, case)


def _three_problems(case: Case) -> tuple[Any, list[Any], Any]:
    problems = [case.problem(seed) for seed in range(3)]
    return problems[0].f, [p[1:3] for p in problems], problems[0].kwargs


def _stacked(trees: list[Any]) -> Any:
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *trees)


def _as_function_of_floats(scan: Scan, problem: Problem) -> tuple[Any, list[Any]]:
    f, init, xs, kwargs = problem
    leaves, tree = jax.tree.flatten((init, xs))
    where = [i for i, leaf in enumerate(leaves) if _is_float(leaf)]

    def value(floats: list[Any]) -> Any:
        filled = list(leaves)
        for i, x in zip(where, floats, strict=True):
            filled[i] = x
        init, xs = tree.unflatten(filled)
        return scan(f, init, xs, **kwargs)

    return value, [jnp.asarray(leaves[i]) for i in where]


def _is_float(x: Any) -> bool:
    return bool(jnp.issubdtype(jax.typeof(x).dtype, jnp.floating))


def _weights(x: Any) -> Any:
    """Numbers of the type of x, all different, so that no two leaves mix up."""
    kind = jax.typeof(x)
    count = jnp.arange(1, 1 + kind.size, dtype=jnp.float32)
    return jnp.cos(count).reshape(kind.shape).astype(kind.dtype)
