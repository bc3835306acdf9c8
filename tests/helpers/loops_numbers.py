"""Loops over every kind of number: widths, bits, types that change on the way."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from table import Problem, case, normal


@case()
def cumulative_sum(rng):
    def f(total, x):
        return total + x, total + x

    return Problem(f, jnp.zeros(3), normal(rng, 7, 3))


@case(differentiable=False)
def bool_parity(rng):
    def f(odd, bit):
        return odd ^ bit, ~odd & bit

    return Problem(f, jnp.array(False), rng.random(9) < 0.5)


@case(differentiable=False)
def int8_wraps(rng):
    def f(c, x):
        return c * jnp.int8(3) + x, c // jnp.int8(5)

    return Problem(f, jnp.int8(7), rng.integers(-100, 100, 8).astype("int8"))


@case(differentiable=False)
def uint8_and_int16(rng):
    def f(c, x):
        small, wide = c
        small = small + x
        wide = wide - small.astype(jnp.int16) * jnp.int16(300)
        return (small, wide), jnp.maximum(small, jnp.uint8(100))

    xs = rng.integers(0, 255, 8).astype("uint8")
    return Problem(f, (jnp.uint8(250), jnp.int16(5)), xs)


@case(differentiable=False)
def xorshift(rng):
    def f(state, _):
        state = state ^ (state << 13)
        state = state ^ (state >> 17)
        state = state ^ (state << 5)
        return state, (jax.lax.population_count(state), ~state)

    init = jnp.uint32(rng.integers(1, 2**32 - 1))
    return Problem(f, init, None, {"length": 8})


@case(differentiable=False)
def integer_division(rng):
    def f(c, x):
        return c + x, (c // x, c % x, jax.lax.rem(c, x), abs(c) - x, jnp.sign(c))

    return Problem(f, jnp.int32(-5), rng.choice([-4, -3, 3, 7], 7).astype("int32"))


@case(differentiable=False)
def clipped_counter(rng):
    def f(i, x):
        return i + 1, jnp.clip(x * i, -5, 5)

    return Problem(f, jnp.int32(0), rng.integers(-3, 4, 7).astype("int32"))


@case()
def float16_filter(rng):
    def f(c, x):
        c = jnp.float16(0.5) * c + x
        return c, c

    return Problem(f, jnp.zeros(3, jnp.float16), normal(rng, 5, 3, dtype="float16"))


@case()
def bfloat16_filter(rng):
    def f(c, x):
        c = (0.5 * c + jnp.tanh(x)).astype(jnp.bfloat16)
        return c, c.sum()

    return Problem(
        f, jnp.zeros(4, jnp.bfloat16), jnp.asarray(normal(rng, 5, 4), jnp.bfloat16)
    )


@case(differentiable=False)
def complex_rotation(rng):
    def f(z, x):
        z = z * jnp.exp(1j * x) + jnp.conj(z) * 0.1
        return z, (z.real, jnp.abs(z))

    return Problem(f, jnp.complex64(1 + 0.5j), normal(rng, 6))


@case(differentiable=False)
def mixed_dtypes(rng):
    def f(c, x):
        count, mean, seen, half = c
        count = count + 1
        mean = mean + (x - mean) / count
        half = half + mean.astype(jnp.bfloat16)
        return (count, mean, seen | (x > 1), half), (count, half)

    init = (jnp.int32(0), jnp.zeros(3), jnp.zeros(3, bool), jnp.zeros(3, jnp.bfloat16))
    return Problem(f, init, normal(rng, 6, 3))


@case()
def python_number_becomes_float(rng):
    """A weakly typed 0 in init, promoted to what the body makes of it."""

    def f(c, x):
        return c * 0.5 + x, c

    return Problem(f, 0, normal(rng, 5))


@case(rounding=2**10)
def weak_carry_of_low_precision(rng):
    """Results in float32, of products in bfloat16: one unit of that is allowed.

    XLA leaves out the rounding of such a product, unless it is run with
    --xla_allow_excess_precision=false.
    """

    def f(c, x):
        return c * 0.5, c * x

    return Problem(f, 1.5, jnp.asarray(normal(rng, 5), jnp.bfloat16))


@case(rounding=4)
def transcendental(rng):
    def f(c, x):
        c = 0.5 * jnp.tanh(c) + 0.1 * jnp.sin(x) * jnp.cos(c)
        y = (
            jnp.exp(c) + jnp.log1p(x * x) + jnp.expm1(0.1 * x),
            jnp.arctan2(x, 2.0 + c) + jnp.sqrt(1.0 + c * c) ** 3,
            jax.scipy.special.erf(c) + jax.nn.sigmoid(x) + jax.lax.rsqrt(1.0 + x * x),
            jnp.power(1.5 + jnp.abs(c), 0.3) + jnp.cbrt(1 + x * x) + jnp.arctan(x),
            jnp.sinh(c) * jnp.cosh(c) + jnp.arcsin(0.5 * c) + jnp.log(2.0 + c),
        )
        return c, y

    return Problem(f, normal(rng, 3), normal(rng, 5, 3))


@case(differentiable=False)
def rounding_and_comparing(rng):
    def f(c, x):
        c = jnp.where(x > c, jnp.floor(c * 2) / 2, c + 0.25)
        rounded = jnp.round(4 * x) + jnp.ceil(c) + jnp.trunc(x)
        return c, (rounded, jnp.isfinite(c / x), x <= c, jnp.sign(x))

    return Problem(f, normal(rng, 3), normal(rng, 5, 3))


@case(differentiable=False)
def infinities_and_nans(rng):
    def f(c, x):
        return jnp.minimum(c + x, jnp.inf), (c / x, jnp.maximum(c, x), jnp.log(x))

    return Problem(f, jnp.float32(1), jnp.array([0.0, -1.0, jnp.inf, jnp.nan, 2.0]))
