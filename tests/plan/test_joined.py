"""Complex numbers in place: kernels read and write them where they stand."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from compare import assert_same
from guarded import call_directly
from jax import lax
from passing import loop_of

import onescan
from onescan.passes.pairs import pairs
from onescan.plan.joined import joined
from onescan.targets import target_of
from onescan.targets.cpu.plan import choose

#: what takes complex numbers apart, or puts them together
CONVERSION = re.compile(r" (real|imag|complex)\(")


def numbers(*shape: int, dtype: Any = np.complex64, seed: int = 0) -> Any:
    rng = np.random.default_rng([seed, *shape])
    return jnp.asarray(
        (rng.normal(size=shape) + 1j * rng.normal(size=shape)) / 2
    ).astype(dtype)


def compiled(f: Callable[..., Any], *args: Any) -> tuple[Any, str]:
    """The results by a kernel, as `jax.lax.scan` has them, and the program."""
    with onescan.engine("native"):
        program = jax.jit(lambda *xs: f(onescan.scan, *xs)).lower(*args).compile()
    ours, theirs = program(*args), jax.jit(lambda *xs: f(lax.scan, *xs))(*args)
    assert_same(ours, theirs, rounding=4)
    return ours, program.as_text()


def step(c: Any, x: Any) -> Any:
    return 0.5 * c * x + 1j, c - x


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("shape", [(), (3,), (33,), (40, 3), (5, 24), (2, 64, 16)])
def test_no_part_is_taken_before_the_loop(shape: Any, reverse: bool) -> None:
    """Single numbers, short vectors, vectors with a rest, numbers of a lane."""

    def f(scan: Any, c: Any, xs: Any) -> Any:
        return scan(step, c, xs, reverse=reverse)

    _, text = compiled(f, numbers(*shape), numbers(7, *shape, seed=1))
    assert not CONVERSION.search(text)


def test_double_precision() -> None:
    with jax.enable_x64(True):
        both = numbers(20, dtype="complex128"), numbers(7, 20, dtype="complex128")
        _, text = compiled(lambda scan, c, xs: scan(step, c, xs), *both)
    assert "c128[7,20]" in text
    assert not CONVERSION.search(text)


@pytest.mark.parametrize("shape", [(), (3,), (40,)])
def test_batches_with_their_steps_side_by_side(shape: Any) -> None:
    """As `jax.vmap` has them: moved in squares, by rests, or by XLA."""

    def f(scan: Any, c: Any, xs: Any) -> Any:
        return jax.vmap(lambda c, xs: scan(step, c, xs))(c, xs)

    _, text = compiled(f, numbers(36, *shape), numbers(36, 21, *shape, seed=1))
    assert not CONVERSION.search(text)


def test_slices_and_two_arrays_are_read_where_they_stand() -> None:
    def f(scan: Any, v: Any, last: Any) -> Any:
        xs = v[:-1], jnp.concatenate([v[1:-1], last[None]])
        return scan(lambda c, x: (0.5 * c * x[0] + x[1], c), last, xs)

    _, text = compiled(f, numbers(12, 8), numbers(8, seed=1))
    assert not CONVERSION.search(text)
    assert "slice(" not in text
    assert "concatenate(" not in text


def test_results_that_are_wanted_twice_and_carries_that_change_places() -> None:
    def f(scan: Any, c: Any, xs: Any) -> Any:
        def body(c: Any, x: Any) -> Any:
            new = c[1] * x + 0.1
            return (new, c[0]), (new, new, new.imag, c[0])

        return scan(body, (c, 2 * c), xs)

    compiled(f, numbers(8), numbers(9, 8, seed=1))


def test_a_part_of_two_numbers_and_by_itself() -> None:
    """Each buffer holds one number's parts, whatever stands beside them."""

    def f(scan: Any, xs: Any) -> Any:
        def step(c: Any, x: Any) -> Any:
            y, z = jnp.sin(x), jnp.cos(x)
            both = lax.complex(y, y), lax.complex(x, y), lax.complex(y, z)
            return c, (y, *both, x, y, z)

        return scan(step, 0, xs)

    compiled(f, numbers(7, 16).real)


def test_gradients() -> None:
    def f(scan: Any, c: Any, xs: Any) -> Any:
        size = lambda c, xs: jnp.sum(jnp.abs(scan(step, c, xs)[1]) ** 2)
        return jax.grad(size, argnums=(0, 1))(c, xs)

    compiled(f, numbers(8), numbers(9, 8, seed=1))


