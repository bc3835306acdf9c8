"""Products of a step with weights that lie in panels."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from compare import assert_same
from engines import run
from kernels import loop_in
from sampling import pairs

import onescan
from onescan.loop import Loop
from onescan.targets.cpu.machine import Machine
from onescan.targets.cpu.plan import choose
from onescan.targets.cpu.products.panels import (
    STEPS,
    TURNED_STEPS,
    Panels,
    panels_of,
)

#: without a matrix unit
PLAIN = Machine(16, 1, frozenset())


def steps(transposed: bool, length: int = STEPS) -> Any:
    """States that are multiplied with weights, one way or the other, in every step."""

    def f(init: Any, weights: Any) -> Any:
        along = 1 if transposed else 0
        numbers = (((init.ndim - 1,), (along,)), ((), ()))

        def body(c: Any, _: Any) -> Any:
            product = jax.lax.dot_general(c, weights, numbers)
            c = 0.5 * c + jnp.tanh(product[..., : c.shape[-1]])
            return c, product.sum(-1)

        return onescan.scan(body, init, None, length=length)

    return f


def panels_in(f: Any, *args: Any, machine: Machine = PLAIN) -> list[Panels | None]:
    loop: Loop = loop_in(f, *args)
    plan = choose(loop, machine)
    products = [e for e in loop.body.jaxpr.eqns if e.primitive.name == "dot_general"]
    return [panels_of(plan, eqn) for eqn in products]


def args_of(rows: tuple[int, ...], depth: int, columns: int, **kinds: Any) -> Any:
    rng = np.random.default_rng(0)
    dtype, transposed = kinds.get("dtype", "float32"), kinds.get("transposed", False)
    init = rng.standard_normal((*rows, depth)).astype(dtype)
    shape = (columns, depth) if transposed else (depth, columns)
    return init, (rng.standard_normal(shape) / depth**0.5).astype(dtype)


@pytest.mark.parametrize(
    ("rows", "columns", "dtype", "transposed"),
    pairs(
        [(2,), (3,), (8,), (19,), (2, 5)],
        [128, 160, 384],
        ["float32", "float64", "float16", "bfloat16"],
        [False, True],
    ),
)
def test_as_stock(rows: Any, columns: int, dtype: str, transposed: bool) -> None:
    with jax.enable_x64(True):
        args = args_of(rows, 128, columns, dtype=dtype, transposed=transposed)
        f = steps(transposed)
        assert panels_in(f, *args) != [None]
        close = 16 if np.dtype(dtype).itemsize == 2 else 1
        assert_same(run("native", f, *args), run("xla", f, *args), rounding=close)


def test_a_vector_times_weights() -> None:
    args = args_of((), 128, 256)
    assert_same(run("native", steps(False), *args), run("xla", steps(False), *args))


@pytest.mark.parametrize("rows", [(), (1,), (5,), (2, 3)])
@pytest.mark.parametrize(
    ("depth", "columns"), [(3, 4), (40, 40), (64, 64), (17, 90), (100, 30), (60, 130)]
)
def test_weights_whose_rows_are_summed_along_are_turned(
    rows: Any, depth: int, columns: int
) -> None:
    """From either side; sums across vectors took half of the time."""

    def f(init: Any, weights: Any) -> Any:
        def body(c: Any, _: Any) -> Any:
            sides = (c, weights) if c.ndim > 1 else (weights, c)
            along = [(x.ndim - 1,) for x in sides]
            product = jax.lax.dot_general(*sides, (along, ((), ())))
            c = 0.5 * c + jnp.resize(jnp.tanh(product), c.shape)
            return c, product

        return onescan.scan(body, init, None, length=TURNED_STEPS)

    args = args_of(rows, depth, columns, transposed=True)
    (panels,) = panels_in(lambda c, w: f(c, w), *args)
    assert panels is not None
    assert (panels.along, panels.width) == (1, columns)
    assert_same(run("native", f, *args), run("xla", f, *args))


def test_as_many_columns_as_registers_hold() -> None:
    """With more rows a panel is narrower."""
    widths = []
    for rows in (1, 3, 4, 8, 64):
        (panels,) = panels_in(steps(False), *args_of((rows,), 128, 240))
        assert panels is not None
        widths.append(panels.width)
    assert widths == [60, 20, 16, 8, 8]


def test_what_is_left_as_it_is() -> None:
    none = [None]
    small = args_of((8,), 64, 64)
    assert panels_in(steps(False), *small) == none
    odd = args_of((8,), 128, 130)
    assert panels_in(steps(False), *odd) == none
    args = args_of((8,), 128, 128)
    assert panels_in(steps(False, STEPS - 1), *args) == none
    changing = lambda init, w: onescan.scan(
        lambda c, _: ((0.5 * c[0], c[0] @ c[1]), None), (w, init.T), None, length=STEPS
    )
    assert panels_in(changing, args[0].repeat(16, 0), args[1]) == none
