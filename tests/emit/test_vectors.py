"""Vectors that are read elsewhere than side by side, and converted as a whole."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from engines import run
from kernels import by_kernel, by_xla, inputs_of, loop_in, plan_of

from onescan.emit.math.features import NEON
from onescan.targets.cpu.build import build
from onescan.targets.cpu.machine import host

SIZE = 150
FAR = jnp.arange(SIZE) * 7 % SIZE

READS = {
    "backwards": lambda c: c[::-1],
    **{f"every {n}": lambda c, n=n: jnp.resize(c[1::n], SIZE) for n in (2, 3, 4, 5)},
    "every second, backwards": lambda c: jnp.resize(c[::-2], SIZE),
    "of rows": lambda c: c.reshape(3, 50)[:, ::-1].reshape(-1),
    "rows": lambda c: c.reshape(5, 30)[::-1].reshape(-1),
    "both": lambda c: c.reshape(5, 30)[::-1, ::-1].reshape(-1),
    "columns": lambda c: c.reshape(5, 30).T.reshape(-1),
    "the diagonal": lambda c: jnp.resize(jnp.diagonal(c[:144].reshape(12, 12)), SIZE),
    "listed": lambda c: c[FAR],
    "listed rows": lambda c: c.reshape(50, 3)[FAR % 50].reshape(-1)[:SIZE],
    "by data": lambda c: c[(jnp.abs(c) * 40).astype(jnp.int32)],
    "by data, out of range": lambda c: jnp.nan_to_num(
        c.at[(c * 400).astype(jnp.int32)].get(mode="fill", fill_value=0.5)
    ),
}


@pytest.mark.parametrize("dtype", ["float32", "float64", "int8"])
@pytest.mark.parametrize("name", READS)
def test_reads(name: str, dtype: str) -> None:
    with jax.enable_x64(True):
        read = READS[name]
        start = (jnp.arange(SIZE) % 31 - 9).astype(dtype)

        def step(c: Any, _: None) -> Any:
            return (read(c) + start).astype(dtype), c[::-1]

        loop = loop_in(lambda c: jax.lax.scan(step, c, None, length=3), start)
        got = by_kernel(plan_of(loop), inputs := inputs_of(loop))
        for mine, theirs in zip(got, by_xla(loop, inputs), strict=True):
            np.testing.assert_array_equal(mine, theirs)


ENDS = [0.0, -0.0, 0.9, -0.9, 1e30, -1e30, np.inf, -np.inf, np.nan]
ENDS += [s * 2.0**k + d for k in (7, 8, 15, 16, 31, 32, 63, 64) for s in (1, -1)
         for d in (-1.5, -1.0, 0.0, 0.5)]  # fmt: skip


@pytest.mark.parametrize("new", ["int8", "uint8", "int16", "uint16", "int32", "uint32",
                                 "int64", "uint64", "bool"])  # fmt: skip
@pytest.mark.parametrize("old", ["float32", "float64", "float16", "bfloat16"])
def test_conversions_to_integers(old: str, new: str) -> None:
    with jax.enable_x64(True):
        most = float(jnp.finfo(old).max)
        held = [x if abs(x) == np.inf else np.clip(x, -most, most) for x in ENDS]
        numbers = jnp.array(np.tile(held, 4), old)
        f = lambda c, xs: jax.lax.scan(lambda c, x: (c, (x + c).astype(new)), c, xs)
        loop = loop_in(f, jnp.zeros(numbers.shape, old), numbers[None].repeat(3, 0))
        inputs = [np.zeros(numbers.shape, old), np.asarray(numbers)[None].repeat(3, 0)]
        got = by_kernel(plan_of(loop), inputs)
        want = np.asarray(numbers).astype(np.float64)
        low, high = (0, 1) if new == "bool" else _ends(new)
        exact = [
            min(max(0 if np.isnan(x) else int(np.clip(x, -1e30, 1e30)), low), high)
            for x in want
        ]
        if new == "bool":
            exact = [x != 0 for x in want]
        np.testing.assert_array_equal(got[-1][0], np.array(exact, new))


def _ends(new: str) -> tuple[int, int]:
    return np.iinfo(new).min, np.iinfo(new).max


@pytest.mark.skipif(NEON in host().features, reason="one instruction does it")
def test_no_conversion_takes_numbers_one_by_one() -> None:
    f = lambda c, xs: jax.lax.scan(
        lambda c, x: (c + (x * 9).astype(jnp.int32).astype(jnp.float32), None), c, xs
    )
    loop = loop_in(f, jnp.zeros(256), jnp.zeros((9, 256)))
    module, _ = build(plan_of(loop))
    assert "fptosi" in str(module)
    assert "fptosi.sat" not in str(module)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_remainders_of_vectors(dtype: str) -> None:
    """Most need one subtraction, some a library; a vector may hold both."""
    rng = np.random.default_rng(0)
    with jax.enable_x64(True):
        x = rng.standard_normal(4096) * 2.0 ** rng.integers(-3, 12, 4096)
        y = rng.standard_normal(4096)
        y[::37] *= 1e-30
        x[::41], y[::43], y[::47], x[::53] = np.inf, 0, np.inf, np.nan
        x, y = x.astype(dtype), y.astype(dtype)
        f = lambda c, xs: jax.lax.scan(lambda c, x: (c, jnp.fmod(*x)), c, xs)
        loop = loop_in(f, jnp.zeros(()), (x[None], y[None]))
        got = by_kernel(plan_of(loop), [np.zeros((), np.float32), x[None], y[None]])
        with np.errstate(invalid="ignore"):
            np.testing.assert_array_equal(got[-1][0], np.fmod(x, y))


EDGES = [0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, -np.nan, 1e-45, -1e-45, 3.5]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", ["maximum", "minimum"])
def test_the_larger_and_the_smaller(name: str, dtype: str) -> None:
    """Of zeros by their signs, and of NaN; for vectors and in a chain of scalars."""
    f = getattr(jnp, name)
    with jax.enable_x64(True):
        xs, ys = (jnp.asarray(a.ravel(), dtype) for a in np.meshgrid(EDGES, EDGES))
        expected = f(xs, ys)
        step = lambda c, y: (f(c, y), None)
        chain = jax.vmap(lambda x, y: jax.lax.scan(step, x, y[None])[0])
        for loop in (chain, jax.jit(lambda x, y: jax.lax.map(lambda p: f(*p), (x, y)))):
            found = run("native", loop, xs, ys)
            np.testing.assert_array_equal(_flushed(found), _flushed(expected))
            known = ~np.isnan(expected)
            signs = np.signbit(np.asarray(found)[known])
            np.testing.assert_array_equal(signs, np.signbit(expected[known]))


def _flushed(x: jax.Array) -> np.ndarray:
    """Subnormal numbers as the zeros that XLA's threads read them as."""
    x = np.asarray(x)
    return np.where(np.abs(x) < np.finfo(x.dtype).tiny, np.copysign(0, x), x)


def test_the_smaller_is_three_instructions_on_x86() -> None:
    """LLVM's own looks at signs and for NaN, each of which waits for the other."""
    loop = loop_in(
        lambda c, x: jax.lax.scan(lambda c, x: (jnp.minimum(c, x), None), c, x),
        jnp.ones(64),
        jnp.ones((9, 64)),
    )
    module, _ = build(plan_of(loop))
    assert ("llvm.minimum" in str(module)) == (NEON in host().features)
