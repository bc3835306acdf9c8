"""Matrices that are only read along their rows are asked for column by column."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from compare import assert_same
from engines import kernels_alone, run
from jax import lax
from kernels import loop_in, plan_of

import onescan
from onescan.targets.cpu.machine import Machine
from onescan.targets.cpu.plan import choose


def by_rows(h: Any, w: Any) -> Any:
    """h @ w.T, as the gradient of a product has it."""
    return lax.dot_general(h, w, (((1,), (1,)), ((), ())))


PRODUCTS = {
    "by rows": (by_rows, True),
    "matrix by vector": (lambda h, w: (w @ h[0])[None] + h / 2, False),
    "twice": (lambda h, w: by_rows(by_rows(h, w), w), True),
    "as it is": (lambda h, w: h @ w, False),
    "both ways": (lambda h, w: by_rows(h @ w, w), False),
    "also read otherwise": (lambda h, w: by_rows(h, w) + w[0], False),
    "matrix by columns": (lambda h, w: (w @ h.T).T, False),
}


def loop(product: Any, scan: Any, length: int) -> Any:
    return lambda h, w: scan(
        lambda h, _: (jnp.tanh(product(h, w)), h), h, None, length=length
    )


@pytest.mark.parametrize("name", PRODUCTS)
def test_turned(name: str) -> None:
    product, transposed = PRODUCTS[name]
    rng = np.random.default_rng(0)
    h = rng.standard_normal((2, 160)).astype(np.float32)
    w = (0.03 * rng.standard_normal((160, 160))).astype(np.float32)
    with kernels_alone():
        for length in (4, 64):
            plan = plan_of(loop_in(loop(product, lax.scan, length), h, w))
            layouts = plan.layouts[: plan.loop.num_consts]
            assert ((1, 0) in layouts) == (transposed and length == 64)
        f = loop(product, onescan.scan, 64)
        assert_same(run("native", f, h, w), run("xla", f, h, w), rounding=16)


def test_few_results_wait_for_each_other() -> None:
    """Their sums would be chains; shares of a result are summed side by side."""
    f = loop(by_rows, lax.scan, 64)
    for size, rows, transposed in ((64, 1, False), (64, 8, True), (16, 1, True)):
        h, w = np.ones((rows, 64), np.float32), np.ones((64, 64), np.float32)
        plan = choose(loop_in(f, h, w), Machine(size, cores=2))
        assert ((1, 0) in plan.layouts) == transposed
