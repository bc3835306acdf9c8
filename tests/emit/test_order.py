"""Sorting in a body: any length, code that does not grow, GPUs, random order."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from engines import kernels_alone
from gpu_lowering import H200, launches_of
from jax import lax
from kernels import loop_in

import onescan
from onescan.passes.inline import inline
from onescan.targets.nvidia.target import Nvidia


@pytest.fixture(autouse=True)
def _kernels_alone():
    with kernels_alone():
        yield


def drawn(f: Callable[..., Any]) -> Any:
    """Three draws of f(key) in a loop that carries its key."""

    def step(key: Any, _: Any) -> Any:
        key, used = jax.random.split(key)
        return key, f(used)

    return lambda: onescan.scan(step, jax.random.key(0), None, length=3)[1]


def shuffled(key: Any) -> Any:
    return jax.random.permutation(key, jnp.arange(210).reshape(70, 3), axis=0)


RANDOM = {
    "permutation": lambda key: jax.random.permutation(key, 1000),
    "shuffled rows": shuffled,
    "independent": lambda key: jax.random.permutation(
        key, jnp.arange(140).reshape(70, 2), independent=True
    ),
    "without replacement": lambda key: jax.random.choice(key, 90, (7,), replace=False),
    "by weights": lambda key: jax.random.choice(key, 90, (7,), p=jnp.arange(90) / 4005),
    "weights, once each": lambda key: jax.random.choice(
        key, 90, (7,), replace=False, p=jnp.arange(90) / 4005
    ),
    "categorical": lambda key: jax.random.categorical(key, jnp.sin(jnp.arange(90.0))),
}


@pytest.mark.parametrize("name", RANDOM)
def test_random_order_is_jax_s_own(name: str) -> None:
    run = drawn(RANDOM[name])
    with onescan.engine("native"):
        ours = jax.jit(run)()
    with onescan.engine("xla"):
        theirs = jax.jit(run)()
    np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("method", ["scan", "scan_unrolled", "sort", "compare_all"])
def test_searchsorted(method: str) -> None:
    rows, found = np.sort(np.random.default_rng(0).normal(size=(2, 80)))

    def step(c: Any, _: Any) -> Any:
        return c + 0.01, jnp.searchsorted(rows, c, method=method)

    run = lambda: onescan.scan(step, jnp.asarray(found), None, length=3)[1]
    with onescan.engine("native"):
        ours = jax.jit(run)()
    with onescan.engine("xla"):
        theirs = jax.jit(run)()
    np.testing.assert_array_equal(ours, theirs)


def sorts() -> Callable[..., Any]:
    step = lambda c, _: (jnp.sort(c) * -1, lax.top_k(c, 3))
    return lambda x: onescan.scan(step, x, None, length=2)


def test_code_does_not_grow_with_what_is_sorted() -> None:
    def instructions(n: int) -> int:
        step = lambda c, _: (jnp.sort(c) * -1, lax.top_k(c, 3))
        return len(str(onescan.explain(step, jnp.ones(n), length=2).stages()))

    assert instructions(8192) < 1.1 * instructions(1024)


@pytest.mark.parametrize(("lanes", "n"), [(1000, 20), (100, 200), (1, 2000)])
def test_a_gpu_sorts_too(lanes: int, n: int) -> None:
    spread = jax.ShapeDtypeStruct((lanes, n), np.float32)
    with onescan.engine("native"):
        assert len(launches_of(jax.vmap(sorts()), spread)) == 1


def test_one_thread_of_a_block_exchanges_rows() -> None:
    """All of them would, each at its own time, where there is one row to sort."""
    step = lambda c, x: (jnp.sort(c + x), None)
    loop = loop_in(lambda *args: lax.scan(step, *args), jnp.ones(40), jnp.ones(9))
    target = Nvidia(H200)
    _, kernel = target.fitting(target.plan(inline(loop, "cuda")))
    guards = re.findall(r"icmp ult i64 %\S+, 1$", str(kernel.module), re.MULTILINE)
    plain = lambda c, x: (jnp.sin(c + x) * c.sum(), None)
    loop = loop_in(lambda *args: lax.scan(plain, *args), jnp.ones(40), jnp.ones(9))
    _, kernel = target.fitting(target.plan(inline(loop, "cuda")))
    others = re.findall(r"icmp ult i64 %\S+, 1$", str(kernel.module), re.MULTILINE)
    assert len(guards) > len(others)
