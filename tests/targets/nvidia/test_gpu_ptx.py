"""The code for GPUs, on a machine that has none: read, and assembled if possible.

Every named loop is compiled for three generations of chips, each under another
transformation; every loop of the benchmark for one of them.
"""

from __future__ import annotations

import sys
from functools import cache, partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import CASES, DIFFERENTIABLE
from engine_operations import inputs, loop
from engines import FLOATS, kernels_alone
from gpu_lowering import Launch, launches_of
from jax import lax
from kernels import loop_in
from ptx_text import assemble, assembler, count, loops, time_loop
from sampling import sample
from transforms import TRANSFORMS

import onescan
from onescan.targets.nvidia.machine import Chip
from onescan.targets.nvidia.target import Nvidia

sys.path.append(str(Path(__file__).parents[3] / "benchmarks"))
import gpu_cases

A100, H200, B200 = Chip(80, 108), Chip(90, 132), Chip(100, 148)
BENCHMARKS = {case.name: case for case in gpu_cases.CASES}
#: loops whose lanes have a thread each
ALONE = [
    *("logistic/scalar", "stack/scalar", "lorenz/1024", "lorenz/100000", "nbody/grad"),
    *("gae/64", "gae/4096", "kalman/4", "kalman/4x1024", "biquad", "walk", "ring/set"),
]


@cache
def kernels(name: str) -> list[Launch]:
    """The kernels of a loop of the benchmark on an H200."""
    fn, args = BENCHMARKS[name].build()
    return launches_of(partial(fn, onescan.scan, 1), *args, chip=H200)


def check(launches: list[Launch], folder: Path) -> list[str]:
    """No function is missing, and the assembler takes it; what that says."""
    said = []
    for launch in launches:
        assert f".target sm_{launch.capability}" in launch.code
        assert f".entry {launch.name}(" in launch.code
        assert ".extern .func" not in launch.code
        if assembler():
            said.append(assemble(launch.code, launch.capability, folder))
    return said


@pytest.mark.parametrize("name", CASES)
def test_named_loops(name: str, tmp_path: Path) -> None:
    last = "grad" if name in DIFFERENTIABLE else "nested"
    for transform, chip in (("plain", H200), ("vmap", A100), (last, B200)):
        if transform != "plain" and not sample([f"{name} {transform}"], one_of=3):
            continue
        run = partial(TRANSFORMS[transform], onescan.scan, CASES[name])
        launches = launches_of(run, chip=chip)
        assert all(launch.capability == chip.capability for launch in launches)
        check(launches, tmp_path)


@pytest.mark.parametrize("name", BENCHMARKS)
def test_benchmark_loops(name: str, tmp_path: Path) -> None:
    launches = kernels(name)
    assert launches, "left to XLA"
    check(launches, tmp_path)


@pytest.mark.parametrize("dtype", [*FLOATS, "int32"])
def test_elementwise_operations(dtype: str, tmp_path: Path) -> None:
    """No operation needs a function that only the C library has."""
    with kernels_alone():
        launches = launches_of(loop(dtype, mixed=False), *inputs(dtype, (33,)))
    assert len(launches) == 1
    check(launches, tmp_path)


@pytest.mark.parametrize("name", ALONE)
def test_lanes_stay_in_registers(name: str, tmp_path: Path) -> None:
    for launch in kernels(name):
        assert ".local" not in launch.code
        assert count("bar", launch.code) == 0
    for said in check(kernels(name), tmp_path):
        assert "0 bytes spill stores" in said


