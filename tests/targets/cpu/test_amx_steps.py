"""Products of a step by the matrix unit: any shape, any numbers, and its own limits."""

from __future__ import annotations

import ctypes
from functools import partial
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from engines import kernels_alone
from jax import lax
from kernels import by_kernel, kernel_of, loop_in, plan_of

import onescan
from onescan.plan.plan import Plan
from onescan.runtime import compiler
from onescan.targets.cpu import handler
from onescan.targets.cpu import kernel as cpu
from onescan.targets.cpu import plan as chosen
from onescan.targets.cpu.machine import Machine, host
from onescan.targets.cpu.plan import choose
from onescan.targets.cpu.products import steps as planned

HOST = host()
STEPS = 34

needs_the_unit = pytest.mark.skipif(
    "amx" not in HOST.features, reason="this processor has no matrix unit"
)


@pytest.fixture(autouse=True)
def any_size(monkeypatch):
    """Also products that are too small to gain by it, and all along their columns."""
    for name in ("ROWS", "DEPTH", "COLUMNS"):
        monkeypatch.setattr(planned, name, 1)
    monkeypatch.setattr(chosen, "_lane_cost", lambda *_: float("inf"))
    monkeypatch.setattr(chosen, "WORTH_THREADS", 0)


def product(h: Any, w: Any, transposed: bool) -> Any:
    return lax.dot_general(h, w, (((1,), (1 if transposed else 0,)), ((), ())))


def plan_for(
    rows: int, depth: int, columns: int, transposed: bool = False, cores: int = 1
) -> Plan:
    """A loop whose ys are the products of the x before with a constant matrix.

    The largest of each row is there as well, so that only rows can be cut into tiles.
    """
    shape = (columns, depth) if transposed else (depth, columns)

    def step(w: Any, h: Any, x: Any) -> Any:
        y = product(h, w, transposed)
        return x, (y, y.max(1))

    def f(w: Any, h: Any, xs: Any) -> Any:
        return lax.scan(partial(step, w), h, xs)

    types = shape, (rows, depth), (STEPS, rows, depth)
    loop = loop_in(f, *(jnp.zeros(s, jnp.float32) for s in types))
    return choose(loop, Machine(HOST.vector_bytes, cores, HOST.features))


def operands_of(plan: Plan, seed: int = 0) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    loop = plan.loop
    w, h = (aval.shape for aval in (*loop.const_avals, *loop.carry_avals))
    shapes = w, h, (STEPS, *h)
    return [rng.normal(size=shape).astype(np.float32) for shape in shapes]


def expected_of(w: Any, h: Any, xs: Any, transposed: bool) -> tuple[Any, Any]:
    """The products in float64, and the sums of the absolute values of their terms."""
    before = np.concatenate([h[None], xs[:-1]]).astype(np.float64)
    w = (w.T if transposed else w).astype(np.float64)
    with np.errstate(all="ignore"):
        return before @ w, np.abs(before) @ np.abs(w)


def is_by_unit(plan: Plan) -> bool:
    return "tdpbf16ps" in str(kernel_of(plan).module)


SHAPES = [
    (16, 32, 16),
    (32, 64, 64),
    (48, 96, 80),
    (1, 1, 1),
    (17, 33, 31),
    (40, 100, 47),
    (63, 50, 130),
    (5, 130, 65),
]


