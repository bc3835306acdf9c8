"""Integers that are computed in small types, and what they can be."""

from __future__ import annotations

import random
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from engines import assert_engines_agree
from jax import lax
from passing import loop_of

from onescan.passes.few_bits import few_bits
from onescan.passes.ranges import Ranges

ALL_BYTES = jnp.arange(256, dtype=jnp.uint8)
PAIRS = jnp.stack([jnp.repeat(ALL_BYTES, 256), jnp.tile(ALL_BYTES, 256)])


def narrowed(step: Any, x: Any) -> str | None:
    """What a loop is computed in, if that is changed; both engines agree on it."""
    run = lambda x: lax.scan(lambda c, _: (step(c), None), x, length=2)[0]
    assert_engines_agree(run, x, ulps=0)
    loop, _ = loop_of(lambda c, _: (step(c), None), x, None, length=2)
    found = few_bits(loop)
    return found and found.notes[0].split(" in ")[1].split(",")[0]


def shifted(x: Any) -> Any:
    return (x.astype("int32") * 37 + 11) >> 5


CASES = {
    "shifted": (shifted, "int8", "int16"),
    "unsigned": (shifted, "uint8", "int16"),
    "counted": (lambda x: x.astype("int32") + 1, "bool", "int8"),
    "up to 255": (lambda x: x.astype("int32") | 128, "uint8", "uint8"),
    "square": (lambda x: x.astype("int32") ** 2 - 1, "uint8", None),
    "square, unsigned": (lambda x: x.astype("uint32") ** 2, "uint8", "uint16"),
    "negative": (lambda x: ~x.astype("int32"), "uint8", "int16"),
    "of 64 bits": (lambda x: abs(x.astype("int32") - 100) % 7, "int8", "int16"),
    "a mask": (lambda x: x.astype("int32") & 12, "int8", "int8"),
    "beyond a mask": (lambda x: -(x.astype("int32") ^ 300), "uint8", "int16"),
    "far": (lambda x: (x.astype("int32") >> 20) - 1, "int8", "int8"),
    "wraps around": (lambda x: x.astype("uint32") - 1 >> 1, "uint8", None),
    "a large one": (lambda x: x.astype("int32") + 40_000, "int8", None),
    "compared": (lambda x: x.astype("int32") > 300, "uint8", "int16"),
    "floats": (lambda x: x.astype("int32") + x.astype("float32"), "uint8", None),
    "selected": (
        lambda x: jnp.where(x > 2, x.astype("int32") * 2, -5),
        "uint8",
        "int16",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_types(name: str) -> None:
    function, given, expected = CASES[name]
    x = ALL_BYTES.view(given) if given != "bool" else ALL_BYTES % 2 == 1
    assert narrowed(lambda x: function(x).astype(x.dtype), x) == expected


def test_neighbours_of_a_board() -> None:
    """Shapes change between: rolls, borders, places."""

    def step(x: Any) -> Any:
        y = jnp.pad(x, 1).astype("int32")
        cells = [
            lax.dynamic_slice(y, (i, j), x.shape) for i in range(3) for j in range(3)
        ]
        around = sum(cells) - cells[4]
        place = lax.broadcasted_iota("int32", x.shape, 0) % 3
        there = jnp.flip(jnp.roll(x.astype("int32"), 1, axis=1).T.T, axis=0)
        return (around + 2 * there > 3 + place).astype(x.dtype)

    board = jax.random.bernoulli(jax.random.key(0), 0.4, (13, 17))
    assert narrowed(step, board) == "int8"
    assert narrowed(step, board.astype("uint8")) == "int16"


def test_numbers_beside_them() -> None:
    """A number of a large type that is small joins; one that may be large does not."""
    few = lambda x: (x.astype("int32") + jnp.sum(x[:1] == 3)).astype(x.dtype)
    assert narrowed(few, ALL_BYTES) in (None, "int16")

    def counted(c: Any, i: Any) -> Any:
        return (c.astype("int32") + i).astype(c.dtype), None

    count = jnp.arange(3)
    assert_engines_agree(lambda c, i: lax.scan(counted, c, i)[0], ALL_BYTES, count)
    loop, _ = loop_of(counted, ALL_BYTES, count)
    assert few_bits(loop) is None

    def masked(c: Any, i: Any) -> Any:
        return (c.astype("int32") + (i & 3)).astype(c.dtype), None

    assert_engines_agree(lambda c, i: lax.scan(masked, c, i)[0], ALL_BYTES, count - 2)
    loop, _ = loop_of(masked, ALL_BYTES, count)
    assert few_bits(loop) is not None


def test_one_number_of_an_array() -> None:
    """What reads it alone reads it in its own type."""

    def step(x: Any) -> Any:
        y = x.astype("int32") + 1
        return (y * 2 - (y[3:4] + 7)[0]).astype(x.dtype)

    assert narrowed(step, ALL_BYTES) in (None, "int16")


UNARY = [
    lambda x: -x,
    lambda x: ~x,
    abs,
    jnp.sign,
    lambda x: lax.integer_pow(x, 2),
    lambda x: lax.integer_pow(x, 3),
    lambda x: x + 3,
    lambda x: x - 70,
    lambda x: x * 5,
    lambda x: x // 3,
    lambda x: x // -7,
    lambda x: x % 11,
    lambda x: lax.rem(x, lax.full_like(x, -5)),
    lambda x: lax.div(x, lax.full_like(x, 4)),
    lambda x: x >> 2,
    lambda x: x << 1,
    lambda x: lax.shift_right_logical(x, lax.full_like(x, 3)),
    lambda x: x & 29,
    lambda x: x | 64,
    lambda x: x ^ -3,
    lambda x: jnp.clip(x, -40, 90),
    lambda x: jnp.roll(x, 3),
    lambda x: x[::-1],
    lambda x: jnp.where(x > 5, x, 2),
    lambda x: x.astype("int16").astype(x.dtype),
]
BINARY = [
    jnp.add,
    jnp.subtract,
    jnp.multiply,
    jnp.maximum,
    jnp.minimum,
    jnp.bitwise_and,
    jnp.bitwise_or,
    jnp.bitwise_xor,
    lambda x, y: jnp.where(x < y, x, y + 1),
    lambda x, y: x // (abs(y) + 1),
    lambda x, y: lax.rem(x, lax.max(y, lax.full_like(y, 2))),
    lambda x, y: x << (y & 3),
    lambda x, y: x >> (y & 7),
    lambda x, y: (x == y).astype(x.dtype),
]


def random_function(seed: int) -> Any:
    """A few operations on two arrays of bytes, and what they lead to."""
    chosen = random.Random(seed)
    wide = chosen.choice(("int32", "int32", "uint32", "int16"))
    plan = [chosen.choice(UNARY + BINARY) for _ in range(chosen.randint(1, 5))]
    picks = [chosen.random() for _ in range(2 * len(plan))]

    def function(x: Any, y: Any) -> Any:
        values = [x.astype(wide), y.astype(wide)]
        for k, apply in enumerate(plan):
            one, other = (
                values[int(p * len(values))] for p in picks[2 * k : 2 * k + 2]
            )
            values.append(apply(one) if apply in UNARY else apply(one, other))
        return values[-1]

    return function


@pytest.mark.parametrize("given", ["int8", "uint8"])
def test_random_functions(given: str) -> None:
    """All pairs of bytes: ranges hold, and so do results."""
    few = 0
    x, y = PAIRS.view(given)
    for seed in range(60):
        function = random_function(seed)
        jaxpr = jax.make_jaxpr(function)(x, y).jaxpr
        step = lambda c, y, function=function: (function(c, y).astype(c.dtype), None)
        loop, _ = loop_of(step, x, y[None])
        ranges = Ranges()
        for eqn in loop.body.jaxpr.eqns:
            ranges.add(eqn)
        found = few_bits(loop)
        few += found is not None
        expected = np.asarray(step(x, y)[0])
        run = found.loop if found else loop
        got = jax.core.eval_jaxpr(run.body.jaxpr, [], x, y)[0]
        assert (np.asarray(got) == expected).all(), (seed, jaxpr, run.body)
    assert few > 15


def test_the_kernel_of_random_functions() -> None:
    """The same through kernels, many of them in one program."""
    x, y = PAIRS.view("int8")

    def steps(c: Any, y: Any) -> Any:
        given = [random_function(seed)(c, y).astype("int8") for seed in range(100, 112)]
        return sum(given[1:], given[0]), given

    run = lambda x, y: lax.scan(steps, x, y[None])
    assert_engines_agree(run, x, y, ulps=0)
