"""Bodies that are long or deep, and kernels that must stay short to compile fast."""

from __future__ import annotations

import resource
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from engines import assert_engines_agree, run
from gpu_lowering import launches_of
from jax import lax
from kernels import kernel_of, loop_in, plan_of
from processes import output

import onescan
from onescan.emit import budget
from onescan.emit.body import ordered
from onescan.emit.budget import TooLong
from onescan.emit.builder import Builder
from onescan.loop import LeaveToXla
from onescan.runtime import memory
from onescan.targets.cpu.emitter import CpuEmitter


def size_of(f: Callable[..., Any], *args: Any) -> int:
    """Instructions of the kernel of a function's first loop."""
    return budget.instructions(kernel_of(plan_of(loop_in(f, *args))).module)


def chain(n: int, width: int, op: Callable[[Any], Any] = lambda c: c) -> Any:
    def body(c: Any, x: Any) -> Any:
        for _ in range(n):
            c = op(c) * 0.9 + x
        return c, c

    return lambda x: onescan.scan(body, jnp.full((width,) if width else (), 0.1), x)


def nested(depth: int) -> Callable[[Any], Any]:
    if depth == 0:
        return lambda c: jnp.sin(c) * 0.9 + 0.1
    inner = nested(depth - 1)
    return lambda c: onescan.scan(lambda c, _: (inner(c), None), c, None, 4)[0]


def sorting(shape: tuple[int, ...], axis: int = -1) -> Any:
    """Numbers that come up again and again, so that positions break ties."""

    def body(c: Any, x: Any) -> Any:
        values = jnp.where(c > 2, -c, 1 - c * x)
        return lax.sort(values, axis), jnp.argsort(values, axis)

    start = np.random.default_rng(0).integers(-4, 5, shape).astype(np.float32)
    start.ravel()[:2] = np.nan, -0.0
    return lambda x: onescan.scan(body, start, x)


def test_chains_longer_than_python_calls_deep() -> None:
    carry, _ = run("native", chain(600, 0), jnp.ones(2))
    assert float(carry) == pytest.approx(10.0, rel=1e-5)


def test_long_chains_on_a_gpu() -> None:
    with onescan.engine("native"):
        assert launches_of(chain(500, 0), jnp.ones(3))


def test_code_grows_with_the_body() -> None:
    short, long = (size_of(chain(n, 33), jnp.ones(3)) for n in (100, 300))
    assert 2 * short < long < 4 * short


def test_readers_in_front_of_many_updates() -> None:
    """Each update waits for the readers of the old value; Python's stack does not."""

    def body(c: Any, x: Any) -> Any:
        for _ in range(400):
            c = lax.dynamic_update_slice(c, lax.slice(c, (1,), (3,)) + x, (0,))
        return c, None

    loop = loop_in(lambda xs: onescan.scan(body, jnp.ones(8), xs), jnp.ones(3))
    jaxpr = loop.body.jaxpr
    assert len(jaxpr.eqns) > 1000
    assert sorted(map(id, ordered(jaxpr, early=True))) == sorted(map(id, jaxpr.eqns))


def test_inner_loops_are_not_copied_at_every_level() -> None:
    two, five = (size_of(nested(depth), jnp.float32(0.3)) for depth in (2, 5))
    assert five < 1.5 * two
    assert_engines_agree(nested(3), jnp.float32(0.3), ulps=4)


def test_inner_loops_are_not_copied_at_every_level_on_a_gpu() -> None:
    """ptxas takes a fifth of a second for each two thousand instructions."""
    with onescan.engine("native"):
        two, five = (
            sum(len(n.code) for n in launches_of(nested(depth), jnp.float32(0.3)))
            for depth in (2, 5)
        )
    assert five < 2 * two


def test_rows_are_reduced_in_loops() -> None:
    def attention(c: Any, x: Any) -> Any:
        return jax.nn.softmax(c @ c.T + x, -1) @ c, c.sum(-1)

    def rolled(c: Any, x: Any) -> Any:
        return jnp.roll(c - c.mean(-1, keepdims=True), 1, 0) + x, (c.max(-1), c.sum(-1))

    numbers = jnp.ones((64, 64), jnp.float32), jnp.ones(50, jnp.float32)
    for body in (attention, rolled):
        assert size_of(lambda c, x, body=body: lax.scan(body, c, x), *numbers) < 3000


def test_functions_used_often_are_called() -> None:
    few, many = (size_of(chain(n, 33, jnp.sin), jnp.ones(3)) for n in (15, 80))
    assert many < 2 * few
    carry, _ = run("native", chain(15, 33, jnp.sin), jnp.ones(1))
    want = np.float64(0.1)
    for _ in range(15):
        want = np.sin(want) * 0.9 + 1
    np.testing.assert_allclose(carry, want, rtol=1e-6)


def test_reductions_of_many_rows_are_loops() -> None:
    """Sinkhorn's step: the logarithm of sums of exponentials, row by row."""

    def rows(n: int) -> Any:
        body = lambda c, x: (c - 0.1 * jax.nn.logsumexp(c * x - c.T, 1), None)
        return size_of(lambda x: lax.scan(body, jnp.ones((n, n)), x), jnp.ones(3))

    assert rows(64) < 1.6 * rows(16)