@pytest.mark.parametrize("name", ["gru/forward/64x128", "lstm/forward/64x128"])
def test_recurrent_weights_stay_in_a_block(name: str) -> None:
    """Loaded before the first step; then each step has two barriers."""
    (launch,) = kernels(name)
    gates = 3 if name.startswith("gru") else 4
    step = time_loop(launch.code)
    assert len(loops(launch.code)) == 1
    assert count("bar.sync", step) == 2
    # a share of one row of x @ wx, which is computed beforehand, and the biases
    xs = -(-gates * 128 // (32 * launch.warps))
    assert count("ld.global", step) <= xs + gates
    weights = gates * 128 * 128 // (32 * launch.warps)
    before = count("ld.global", launch.code) - count("ld.global", step)
    assert before >= weights
    if gates == 3:  # all of them in registers
        assert count("ld.shared", step) < 128


def test_recurrent_weights_of_many_blocks() -> None:
    """Too many for one: blocks of a cluster have a share each, and send it around."""
    (launch,) = kernels("gru/forward/64x256")
    step = time_loop(launch.code)
    assert launch.team > 1
    waits = count("mbarrier.try_wait", step), count("barrier.cluster.wait", step)
    assert any(waits)
    assert count("ld.global", step) <= 8


@pytest.mark.parametrize("name", ["gru/grad/64x256", "lstm/grad/64x256"])
def test_teams_exchange_by_mail_alone(name: str) -> None:
    """States on the way there, gradients of the gates on the way back.

    What each block needs only its own share of is sent to nobody: the gates' gradients
    go to every block of the team, and nothing else does.
    """
    for launch, shares in zip(
        kernels(name), (1, 3 if "gru" in name else 4), strict=True
    ):
        step = time_loop(launch.code)
        assert count("mbarrier.try_wait", step) >= 1
        assert count("barrier.cluster", step) == 0
        sent = count("st.async", step)
        assert sent % (shares * launch.team) == 0
        assert sent > 0


def test_no_spills_where_weights_fill_the_registers(tmp_path: Path) -> None:
    if not assembler():
        pytest.skip("there is no ptxas")
    for said in check(kernels("gru/forward/64x128"), tmp_path):
        assert "0 bytes spill stores" in said


def test_float_remainders_are_ours() -> None:
    """LLVM's own for GPUs is wrong for large quotients; ours has loops."""

    def f(x: Any, y: Any) -> Any:
        return onescan.scan(lambda c, a: (c, jax.lax.rem(a, c)), x, y)

    for dtype in (np.float32, np.float16):
        (launch,) = launches_of(f, dtype(3), np.ones(3, dtype))
        assert count("div.rn.f32", time_loop(launch.code)) == 1
        assert count("fma.rn.f32", launch.code) >= 1


def test_shifts_of_64_bits_look_at_all_of_them() -> None:
    """LLVM's own for GPUs would shift by the lower half of a count past the width."""
    with jax.enable_x64(True):
        shift = lambda c, n: (c, (c << n, lax.shift_right_logical(c, n)))
        f = lambda c, n: onescan.scan(shift, c, n)
        (launch,) = launches_of(f, np.int64(3), np.ones(3, np.int64))
    assert count("min.u64", launch.code) == count("cvt.u32.u64", launch.code) == 3


def test_halves_are_rounded_after_every_operation() -> None:
    """LLVM would make one operation of a product and a sum, rounded once."""

    def f(x: Any, y: Any) -> Any:
        return onescan.scan(lambda c, a: (c * a + a, None), x, y)

    (launch,) = launches_of(f, np.float16(3), np.ones(3, np.float16))
    assert count("cvt.rn.f16.f32", launch.code) >= 2 * 3
    assert count("fma.rn", launch.code) == 0


def test_halves_that_nothing_changed_keep_their_bits() -> None:
    """A conversion to float32 and back would make one NaN of all of them."""

    def f(x: Any, y: Any) -> Any:
        bits = lambda c, a: (c, (a, lax.bitcast_convert_type(a, jnp.int16)))
        return onescan.scan(bits, x, y)

    def order(x: Any, y: Any) -> Any:  # NaNs by their signs, which conversions drop
        return onescan.scan(lambda c, a: (c, lax.lt_to_p.bind(a, c)), x, y)

    (launch,) = launches_of(f, np.float32(3), np.ones(3, np.float16))
    assert count("cvt.rn.f16.f32", launch.code) == 0
    (launch,) = launches_of(order, np.float16(3), np.ones(3, np.float16))
    assert count("cvt", launch.code) == 0


def test_the_checks_can_fail(tmp_path: Path) -> None:
    (launch,) = launches_of(
        lambda x: onescan.scan(lambda c, _: (jnp.sin(c), None), x, None, 9), 0.5
    )
    check([launch], tmp_path)
    if assembler():
        broken = launch.code.replace("ret;", "no such instruction;")
        with pytest.raises(AssertionError, match="error"):
            assemble(broken, 90, tmp_path)
    assert count("bar.sync", "\tbar.sync \t0;\n\tbarrier.cluster.wait;\n") == 1
    assert loops("$L__BB0_1:\n\tadd;\n\t@%p1 bra \t$L__BB0_1;\n") != []


def test_no_barrier_of_some_blocks_alone():
    """What all lanes share is written by one block; others meet without it too."""

    def body(c, x):
        key = jnp.stack([x, x ^ jnp.uint32(77)])
        split = lambda i, c: (c[0] + i, jax.random.split(c[1])[0])
        count, key = lax.fori_loop(0, 9, split, (0, key))
        return c + key, (count, key)

    def f(xs):
        start = jnp.zeros(2, jnp.uint32)
        return jax.vmap(lambda x: lax.scan(body, start, x), in_axes=1)(xs)

    target = Nvidia(Chip(90, 132))
    loop = loop_in(f, jnp.ones((17, 3), jnp.uint32))
    plan, kernel = target.fitting(target.plan(loop))
    assert plan.grid.together
    text = str(kernel.module)
    branch = text.index("done.if:\n")
    assert "barrier0" in text[text.rindex("\ndone:", 0, branch) : branch]
    assert "barrier0" not in text[branch : text.index("\nphase", branch)]