def test_nothing_is_taken_apart_between_a_loop_and_its_gradient() -> None:
    """Thirty calls of XLA's took five times as long as both kernels."""

    def f(scan: Any, c: Any, xs: Any) -> Any:
        body = lambda c, x: (0.5 * c * x, jnp.cumprod(c + x).real)
        return jax.grad(lambda c: scan(body, c, xs)[1].sum())(c)

    _, text = compiled(f, numbers(8), numbers(9, 8, seed=1))
    assert text.count("custom-call(") == 2
    assert not CONVERSION.search(text)


def test_parts_of_different_arrays_stay_apart() -> None:
    """Nothing is put together for a kernel that takes it apart again."""

    def f(scan: Any, xs: Any, ys: Any) -> Any:
        both = lax.complex(xs, ys)
        return scan(lambda c, x: (0.5 * c * x, c.real), jnp.ones(8, "complex64"), both)

    some = jnp.asarray(np.random.default_rng(0).normal(size=(2, 9, 8)), "float32")
    _, text = compiled(f, *some)
    assert "c64[9,8]" not in text


OPERATIONS: list[Callable[[Any, Any], Any]] = [
    lambda x, y: x + y,
    lambda x, y: x * y,
    lambda x, y: x - 2j * y,
    lambda x, y: x / (2 + jnp.abs(y)),
    lambda x, y: jnp.where(x.real > 0, x, jnp.conj(y)),
    lambda x, y: jnp.tanh(x) + y.imag,
    lambda x, y: jnp.roll(x, 1) + y.mean(),
    lambda x, y: jnp.exp(1j * y.real) * x,
]


@pytest.mark.parametrize("seed", range(4))
def test_random_bodies(seed: int) -> None:
    rng = np.random.default_rng(seed)
    chosen = [OPERATIONS[k] for k in rng.integers(len(OPERATIONS), size=5)]
    size, steps = int(rng.integers(1, 40)), int(rng.integers(2, 20))

    def body(c: Any, x: Any) -> Any:
        a, b = c, x
        for operation in chosen:
            a, b = operation(a, b), a
        return a / (1 + jnp.abs(a)), (b, a.real)

    def f(scan: Any, c: Any, xs: Any) -> Any:
        return scan(body, c, xs, reverse=bool(seed % 2))

    compiled(f, numbers(size, seed=seed), numbers(steps, size, seed=seed))


def test_while_loops_keep_their_numbers_whole() -> None:
    def f(c: Any, d: Any) -> Any:
        def body(s: Any) -> Any:
            z, same, k = s
            return z * z * 0.3 + same, same, k + 1

        return lax.while_loop(lambda s: s[2] < 9, body, (c, d, 0))[0]

    args = numbers(20), numbers(20, seed=1)
    theirs = jax.jit(f)(*args)
    onescan.install()
    try:
        with onescan.engine("native"):
            program = jax.jit(lambda *xs: f(*xs)).lower(*args).compile()
    finally:
        onescan.uninstall()
    assert_same(program(*args), theirs, rounding=4)
    (results,) = re.findall(r"= (\(.*\)) custom-call", program.as_text())
    assert results.startswith("(c64[20]")


@pytest.mark.parametrize("size", [1, 3, 16, 33, 70])
def test_no_access_leaves_a_buffer(size: int) -> None:
    """Each ends at memory that kills who touches it."""
    loop, args = loop_of(step, numbers(size), numbers(5, size, seed=1))
    split = pairs(loop)
    assert split is not None
    target: Any = target_of("cpu")
    plan = target.plan(split.loop)
    kinds = [((size,), np.complex64), ((5, size), np.complex64)]
    ours = call_directly(target.build(plan), args, kinds)
    last, ys = lax.scan(step, *args)
    assert_same(ours, [np.asarray(last), np.asarray(ys)], rounding=4)


def test_large_carries_and_constants_stay_apart() -> None:
    def body(c: Any, x: Any) -> Any:
        return w * c + x, None

    w, large = numbers(4), numbers(10_000, 4)
    loop, _ = loop_of(body, large, numbers(3, 4))
    split = pairs(loop)
    assert split is not None
    target: Any = target_of("cpu")
    plan = joined(choose(split.loop, target.machine))
    consts, fixed = plan.loop.num_consts, plan.loop.num_consts + plan.loop.num_carry
    assert consts
    assert fixed in plan.joined
    lanes = plan.local_shape(plan.loop.body.jaxpr.invars[consts])
    assert (consts in plan.joined) == (4 * np.prod(lanes) <= 1 << 15)
    assert not any(i in plan.joined for i in range(consts))
