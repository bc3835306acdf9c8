"""Code that is made while the rest of its program is lowered."""

from __future__ import annotations

import threading
import weakref
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import onescan
from onescan.lowering import hook
from onescan.runtime import beside, compiler
from onescan.targets import trial
from onescan.targets.cpu import handler, target
from onescan.tune import choose
from onescan.tune.choose import Border

pytestmark = pytest.mark.skipif(
    jax.default_backend() != "cpu", reason="programs for a GPU hold their code"
)

X = np.linspace(0, 1, 12, dtype=np.float32)
LINK, MEASURED = compiler.link, trial.measured


def two_loops(a: float) -> Any:
    def total(x: Any) -> Any:
        def step(c: Any, x: Any) -> Any:
            c = jnp.tanh(a * c + x)
            return c, c

        return onescan.scan(step, jnp.zeros(()), x)[1].sum()

    return jax.grad(total)


def by_xla(a: float) -> np.ndarray:
    with onescan.engine("xla"):
        return np.asarray(jax.jit(two_loops(a))(X))


def fresh() -> None:
    jax.clear_caches()
    hook._of_the_same.cache_clear()


def threads_of(function: Any) -> set[str]:
    """Run it; the threads in which code was made."""
    found = []

    def link(*args: Any) -> Any:
        found.append(threading.current_thread().name)
        return LINK(*args)

    handler.loaded()  # which is code, too
    with mock.patch.object(compiler, "link", link):
        fresh()
        function()
    return set(found)


def test_a_program_of_several_loops_is_compiled_beside() -> None:
    def run() -> None:
        with onescan.engine("native"):
            ours = jax.jit(two_loops(0.51))(X)
        np.testing.assert_allclose(ours, by_xla(0.51), rtol=1e-5)

    names = threads_of(run)
    assert names
    assert all(name.startswith("onescan-llvm") for name in names)


def test_so_is_a_program_of_one_loop() -> None:
    """Its code is made while XLA compiles the rest."""

    def run() -> None:
        with onescan.engine("native"):
            jax.jit(lambda x: onescan.scan(lambda c, x: (c * 0.52 + x, None), 0.0, x))(
                X
            )

    names = threads_of(run)
    assert names
    assert all(name.startswith("onescan-llvm") for name in names)


def test_one_whose_memory_is_limited_is_not() -> None:
    with mock.patch.object(hook.memory, "left", return_value=1 << 40):
        found = threads_of(lambda: jax.jit(two_loops(0.53))(X))
    assert found == {threading.current_thread().name}


@pytest.mark.parametrize("where", ["beside", "everywhere"])
def test_code_that_cannot_be_made(where: str) -> None:
    """XLA gets the loop, with a warning, if it cannot be made in a second try."""
    main = threading.current_thread().name

    def link(*args: Any) -> Any:
        if where == "everywhere" or threading.current_thread().name != main:
            raise compiler.CompilerError("LLVM refused the code of a kernel: no")
        return LINK(*args)

    a = 0.54 if where == "beside" else 0.55
    fresh()
    onescan.clear_report()
    with mock.patch.object(compiler, "link", link):
        if where == "beside":
            ours = jax.jit(two_loops(a))(X)
        else:
            with pytest.warns(onescan.EngineWarning, match="LLVM refused the code"):
                ours = jax.jit(two_loops(a))(X)
    engines = {row.engine for row in onescan.report().rows if row.count}
    assert ("native" in engines) if where == "beside" else ("xla" in engines)
    np.testing.assert_allclose(ours, by_xla(a), rtol=1e-5)
    fresh()  # it is not held against the next program
    with onescan.engine("native"):
        np.testing.assert_allclose(jax.jit(two_loops(a))(X), by_xla(a), rtol=1e-5)


def test_loops_that_are_tried() -> None:
    """A trial is a program inside another, whose code has to be there before."""
    tried = []

    def always(plan: Any, profile: Any, size: int) -> Border:
        return Border(sure=float("inf"), hopeless=0.0)

    def noted(native: Any, xla: Any) -> Any:
        tried.append(MEASURED(native, xla))
        return tried[-1]

    fresh()
    onescan.clear_report()
    with (
        mock.patch.object(target, "border", always),
        mock.patch.object(choose, "WORTH", 0.0),
        mock.patch.object(choose, "CLOSE", float("inf")),
        mock.patch.object(trial, "measured", noted),
        mock.patch.object(choose.store, "read", return_value=None),
        onescan.options(tune=True),
    ):
        ours = jax.jit(two_loops(0.58))(X)
    assert len(tried) == 2
    assert [row.engine for row in onescan.report().rows] == ["native"] * 2
    np.testing.assert_allclose(ours, by_xla(0.58), rtol=1e-5)


