"""Products of bytes, several terms at a time, by the instructions of x86."""

from __future__ import annotations

from itertools import product
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from engines import assert_engines_agree
from jax import lax
from kernels import by_kernel, by_xla, inputs_of, kernel_of, loop_in
from sampling import sample

import onescan
from onescan.emit.math.features import PAIRS, QUADS
from onescan.loop import Loop
from onescan.targets.cpu.machine import Machine, host
from onescan.targets.cpu.plan import choose

OURS = host().features & {PAIRS, QUADS}
#: features that may be left out, and the instruction that then does it
WAYS = {
    "four": (OURS, "vpdpbusd"),
    "two": (OURS - {QUADS}, "pmadd"),
    "one": (frozenset(), None),
}
#: which dimensions are summed over, of matrices
TURNS = {"x y": (1, 0), "x y.T": (1, 1), "x.T y": (0, 0), "x.T y.T": (0, 1)}
#: rows, terms and columns; those of the first are not whole vectors
SIZES = [(7, 12, 37), (4, 32, 16), (9, 6, 20), (5, 7, 18), (16, 4, 4)]
TYPES = list(product(("int8", "uint8"), repeat=2))


def loop_of(turn: str, size: Any, types: Any, total: Any = jnp.int32) -> Loop:
    """A loop whose steps multiply two matrices of their own, of each pair of types."""
    (left, right), (rows, terms, columns) = TURNS[turn], size
    sides = ((rows, terms), left == 1), ((terms, columns), right == 0)
    xs = [
        [
            jnp.zeros((3, *(shape if in_order else shape[::-1])), dtype)
            for (shape, in_order), dtype in zip(sides, pair, strict=True)
        ]
        for pair in types
    ]

    def step(before: Any, xs: Any) -> Any:
        numbers = ((left,), (right,)), ((), ())
        made = [
            lax.dot_general(x, y, numbers, preferred_element_type=total) for x, y in xs
        ]
        # rows and columns meet, and are no lanes
        both = [m ^ c[::-1, ::-1] for m, c in zip(made, before, strict=True)]
        return both, [m + c for m, c in zip(made, before, strict=True)]

    zeros = [jnp.zeros((rows, columns), total) for _ in types]
    return loop_in(lambda *args: onescan.scan(step, *args), zeros, xs)


def text_of(plan: Any) -> str:
    return str(kernel_of(plan).module)


@pytest.mark.skipif(PAIRS not in OURS, reason="needs an x86")
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("bytes", [16, 32, 64])
def test_by_each_instruction(way: str, bytes: int) -> None:
    """In vectors of each width, of matrices that lie anyhow."""
    if bytes > host().vector_bytes or (way == "four" and QUADS not in OURS):
        pytest.skip("which this processor does not have")
    features, instruction = WAYS[way]
    for turn, size in sample(product(TURNS, SIZES), 4):
        loop = loop_of(turn, size, TYPES)
        plan = choose(loop, Machine(bytes, 1, features))
        fits = size[1] % {"four": 4, "two": 2}.get(way, size[1] + 1) == 0
        used = instruction is not None and instruction in text_of(plan)
        assert used == fits, (turn, size)
        inputs = inputs_of(loop)
        results = zip(by_kernel(plan, inputs), by_xla(loop, inputs), strict=True)
        for ours, stock in results:
            np.testing.assert_array_equal(ours, stock, f"{turn} {size}")


@pytest.mark.skipif(PAIRS not in OURS, reason="needs an x86")
def test_what_is_no_product_of_bytes() -> None:
    def ways(size: Any, types: Any, total: Any = jnp.int32) -> set[str]:
        text = text_of(choose(loop_of("x y", size, [types], total), host()))
        return {name for name in ("vpdpbusd", "pmadd") if name in text}

    assert ways((7, 12, 37), ("int8", "int8"))
    assert not ways((7, 11, 37), ("int8", "int8"))  # an odd one is left over
    assert not ways((3, 12, 37), ("int8", "int8"))  # too few rows
    assert not ways((7, 12, 37), ("int16", "int16"))  # two products may overflow
    assert not ways((7, 12, 37), ("int8", "int8"), jnp.int8)
    assert ways((7, 12, 37), ("uint8", "uint8")) == {"pmadd"}


def test_layers_of_bytes() -> None:
    """As a quantised network has them, whose rows are lanes."""

    def layer(x: Any, w: Any) -> Any:
        numbers = ((1,), (0,)), ((), ())
        made = lax.dot_general(x, w, numbers, preferred_element_type=jnp.int32)
        return (made >> 7).astype(jnp.int8), made.max()

    random = np.random.default_rng(0)
    x, w = (
        jnp.asarray(random.integers(-128, 128, shape, np.int8))
        for shape in ((20, 64), (5, 64, 64))
    )
    assert_engines_agree(lambda *args: lax.scan(layer, *args), x, w)


@pytest.mark.parametrize("along", [0, 1])
def test_a_matrix_and_itself(along: int) -> None:
    """Wrong results: both sides were made unsigned, being one array."""

    def step(x: Any, other: Any) -> Any:
        numbers = ((along,), (along,)), ((), ())
        made = lax.dot_general(x, x, numbers, preferred_element_type=jnp.int32)
        return x[::-1, ::-1] ^ other, made

    random = np.random.default_rng(2)
    x, others = (
        jnp.asarray(random.integers(-128, 128, shape, np.int8))
        for shape in ((24, 32), (4, 24, 32))
    )
    assert_engines_agree(lambda *args: lax.scan(step, *args), x, others)


def test_a_batch_of_products() -> None:
    def step(x: Any, w: Any) -> Any:
        made = jnp.einsum("bij,bjk->bik", x, w, preferred_element_type=jnp.int32)
        return (made >> 4).astype(jnp.int8), made

    random = np.random.default_rng(1)
    x, w = (
        jnp.asarray(random.integers(-128, 128, shape, np.int8))
        for shape in ((3, 6, 16), (4, 3, 16, 16))
    )
    assert_engines_agree(lambda *args: lax.scan(step, *args), x, w)
