"""Loops under `jax.vmap`, whose xs and ys lie lane by lane outside of the kernel."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from compare import assert_same
from engines import kernels_alone
from jax import lax
from kernels import by_kernel, by_xla, inputs_of, loop_in, plan_of
from sampling import pairs

import onescan
from onescan.emit.staged import STEPS
from onescan.plan.plan import Plan
from onescan.targets.cpu.machine import host
from onescan.targets.cpu.target import Cpu

F = np.float32


@pytest.fixture
def plans(monkeypatch: pytest.MonkeyPatch) -> list[Plan]:
    """The plans of the loops that a test lowers."""
    found: list[Plan] = []
    build = Cpu.build
    note = lambda target, plan: (found.append(plan), build(target, plan))[1]
    monkeypatch.setattr(Cpu, "build", note)
    jax.clear_caches()
    return found


def filtered(c: Any, xs: Any, scan: Any = onescan.scan) -> Any:
    step = lambda c, x: (0.5 * c + x, jnp.stack([c, x, c * x]))
    return scan(step, c, xs)


def data(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).normal(size=shape).astype(F)


def moves_nothing(program: Any) -> bool:
    return "transpose(" not in program.as_text()


# what is known of a batch


def test_nothing_is_moved_around_a_batched_loop(plans: list[Plan]) -> None:
    args = data(20), data(20, 50)
    program = jax.jit(jax.vmap(filtered)).lower(*args).compile()
    assert plans[-1].batch_major == [1, 3]
    assert moves_nothing(program)
    stock = jax.vmap(lambda *a: filtered(*a, scan=lax.scan))
    assert_same(program(*args), stock(*args))


def test_a_batch_of_batches(plans: list[Plan]) -> None:
    args = data(3, 20), data(3, 20, 50)
    program = jax.jit(jax.vmap(jax.vmap(filtered))).lower(*args).compile()
    assert plans[-1].loop.added_axes == 2
    assert moves_nothing(program)
    stock = jax.vmap(jax.vmap(lambda *a: filtered(*a, scan=lax.scan)))
    assert_same(program(*args), stock(*args))


def test_time_stays_in_front_where_it_is(plans: list[Plan]) -> None:
    args = data(20), data(50, 20)
    f = jax.vmap(filtered, in_axes=(0, 1), out_axes=(0, 1))
    program = jax.jit(f).lower(*args).compile()
    assert plans[-1].batch_major == []
    assert moves_nothing(program)


UNKNOWN: dict[str, Callable[..., Any]] = {
    "no batch": filtered,
    "batched as a whole": jax.vmap(jax.jit(filtered)),
    "gradient of a batch": jax.grad(lambda c, x: jax.vmap(filtered)(c, x)[1].sum()),
    "batch of gradients": jax.vmap(jax.grad(lambda c, x: filtered(c, x)[1].sum())),
    "values too": jax.value_and_grad(lambda c, x: jax.vmap(filtered)(c, x)[1].sum()),
}


@pytest.mark.parametrize("name", UNKNOWN)
def test_time_stays_in_front_where_nothing_is_known(
    name: str, plans: list[Plan]
) -> None:
    jax.jit(UNKNOWN[name]).lower(
        data(20), data(20, 50) if name != "no batch" else data(50, 20)
    )
    assert plans
    assert all(plan.batch_major == [] for plan in plans)


def test_time_stays_in_front_without_jit(plans: list[Plan]) -> None:
    jax.vmap(filtered)(data(20), data(20, 50))
    assert [plan.batch_major for plan in plans] == [[]]


def smooth(c: Any, xs: Any) -> Any:
    return onescan.scan(lambda c, x: (jnp.sin(c) + x, c), c, xs)


def rolled(c: Any, xs: Any) -> Any:
    """Vectors lie along nothing that is independent."""
    return onescan.scan(lambda c, x: (jnp.roll(c, 1) * 0.5 + x, c), c, xs)


def flattened(c: Any, xs: Any) -> Any:
    """Rows that a pass takes as one dimension, and the program as two."""
    return onescan.scan(lambda c, x: (0.5 * c + x, c.reshape(-1) * 2), c, xs)


def spun(c: Any, xs: Any) -> Any:
    """Complex numbers, whose two parts have to lie alike."""
    turn = lambda c, x: (jnp.roll(c, 1) * (0.5 + 0.1j) + x, jnp.conj(c) * x)
    c, xs = jax.lax.complex(c, c * 0.5), jax.lax.complex(xs, xs * 0.3)
    return onescan.scan(turn, c, xs)


ROWS = [
    *((smooth, (40,)), (rolled, (40,)), (smooth, (7, 33)), (rolled, (50,))),
    *((flattened, (5, 13)), (rolled, (3, 40))),
]


@pytest.mark.parametrize(("f", "shape"), ROWS)
@pytest.mark.parametrize("axes", [1, 2])
def test_rows_are_read_where_they_lie(
    f: Any, shape: Any, axes: int, plans: list[Plan]
) -> None:
    batch = (3, 2)[:axes]
    args = data(*batch, *shape), data(*batch, 9, *shape)
    batched = jax.vmap(jax.vmap(f)) if axes == 2 else jax.vmap(f)
    program = jax.jit(batched).lower(*args).compile()
    assert plans[-1].batch_major == [1, 3]
    assert moves_nothing(program)
    with onescan.engine("xla"):
        expected = jax.jit(lambda *a: batched(*a))(*args)
    assert_same(program(*args), expected)


@pytest.mark.parametrize(("f", "shape"), ROWS)
def test_rows_with_time_in_front_stay_so(f: Any, shape: Any, plans: list[Plan]) -> None:
    args = data(6, *shape), data(9, 6, *shape)
    batched = jax.vmap(f, in_axes=(0, 1), out_axes=(0, 1))
    program = jax.jit(batched).lower(*args).compile()
    assert plans[-1].batch_major == []
    assert moves_nothing(program)
    with onescan.engine("xla"):
        expected = jax.jit(lambda *a: batched(*a))(*args)
    assert_same(program(*args), expected)


def test_vectors_along_lanes_take_no_rows() -> None:
    """Five sums for each of 17 lanes: vectors lie across them, along the lanes."""
    f = jax.vmap(lambda x, y: onescan.scan(product, 0, (x, y)))
    product = lambda n, xs: (n + 1, xs[0] @ xs[1])
    args = data(17, 3, 5, 7), data(17, 3, 7)
    with onescan.engine("native"):
        got = jax.jit(f)(*args)
    with onescan.engine("xla"):
        expected = jax.jit(lambda *args: f(*args))(*args)
    assert_same(got, expected)


@pytest.mark.parametrize("shape", [(3,), (40,), (5, 13)])
@pytest.mark.parametrize("lanes", [1, 20])
@pytest.mark.parametrize("axis", [0, 1])
def test_rows_of_complex_numbers(shape: Any, lanes: int, axis: int) -> None:
    steps = (9, lanes) if axis else (lanes, 9)
    f = jax.vmap(spun, in_axes=(0, axis))
    loss = lambda *args: sum(jnp.sum(abs(y) ** 2) for y in f(*args))
    both = lambda *args: (f(*args), jax.grad(loss, (0, 1))(*args))
    args = data(lanes, *shape), data(*steps, *shape)
    with onescan.engine("native"):
        got = jax.jit(both)(*args)
    with onescan.engine("xla"):
        expected = jax.jit(lambda *args: both(*args))(*args)
    assert_same(got, expected)


@pytest.mark.parametrize("half", ["first", "second"])
def test_rows_that_the_program_makes_stay_as_they_are(
    half: str, plans: list[Plan]
) -> None:
    """Both halves of time, one of which is made of what another loop gave."""

    def f(c: Any, xs: Any) -> Any:
        c, ys = rolled(c, xs)
        return rolled(c, jnp.tanh(ys) if half == "first" else ys[4:])

    args = data(6, 40), data(6, 9, 40)
    got = jax.jit(jax.vmap(f))(*args)
    assert len(plans) >= 2
    with onescan.engine("xla"):
        expected = jax.jit(lambda *a: jax.vmap(f)(*a))(*args)
    assert_same(got, expected)


def test_random_keys() -> None:
    def walk(scan: Any) -> Any:
        def one(keys: Any) -> Any:
            step = lambda c, key: (c + jax.random.normal(key), key)
            return scan(step, jnp.float32(0), keys)

        keys = jax.random.split(jax.random.key(0), (20, 33))
        last, seen = jax.jit(jax.vmap(one))(keys)
        return last, jax.random.key_data(seen)

    assert_same(walk(onescan.scan), walk(lax.scan))


# what is seen of one, around a loop of a library's


@pytest.fixture
def _installed() -> Iterator[None]:
    onescan.install()
    yield
    onescan.uninstall()


def smoothed(c: Any, xs: Any) -> Any:
    """Forth, and back over all but the last of what that gave."""
    step = lambda c, x: (0.5 * c + x, jnp.stack([c, x]))
    _, ys = lax.scan(step, c, xs)
    back = lambda c, y: (0.5 * c + y.sum(), c * y)
    return lax.scan(back, c, ys[:-1], reverse=True)[1]


@pytest.mark.usefixtures("_installed")
def test_a_batch_is_seen_where_xs_are_moved(plans: list[Plan]) -> None:
    args = data(20), data(20, 50)
    f = jax.vmap(smoothed)
    program = jax.jit(f).lower(*args).compile()
    forth, *_, back = plans
    assert forth.batch_major == [1, 3]
    assert back.batch_major == [1, 3]
    assert back.wholes == {1: 50}
    assert moves_nothing(program)
    native = program(*args)
    onescan.uninstall()
    assert_same(native, jax.jit(lambda *a: f(*a))(*args))


@pytest.mark.usefixtures("_installed")
def test_a_batch_is_seen_where_steps_take_their_part(plans: list[Plan]) -> None:
    def f(c: Any, rows: Any) -> Any:
        step = lambda c, t: (0.5 * c + rows[t], jnp.stack([c, rows[t]]))
        return lax.scan(step, c, jnp.arange(50))[1]

    args = data(20), data(20, 50)
    program = jax.jit(jax.vmap(f)).lower(*args).compile()
    assert plans[-1].loop.added_axes == 1
    native = program(*args)
    onescan.uninstall()
    assert_same(native, jax.jit(jax.vmap(f))(*args))


@pytest.mark.usefixtures("_installed")
def test_no_batch_is_seen_where_time_is_in_front(plans: list[Plan]) -> None:
    f = lambda c, xs: filtered(c, xs, scan=lax.scan)
    jax.jit(f).lower(data(20), data(50, 20))
    jax.jit(jax.vmap(f, in_axes=(0, 1))).lower(data(20), data(50, 20))
    assert all(plan.batch_major == [] for plan in plans)


# the kernel


def several(dtype: Any) -> Any:
    """A number, a few numbers and a matrix; what goes in comes out, too."""

    def step(c: Any, x: Any) -> Any:
        one, few, matrix = x
        total = (c + one).astype(dtype)
        ys = total, few, c, jnp.stack([few[::-1], few * one]), matrix.T + total
        return total, ys

    return step


def batched(step: Any, reverse: bool = False) -> Callable[..., Any]:
    return jax.vmap(lambda c, xs: lax.scan(step, c, xs, reverse=reverse))


def apart(f: Callable[..., Any], *args: Any) -> tuple[Plan, list[np.ndarray]]:
    loop = loop_in(f, *args).replace(added_axes=1)
    return plan_of(loop), inputs_of(loop)


def args_of(lanes: int, steps: int, dtype: Any) -> tuple[Any, ...]:
    shapes = (lanes, steps), (lanes, steps, 3), (lanes, steps, 2, 2)
    return np.zeros(lanes, dtype), tuple(np.zeros(s, dtype) for s in shapes)


@pytest.mark.parametrize(
    ("dtype", "steps", "lanes"),
    pairs(
        [F, np.int8, np.float16, np.float64, np.int64],
        [1, STEPS - 1, STEPS, 2 * STEPS + 5],
        [4, 9, 16, 33, 100],
    ),
)
def test_no_access_leaves_its_buffer(dtype: Any, steps: int, lanes: int) -> None:
    with kernels_alone(), jax.enable_x64(True):
        f = batched(several(dtype), reverse=lanes % 2 == 0)
        plan, inputs = apart(f, *args_of(lanes, steps, dtype))
        few = lanes <= host().vector_bytes // 4  # then vectors may lie along others
        assert len(plan.batch_major) >= 7 or few
        expected = by_xla(plan.loop, inputs)
        for side in ("end", "start"):
            assert_same(by_kernel(plan, inputs, side), expected)


@pytest.mark.parametrize("size", [16, 19, 40])
@pytest.mark.parametrize("turn", [False, True])
def test_no_row_leaves_its_buffer(size: int, turn: bool) -> None:
    def step(c: Any, x: Any) -> Any:
        c = 0.5 * (jnp.roll(c, 1, -1) if turn else c) + x
        return c, (jnp.sin(c), c[..., :2])

    args = np.zeros((5, size), F), np.zeros((5, 11, size), F)
    with kernels_alone():
        plan, inputs = apart(batched(step, reverse=turn), *args)
        assert {1, 3} <= set(plan.batch_major)
        expected = by_xla(plan.loop, inputs)
        for side in ("end", "start"):
            assert_same(by_kernel(plan, inputs, side), expected)


def test_flags() -> None:
    step = lambda c, x: (c ^ x, ~x | c)
    with kernels_alone():
        plan, inputs = apart(
            batched(step), np.zeros(40, bool), np.zeros((40, 37), bool)
        )
        assert plan.batch_major
        assert_same(by_kernel(plan, inputs), by_xla(plan.loop, inputs))


def test_tiles_are_independent() -> None:
    with kernels_alone():
        plan, inputs = apart(batched(several(F)), *args_of(200, 21, F))
        assert plan.tiles > 2
        together = by_kernel(plan, inputs)
        for a, b in zip(
            together, by_kernel(plan, inputs, one_by_one=True), strict=True
        ):
            np.testing.assert_array_equal(a, b)


def test_a_wrong_place_is_seen() -> None:
    with kernels_alone():
        plan, inputs = apart(batched(several(F)), *args_of(20, 21, F))
        wrong = [np.roll(x, 1, 0) for x in by_xla(plan.loop, inputs)]
        with pytest.raises(AssertionError, match="Not equal to tolerance"):
            assert_same(by_kernel(plan, inputs), wrong)
