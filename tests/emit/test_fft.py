"""Fourier transforms in a body: NumPy's, in lanes, in vectors, and for a GPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from engines import kernels_alone, run
from gpu_lowering import launches_of
from kernels import kernel_of, loop_in, plan_of

import onescan
from onescan.emit import budget
from onescan.passes.pairs import pairs
from onescan.targets.cpu.kernel import Kernel


@pytest.fixture(autouse=True)
def _kernels_alone():
    with kernels_alone():
        yield


def numbers(*shape: int, dtype: Any = np.complex64) -> Any:
    parts = np.random.default_rng(0).normal(size=(2, *shape))
    return jnp.asarray((parts[0] + 1j * parts[1]).astype(dtype))


def in_a_body(f: Callable[..., Any], x: Any) -> Any:
    """What a kernel makes of f(x), which no pass can take out of the loop."""

    def all_of(x: Any) -> Any:
        return onescan.scan(lambda c, _: (c + 0, f(c)), x, None, length=2)[1]

    return run("native", all_of, x)


def assert_as_exact(f: Callable[[Any, Any], list[Any]], z: Any) -> None:
    """Within some units in the last place of the largest number, which NumPy has."""
    ours = in_a_body(lambda z: f(jnp, z), z)
    unit = np.finfo(z.dtype).eps
    for found, wanted in zip(ours, f(np, np.complex128(z)), strict=True):
        assert np.abs(found[-1] - wanted).max() <= 4 * unit * np.abs(wanted).max()


@pytest.mark.parametrize(
    ("n", "dtype"),
    [
        *((n, np.complex64) for n in (1, 8, 128)),
        *((n, np.complex128) for n in (2, 16, 1024)),
    ],
)
def test_one_axis(n: int, dtype: Any) -> None:
    def f(np: Any, z: Any) -> list[Any]:
        half = z[: n // 2 + 1]
        both = [np.fft.fft(z), np.fft.ifft(z)]
        return [*both, np.fft.rfft(z.real), np.fft.irfft(half, n)]

    assert_as_exact(f, numbers(n, dtype=dtype))


@pytest.mark.parametrize("shape", [(4, 2), (32, 16), (3, 8), (2, 16, 4)])
def test_several_axes(shape: tuple[int, ...]) -> None:
    axes = tuple(i for i, n in enumerate(shape) if n != 3)

    def f(np: Any, z: Any) -> list[Any]:
        half = z[..., : shape[-1] // 2 + 1]
        return [
            np.fft.fftn(z, axes=axes),
            np.fft.ifftn(z, axes=axes),
            np.fft.rfftn(z.real, axes=axes),
            np.fft.irfftn(half, axes=axes),
            np.fft.fft(z, axis=axes[0]),
        ]

    assert_as_exact(f, numbers(*shape))


def split_step(u: Any) -> Any:
    n = u.shape[-1]
    turn = np.exp(-0.01j * np.fft.fftfreq(n, 1 / n) ** 2).astype(np.complex64)

    def step(u: Any, _: Any) -> Any:
        u = jnp.fft.ifft(turn * jnp.fft.fft(u))
        u = u * jnp.exp(1j * 0.1 * jnp.abs(u) ** 2)
        return u, jnp.fft.rfft(u.real)[1].imag

    return onescan.scan(step, u, None, length=4)


@pytest.mark.parametrize("waves", [None, 21])
@pytest.mark.parametrize("n", [8, 64])
def test_split_steps(n: int, waves: int | None) -> None:
    u = numbers(n) if waves is None else numbers(waves, n)
    f = split_step if waves is None else jax.vmap(split_step)
    both = [run(engine, f, u) for engine in ("native", "xla")]
    for ours, wanted in zip(*map(jax.tree.leaves, both), strict=True):
        np.testing.assert_allclose(ours, wanted, rtol=1e-4, atol=1e-4)


def test_gradients() -> None:
    def loss(u: Any) -> Any:
        return jnp.abs(split_step(u)[0]).sum()

    both = [run(engine, jax.grad(loss), numbers(16)) for engine in ("native", "xla")]
    np.testing.assert_allclose(*both, rtol=1e-4, atol=1e-4)


def test_code_does_not_grow_with_the_transform() -> None:
    def size(n: int) -> int:
        with onescan.engine("native"):
            (launch,) = launches_of(split_step, jax.ShapeDtypeStruct((n,), "complex64"))
        tables = launch.code.count(",")  # numbers of the tables of angles
        return len(launch.code.splitlines()) - tables

    assert size(1024) < 1.3 * size(256)


@pytest.mark.parametrize("waves", [1, 1000])
def test_a_gpu_has_them_too(waves: int) -> None:
    u = jax.ShapeDtypeStruct((waves, 64), np.complex64)
    with onescan.engine("native"):
        assert len(launches_of(jax.vmap(split_step), u)) == 1


def kernel(step: Callable[[Any], Any]) -> Kernel:
    """The kernel of a loop over 256 complex numbers."""
    body = lambda u, _: (step(u), None)
    loop = loop_in(lambda u: onescan.scan(body, u, None, length=4), numbers(256))
    split = pairs(loop)
    assert split is not None
    return kernel_of(plan_of(split.loop))


def size(step: Callable[[Any], Any]) -> int:
    return budget.instructions(kernel(step).module)


def there_and_back(u: Any) -> Any:
    return jnp.fft.ifft(2 * jnp.fft.fft(u))


def test_transforms_of_one_shape_share_their_code() -> None:
    assert size(there_and_back) < 1.3 * size(jnp.fft.fft)


def test_a_real_transform_leaves_its_code_to_a_complex_one() -> None:
    assert size(lambda u: jnp.fft.fft(jnp.fft.fft(u.real))) < 1.4 * size(jnp.fft.fft)


def test_every_call_of_a_routine_is_counted() -> None:
    def shuffles(step: Callable[[Any], Any]) -> float:
        runs = kernel(step).profile.runs.items()
        return sum(times for (what, _), times in runs if what == "shufflevector")

    twice = shuffles(lambda u: there_and_back(there_and_back(u)))
    assert twice > 1.8 * shuffles(there_and_back)
