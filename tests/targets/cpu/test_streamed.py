"""Products of one vector with a large matrix, which passes once, in order."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from compare import assert_same
from engines import run
from kernels import loop_in

import onescan
from onescan.targets.cpu.machine import host
from onescan.targets.cpu.plan import choose
from onescan.targets.cpu.products.panels import panels_of
from onescan.targets.cpu.products.streamed import stream_of
from onescan.targets.cpu.transposed import is_transposed

LARGE = (host().l2 // 4096 + 3, 1043)  # the first size is odd, and too large for L2


def program(numbers: Any, other: Any, length: int = 40) -> Any:
    """A loop that multiplies with a matrix, and back with another."""

    def f(c: Any, w: Any, back: Any) -> Any:
        def body(c: Any, _: Any) -> Any:
            operands, (left, right) = numbers
            there = [c, w] if operands == "vector first" else [w, c]
            y = jax.lax.dot_general(*there, (((left,), (right,)), ((), ())))
            c = jnp.tanh(c + (y.reshape(-1) @ back).reshape(c.shape))
            return c, y.sum()

        return onescan.scan(body, c, None, length=length)

    return f, other


KINDS = {
    "vector, columns": ("vector first", (0, 0), (), 0),
    "row, columns": ("vector first", (1, 0), (1,), 0),
    "columns, vector": ("matrix first", (0, 0), (), 0),
    "vector, rows": ("vector first", (0, 1), (), 1),
    "rows, vector": ("matrix first", (1, 0), (), 1),
    "rows, row": ("matrix first", (1, 1), (1,), 1),
}


def args_of(kind: str, dtype: Any) -> Any:
    *numbers, ahead, along = KINDS[kind]
    random = np.random.default_rng(0)
    depth, columns = LARGE[along], LARGE[1 - along]
    made = [random.normal(size=LARGE), random.normal(size=(columns, depth))]
    w, back = ((x / 40).astype(dtype) for x in made)
    return numbers, (random.normal(size=(*ahead, depth)).astype(dtype), w, back)


def equation(kind: str, dtype: Any) -> tuple[Any, Any]:
    numbers, args = args_of(kind, dtype)
    f, _ = program(numbers, None)
    loop = loop_in(f, *args)
    plan = choose(loop, host())
    eqns = [e for e in loop.body.jaxpr.eqns if e.primitive.name == "dot_general"]
    return plan, eqns[0]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_as_stock(kind: str, dtype: Any) -> None:
    with jax.enable_x64(dtype is np.float64):
        numbers, args = args_of(kind, dtype)
        f, _ = program(numbers, None, length=4)
        found, expected = run("native", f, *args), run("xla", f, *args)
        assert_same(found, expected)


@pytest.mark.parametrize("kind", KINDS)
def test_it_is_neither_turned_nor_copied(kind: str) -> None:
    plan, eqn = equation(kind, np.float32)
    matrix = max(eqn.invars, key=lambda v: v.aval.size)
    assert panels_of(plan, eqn) is None
    assert not is_transposed(plan.loop, matrix, plan.width)
    assert plan.layouts[list(plan.loop.body.jaxpr.invars).index(matrix)] == (0, 1)
    by_columns = KINDS[kind][3] == 0
    assert (stream_of(plan, eqn) is not None) == by_columns


def test_several_vectors_meet_panels() -> None:
    step = lambda w: lambda c, _: (jnp.tanh(c @ w), None)
    f = lambda c, w: onescan.scan(step(w), c, None, length=40)
    loop = loop_in(f, np.zeros((5, 512), np.float32), np.zeros((512, 512), np.float32))
    plan = choose(loop, host())
    assert not any(stream_of(plan, eqn) for eqn in loop.body.jaxpr.eqns)
