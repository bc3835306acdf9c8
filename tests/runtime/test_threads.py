"""Threads, forks and failures of the engine itself."""

from __future__ import annotations

import warnings
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from processes import output

import onescan
from onescan.errors import EngineWarning
from onescan.targets.cpu import machine, target
from onescan.targets.cpu.target import Cpu


def lorenz(state: Any, x: Any) -> Any:
    a, b, c = state
    state = (a + 0.01 * (b - a) * 10, b + 0.01 * (a * (28 - c) - b), c + 0.01 * a * b)
    return state, a.sum() + x


def network(h: Any, w: Any) -> Any:
    return jnp.tanh(h @ w), jnp.argmax(h, -1)


def loops() -> list[tuple[Any, tuple[Any, ...]]]:
    rng = np.random.default_rng(0)
    normal = lambda *shape: rng.standard_normal(shape).astype(np.float32)
    scan = lambda f: lambda c, xs: onescan.scan(f, c, xs)
    each = jax.vmap(scan(lambda c, x: (jnp.sin(c) + x, jnp.exp(-c * c))))
    many = lambda n: (normal(n), normal(n, 50))
    return [
        (scan(lorenz), (tuple(normal(3, 1000)), normal(200))),
        (scan(network), (normal(64, 33), normal(20, 33, 33))),
        (each, many(4096)),
        (each, many(1001)),
    ]


def run(f: Any, args: Any) -> list[np.ndarray]:
    with onescan.engine("native"):
        return [
            np.asarray(x) for x in jax.tree.leaves(jax.jit(lambda *a: f(*a))(*args))
        ]


def assert_equal(a: list[np.ndarray], b: list[np.ndarray]) -> None:
    for x, y in zip(a, b, strict=True):
        np.testing.assert_array_equal(x, y)


@pytest.mark.parametrize("k", range(4))
def test_the_same_bits_for_any_number_of_threads(k: int, monkeypatch: Any) -> None:
    f, args = loops()[k]
    build, host = Cpu.build, machine.host()
    results = []
    for threads, cores in ((False, 1), (False, 2), (True, 2), (True, 8), (True, 2)):
        monkeypatch.setattr(machine, "host", lambda n=cores: replace(host, cores=n))
        monkeypatch.setattr(
            Cpu, "build", lambda self, p, t=threads: replace(build(self, p), threads=t)
        )
        results.append(run(f, args))
    for other in results[1:]:
        assert_equal(results[0], other)


def test_eight_threads_of_python() -> None:
    """The same loop and different ones, compiled and called at once."""
    work = loops()
    expected = [run(f, args) for f, args in work]
    compiled = [jax.jit(lambda *a, f=f: f(*a)) for f, _ in work]

    def job(k: int) -> None:
        f, args = work[k % 4]
        if k % 3 == 0:
            assert_equal(run(f, args), expected[k % 4])
        with onescan.engine("native"):
            for _ in range(5):
                leaves = jax.tree.leaves(compiled[k % 4](*args))
                assert_equal([np.asarray(x) for x in leaves], expected[k % 4])

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(job, range(24)))


def test_a_kernel_after_a_fork() -> None:
    """A child has none of XLA's threads; the kernel it inherits still runs."""
    code = """
    import os, numpy as np, jax
    from jax import lax
    from kernels import by_kernel, inputs_of, loop_in, plan_of
    step = lambda c, x: (c * x + 1, c)
    args = np.ones(1000, np.float32), np.ones((9, 1000), np.float32)
    loop = loop_in(lambda c, xs: lax.scan(step, c, xs), *args)
    plan, inputs = plan_of(loop), inputs_of(loop)
    before = by_kernel(plan, inputs)
    child = os.fork()
    after = by_kernel(plan, inputs)
    same = all((a == b).all() for a, b in zip(before, after))
    if child == 0:
        os._exit(0 if same else 1)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), same)
    """
    assert output(code) == "0 True"


def test_a_failure_of_the_engine_leaves_the_loop_to_xla(monkeypatch: Any) -> None:
    def broken(plan: Any) -> Any:
        raise RuntimeError("no more registers")

    monkeypatch.setattr(target, "build", broken)

    def my_step(c: Any, x: Any) -> Any:
        return c * x + 1, c

    f = jax.jit(lambda c, xs: onescan.scan(my_step, c, xs))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with onescan.engine("auto"):
            carry, ys = f(1.0, jnp.arange(4.0))
    ours = [w for w in caught if issubclass(w.category, EngineWarning)]
    assert len(ours) == 1
    assert "my_step" in str(ours[0].message)
    assert "no more registers" in str(ours[0].message)
    expected = jax.lax.scan(my_step, 1.0, jnp.arange(4.0))
    assert_equal([np.asarray(carry), np.asarray(ys)], [np.asarray(x) for x in expected])
