"""Special functions that are programs of operations: native, and as XLA has them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special
from engines import kernels_alone, run
from gpu_lowering import launches_of
from jax import lax
from sampling import pairs

import onescan

FUNCTIONS: dict[str, Callable[..., Any]] = {
    # of numbers that need no rounding: XLA drops that of a product some is added to
    "bessel_i0e": lambda a, b: lax.bessel_i0e(jnp.where(b > 3, 2 * a, -b)),
    "bessel_i1e": lambda a, b: lax.bessel_i1e(jnp.where(b > 3, 2 * a, -b)),
    "betainc": lambda a, b: lax.betainc(a, b, lax.logistic(a - b)),
    "igamma": lax.igamma,
    "igamma_grad_a": lax.igamma_grad_a,
    "igammac": lax.igammac,
    "polygamma": lambda a, b: lax.polygamma(jnp.floor(a), b),
    "zeta": lambda a, b: lax.zeta(1 + a, b - 0.25),
}
ROUNDING = {"float16": 1e-2, "bfloat16": 6e-2, "float32": 2e-5, "float64": 1e-12}
ENDS = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 8, 8.5, 100, np.inf, -1, -2, -1.5, np.nan])


def loop(function: Callable[..., Any]) -> Callable[..., Any]:
    step = lambda c, x: (c, function(*x))
    return lambda *xs: onescan.scan(step, 0.0, xs)[1]


def both(function: Callable[..., Any], *args: Any) -> list[np.ndarray]:
    results = [run(engine, loop(function), *args) for engine in ("native", "xla")]
    return [np.asarray(x, np.float64) for x in results]


@pytest.mark.parametrize(("name", "dtype"), pairs(FUNCTIONS, ROUNDING))
def test_ordinary_numbers(name: str, dtype: str) -> None:
    draws = np.random.default_rng(0).gamma(2, 2, (2, 3, 11)) + 0.3
    with kernels_alone():
        a, b = (jnp.asarray(x, dtype) for x in draws)
        ours, stock = both(FUNCTIONS[name], a, b)
    np.testing.assert_allclose(ours, stock, rtol=ROUNDING[dtype])


@pytest.mark.parametrize("function", [lax.zeta, lax.polygamma])
def test_ends(function: Any) -> None:
    """Where XLA's sum is not a number by overflow alone, ours is the limit."""
    a, b = (x.reshape(1, -1) for x in np.meshgrid(ENDS[1:], ENDS))
    with kernels_alone():
        ours, stock = both(function, a, b)
    told = ~np.isnan(stock)
    np.testing.assert_allclose(ours[told], stock[told], rtol=1e-11)
    large = np.isinf(a) | np.isinf(b)
    np.testing.assert_array_equal(np.isnan(ours)[~large], np.isnan(stock)[~large])


def test_bessel_ends() -> None:
    with kernels_alone():
        ours, stock = both(lax.bessel_i1e, np.append(ENDS, -np.inf)[None])
    np.testing.assert_allclose(ours, stock, rtol=1e-13)


def test_zeta_is_zeta() -> None:
    a, b = np.meshgrid(np.linspace(1.01, 30, 40), np.linspace(0.1, 50, 40))
    with kernels_alone():
        ours = run("native", loop(lax.zeta), a[None], b[None])
    np.testing.assert_allclose(ours[0], scipy.special.zeta(a, b), rtol=1e-13)


def test_gradients() -> None:
    """Of a censored likelihood, with a parameter for each of some lanes."""

    def total(shapes: Any, xs: Any) -> Any:
        step = lambda c, x: (c + jnp.log(lax.igammac(shapes, x)), None)
        return onescan.scan(step, jnp.zeros(3), xs)[0].sum()

    args = jnp.array([0.5, 2.0, 7.0]), jnp.linspace(0.2, 5, 12).reshape(4, 3)
    both = [run(e, jax.grad(total, (0, 1)), *args) for e in ("native", "xla")]
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-5), *both)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_on_a_gpu(name: str) -> None:
    x = jnp.ones((4, 100))
    with kernels_alone():
        (launch,) = launches_of(loop(FUNCTIONS[name]), x, x)
    assert ".extern .func" not in launch.code