@needs_the_unit
@pytest.mark.parametrize("transposed", [False, True], ids=["plain", "transposed"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_every_shape(shape, transposed):
    """As right as float32 can be, and inside the buffers, whose last bytes count."""
    plan = plan_for(*shape, transposed=transposed)
    assert is_by_unit(plan)
    w, h, xs = operands_of(plan)
    for side in ("end", "start"):
        ys = by_kernel(plan, [w, h, xs], side)[1]
        exact, size = expected_of(w, h, xs, transposed)
        assert (np.abs(ys - exact) <= 4 * 2**-24 * size).all()


@needs_the_unit
def test_nearer_than_one_sum_after_the_other():
    plan, plainer = (plan_for(32, 256, 64, cores=1) for _ in range(2))
    plainer = choose(plainer.loop, Machine(HOST.vector_bytes, 1))
    assert (is_by_unit(plan), is_by_unit(plainer)) == (True, False)
    inputs = operands_of(plan)
    exact, size = expected_of(*inputs, transposed=False)
    errors = [(by_kernel(p, inputs)[1] - exact) / size for p in (plan, plainer)]
    ours, other = (np.sqrt(np.mean(e**2)) for e in errors)
    assert ours < other


ODD = [np.inf, -np.inf, np.nan, 3.4e38, -3.4028235e38]


@needs_the_unit
@pytest.mark.parametrize("transposed", [False, True], ids=["plain", "transposed"])
@pytest.mark.parametrize("number", ODD)
@pytest.mark.parametrize("where", ["weights", "x", "both"])
def test_numbers_without_pieces(number, where, transposed):
    """What float32 arithmetic gives: only the products that meet such a number."""
    plan = plan_for(40, 70, 50, transposed=transposed)
    w, h, xs = operands_of(plan)
    if where != "x":
        w[3, 5] = number
    if where != "weights":
        h[2, 7] = xs[5, 39, 3] = number
    ys = by_kernel(plan, [w, h, xs])[1]
    exact, size = expected_of(w, h, xs, transposed)
    with np.errstate(all="ignore"):
        nearest = exact.astype(np.float32)
    np.testing.assert_array_equal(np.isnan(ys), np.isnan(nearest))
    odd = ~np.isfinite(nearest)
    np.testing.assert_array_equal(ys[odd], nearest[odd])
    assert (np.abs(ys[~odd] - exact[~odd]) <= 8 * 2**-24 * size[~odd]).all()


@needs_the_unit
@pytest.mark.parametrize("sign", [1, -1])
def test_products_that_are_too_large(sign):
    """Of pieces, some may be infinite with the one and some with the other sign."""
    plan = plan_for(40, 70, 50)
    w, h, xs = (np.zeros_like(a) for a in operands_of(plan))
    rng = np.random.default_rng(0)
    w[3] = (1 + rng.random(50)) * 1e20
    h[:, 3] = sign * (1 + rng.random(40)) * 1e30
    xs[:, :, 3] = 1 + rng.random(xs.shape[:2])
    ys = by_kernel(plan, [w, h, xs])[1]
    assert (ys[0] == sign * np.inf).all()
    assert np.isfinite(ys[1:]).all()


@needs_the_unit
def test_tiny_numbers():
    """Wrong by no more than if the smallest pieces were zero."""
    plan = plan_for(16, 64, 32)
    w, h, xs = operands_of(plan)
    h *= np.float32(1e-36)
    xs[:10] *= np.float32(2.0**-120)
    xs[10:20] *= np.float32(2.0**-140)
    ys = by_kernel(plan, [w, h, xs])[1]
    exact, size = expected_of(w, h, xs, transposed=False)
    lost = 2.0**-126 * np.abs(w).sum(0)
    assert (np.abs(ys - exact) <= 4 * 2**-24 * size + 2 * lost).all()


@needs_the_unit
@pytest.mark.parametrize("number", [1, np.nan])
def test_the_same_for_any_number_of_threads(number):
    """A row's result does not depend on those it is computed with."""
    found = []
    for cores in (1, 2, 3, 6):
        plan = plan_for(96, 64, 48, cores=cores)
        w, h, xs = operands_of(plan)
        xs[3, 40, 9] = number
        assert plan.tiles == cores
        found.append(by_kernel(plan, [w, h, xs], one_by_one=True)[1])
    for other in found[1:]:
        np.testing.assert_array_equal(found[0], other)


@needs_the_unit
def test_no_memory():
    """A system that gives none: the product is done without the unit."""
    plan = plan_for(32, 64, 48)
    kernel = kernel_of(plan)
    asked = []
    kind = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
    refuse = kind(lambda alignment, size: asked.append((alignment, size)))
    address = ctypes.cast(refuse, ctypes.c_void_p).value
    assert address is not None
    imports = {**handler.runtime(), "aligned_alloc": address}
    found = compiler.link(cpu._text(kernel), ["kernel"], imports).kept()["kernel"]
    inputs = operands_of(plan)
    shapes = (32, 64), (STEPS, 32, 48), (STEPS, 32)
    outs = [np.zeros(shape, np.float32) for shape in shapes]
    pointers = (ctypes.c_void_p * 6)(*(a.ctypes.data for a in [*inputs, *outs]))
    call = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
    call(found)(ctypes.addressof(pointers), 0, 1)
    assert asked == [(64, (3 + 2) * 2 * 3 * 1024)]
    exact, size = expected_of(*inputs, transposed=False)
    assert (np.abs(outs[1] - exact) <= 8 * 2**-24 * size).all()


@needs_the_unit
@pytest.mark.parametrize("case", ["two", "both ways", "other rows"])
def test_several_products(case):
    """Of one loop: with their own weights, rows, and orders."""
    rng = np.random.default_rng(0)
    w, v = (0.1 * rng.normal(size=(96, 96)).astype(np.float32) for _ in range(2))
    h = rng.normal(size=(32, 96)).astype(np.float32)

    def step(h: Any, _: Any) -> Any:
        if case == "two":
            return jnp.tanh(h @ w + jnp.sin(h) @ v), h
        if case == "both ways":
            return jnp.tanh(product(h @ w, w, transposed=True)), h
        return jnp.tanh(h @ w).at[:16].add(jnp.sin(h[:16] @ v)), h

    f = lambda scan: lambda w, v, h: scan(step, h, None, length=STEPS)
    with kernels_alone(), onescan.engine("native"):
        ours = f(onescan.scan)(w, v, h)
    stock = f(lax.scan)(w, v, h)
    for a, b in zip(ours, stock, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-3)
    assert is_by_unit(plan_of(loop_in(f(lax.scan), w, v, h)))


@needs_the_unit
def test_the_report_says_so():
    w, h = jnp.ones((96, 96)) / 96, jnp.ones((32, 96))
    onescan.clear_report()
    onescan.scan(lambda h, _: (jnp.tanh(h @ w), None), h, None, length=STEPS)
    (row,) = onescan.report().rows
    assert "gave 1 matrix product of each step to the processor's" in str(row)


def left(**changes: Any) -> bool:
    """Whether vectors do a product that the unit would do but for some changes."""
    how = {"rows": 32, "depth": 128, "columns": 128, "dtype": "float32", "steps": 64}
    how |= {"constant": True} | changes
    w = jnp.zeros((how["depth"], how["columns"]), how["dtype"])
    h = jnp.zeros((how["rows"], how["depth"]), how["dtype"])

    def f(w: Any, h: Any) -> Any:
        if how["constant"]:
            return lax.scan(lambda h, _: (h + 1, h @ w), h, None, how["steps"])
        step = lambda c, _: ((c[0] + 1, c[1] + 1), c[0] @ c[1])
        return lax.scan(step, (h, w), None, how["steps"])

    machine = Machine(64, 1, frozenset(["avx512", "amx"]))
    return not is_by_unit(choose(loop_in(f, w, h), machine))


def test_what_it_is_for(monkeypatch):
    """Constant float32 matrices, large enough, in enough steps."""
    monkeypatch.undo()
    assert not left()
    for changes in (
        {"rows": 8},
        {"depth": 64},
        {"columns": 32},
        {"steps": 16},
        {"dtype": "bfloat16"},
        {"constant": False},
        {"depth": 2048, "columns": 1024, "rows": 16},
    ):
        assert left(**changes), changes