def test_long_sorts_are_loops() -> None:
    sizes = [size_of(sorting(shape), jnp.ones(3)) for shape in ((9,), (64,), (16, 20))]
    assert max(sizes) < 1000


@pytest.mark.parametrize(("shape", "axis"), [((3, 17), 1), ((40, 5), 0)])
def test_long_sorts(shape: tuple[int, ...], axis: int) -> None:
    xs = jnp.array([[1.0, 0.0, -1.0]])
    assert_engines_agree(jax.vmap(sorting(shape, axis)), jnp.tile(xs, (5, 1)))
    assert_engines_agree(sorting(shape, axis), xs[0])


def test_what_takes_long_to_compile_goes_to_xla() -> None:
    f = chain(3, 0, lax.lgamma)
    with mock.patch.multiple(budget, LEAST=10, EACH=1):
        onescan.clear_report()
        jax.jit(f).lower(jnp.ones(3))
        (row,) = onescan.report().rows
    assert row.engine == "xla"
    assert "takes longer than XLA takes for the whole loop" in (row.reason or "")


def test_what_xla_compiles_is_counted() -> None:
    """Not what a kernel needs where XLA has one equation, as of complex numbers."""
    loop = loop_in(chain(10, 0), jnp.ones(3))
    short = loop_in(chain(2, 0), jnp.ones(3))
    size = budget.instructions(kernel_of(plan_of(loop)).module)
    with mock.patch.object(budget, "LEAST", size - 10 * budget.EACH):
        budget.require_short(size, budget.longest(loop))
        allowed = budget.longest(loop.replace(plain=short))
        with pytest.raises(LeaveToXla, match=f"more than {allowed:,} instructions"):
            budget.require_short(size, allowed)


@pytest.mark.parametrize("longest", [50, 500])
def test_no_more_is_written_than_a_kernel_may_have(longest: int) -> None:
    written = []

    class Counted(Builder):
        def _write(self, *args: Any) -> Any:
            written.append(args)
            return super()._write(*args)

    plan = plan_of(loop_in(chain(300, 0, lax.lgamma), jnp.ones(3)))
    with mock.patch.object(CpuEmitter, "builder", Counted), pytest.raises(TooLong):
        kernel_of(replace(plan, longest=longest))
    assert len(written) == longest + 1


def test_what_takes_long_to_compile_for_a_gpu_goes_to_xla() -> None:
    assert launches_of(chain(3, 0, lax.lgamma), jnp.ones(3))
    with mock.patch.multiple(budget, LEAST_ON_GPU=10, EACH=1):
        assert not launches_of(chain(4, 0, lax.lgamma), jnp.ones(3))


UNDER_A_LIMIT = """
import resource
import jax
import jax.numpy as jnp
import onescan

jax.jit(lambda x: x + 1)(jnp.ones(3))
with open("/proc/self/status") as status:
    size = next(line for line in status if line.startswith("VmSize"))
limit = (int(size.split()[1]) << 10) + (int(sys.argv[1]) << 20)
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def body(c, x):
    for _ in range(150):
        c = jnp.sin(c) * 0.9 + x
    return c, c


carry, _ = onescan.scan(body, 0.5, jnp.ones(4))
print(float(carry) > 0, onescan.report().rows[0].reason)
"""


@pytest.mark.parametrize("megabytes", [50, 160])
def test_under_a_memory_limit_a_loop_goes_to_xla(megabytes: int) -> None:
    """With too little for LLVM, and with enough for it but not for XLA after it."""
    assert "True this process may take " in output(UNDER_A_LIMIT, str(megabytes))


def test_memory_is_asked_for_by_the_size_of_the_code() -> None:
    memory.require()
    unlimited = (resource.RLIM_INFINITY,) * 2
    with mock.patch.object(memory.resource, "getrlimit", return_value=unlimited):
        assert memory.left() is None
    with mock.patch.object(memory, "left", return_value=120 << 20):
        memory.require()
        with pytest.raises(LeaveToXla, match="120 MiB more memory, and compiling the"):
            memory.require(1 << 30)


def test_a_choice_at_the_end_of_a_long_chain_compiles() -> None:
    """LLVM 22 would look for a checksum in it, for longer than anyone waits."""
    code = """
        import jax, jax.numpy as jnp, onescan

        def body(c, _):
            v = jnp.sqrt(jnp.abs(c) + 1)
            for _ in range(40):
                v = jnp.sqrt(v * (v + 0.5))
            return jnp.where(c > 1, v, v - 1), None

        with onescan.engine("native"):
            f = jax.jit(lambda c: onescan.scan(body, c, None, 64)[0])
            assert jnp.isfinite(f(jnp.float32(2)))
        print("done")
    """
    assert output(code) == "done"


def test_carries_of_side_by_side_numbers_are_copied_by_loops() -> None:
    def body(c: Any, x: Any) -> Any:
        return jnp.sin(c) * 0.5 + c.mean() * x, None

    f = lambda x: onescan.scan(body, jnp.ones((8, 32, 8)), x)
    assert size_of(f, np.ones(50, np.float32)) < 2000  # 4,300 without loops