def test_an_error_in_lowering_passes_through() -> None:
    def broken(x: Any) -> Any:
        with onescan.engine("native"):
            x = two_loops(0.56)(x)
        return onescan.scan(lambda c, x: (c + x, jax.debug.print("{}", c)), 0.0, x)

    fresh()
    with (
        pytest.raises(onescan.EngineError, match="side effects"),
        onescan.engine("native"),
    ):
        jax.jit(broken)(X)
    with onescan.engine("native"):
        np.testing.assert_allclose(jax.jit(two_loops(0.56))(X), by_xla(0.56), rtol=1e-5)


def test_threads_that_lower_programs() -> None:
    def work(k: int) -> bool:
        a = 0.6 + k % 4 / 100
        with onescan.engine("native"):
            result = jax.jit(two_loops(a))(X)
        if k % 5 == 0:
            fresh()
        return bool(np.allclose(result, expected[a], rtol=1e-5))

    expected = {a: by_xla(a) for a in (0.6 + k % 4 / 100 for k in range(4))}
    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(work, range(24)))


def test_the_report_counts_what_was_done_beside() -> None:
    """All of it takes longer than a pause in it, and each loop at least the pause."""
    event = threading.Event()

    def link(*args: Any) -> Any:
        event.wait(0.2)
        return LINK(*args)

    fresh()
    onescan.clear_report()
    with mock.patch.object(compiler, "link", link), onescan.engine("native"):
        jax.jit(two_loops(0.57))(X)
    assert all(row.seconds > 0.15 for row in onescan.report().rows)


def test_jobs() -> None:
    done = []
    beside.started(lambda: done.append(1))  # outside a program, now
    assert done == [1]
    with beside.program(threads=1) as jobs:
        job = beside.started(lambda: done.append(2))
        beside.needed(job)
    assert jobs == [job]
    beside.Promise(jobs, lambda: None).keep()
    assert done == [1, 2]
    assert job.is_made

    def fails() -> None:
        raise ValueError("no")

    with beside.program(threads=1) as jobs:
        beside.needed(beside.started(fails))
    with pytest.raises(beside.NotMade) as raised:
        beside.Promise(jobs, lambda: "anew").keep()
    assert raised.value.lower() == "anew"
    assert not jobs[0].is_made
    with beside.program(threads=1) as jobs:  # nobody needs it
        beside.started(fails)
    assert not jobs


def test_a_promise_that_is_kept_holds_nothing() -> None:
    """Not what would lower the program anew, nor the constants in it."""
    event, constant = threading.Event(), X + 1
    held = weakref.ref(constant)
    with beside.program(threads=1) as jobs:
        beside.needed(beside.started(lambda: event.wait(10) and None))
    promise = beside.Promise(jobs, lambda constant=constant: constant)
    del constant
    assert held() is not None
    event.set()
    promise.keep()
    for thread in threading.enumerate():  # whose last call may just be going on
        if thread.name.startswith("onescan-llvm"):
            thread.join(10)
    assert held() is None


def test_a_program_lowered_anew_has_its_settings() -> None:
    """Those under which it was lowered, wherever it is compiled."""
    main = threading.current_thread().name

    def link(*args: Any) -> Any:
        if threading.current_thread().name != main:
            raise compiler.CompilerError("LLVM refused the code of a kernel: no")
        return LINK(*args)

    fresh()
    wide = np.linspace(0, 1, 12)
    with mock.patch.object(compiler, "link", link):
        with jax.enable_x64(True), onescan.engine("native"):
            lowered = jax.jit(two_loops(0.59)).lower(wide)
        onescan.clear_report()
        with onescan.engine("xla"):
            compiled = lowered.compile()
    assert {row.engine for row in onescan.report().rows} == {"native"}
    with jax.enable_x64(True), onescan.engine("xla"):
        expected = jax.jit(two_loops(0.59))(wide)
        ours = compiled(wide)
    np.testing.assert_allclose(ours, expected, rtol=1e-12)
