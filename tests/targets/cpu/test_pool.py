"""The FFI handler and its use of the thread pool, under an XLA made of ctypes.

What a real pool does rarely, this one does on demand: refuse, be missing, run a helper
at once, or only when the call is long over.
"""

from __future__ import annotations

import ctypes
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from handmade import axpy, calling, witness
from processes import output

from onescan.targets.cpu import available, handler, interrupts
from onescan.targets.cpu import kernel as cpu

Function = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)
Task = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
POINTER = 8  # bytes
POOL = 8  # threads of the pool, where a test does not say

pytestmark = pytest.mark.skipif(
    available.cores() < 2, reason="the pool is used only with two cores"
)


class FakeXla:
    """Calls a handler with a call frame, and answers what the handler asks."""

    def __init__(
        self,
        pool_size: int | None,
        schedule: Callable[[Callable[[], None]], None] | None,
        context: int = 1,
    ) -> None:
        self.errors = self.destroyed = self.scheduled = 0
        self.pool_size = pool_size
        self.schedule = schedule
        self.context = context
        self.run_id, self.created = 1, 0
        functions = [0] * 17
        self._keep = [
            Function(self._destroy),
            Function(self._schedule),
            Function(self._num_threads),
            Function(self._run_id),
            Function(self._create),
        ]
        for index, function in zip((2, 11, 12, 16, 0), self._keep, strict=True):
            functions[index] = ctypes.cast(function, ctypes.c_void_p).value or 0
        self.api = words(0, 0, 24, 0, 3 << 32, 0, *functions)

    def call(self, kernel: cpu.Kernel, *arrays: np.ndarray) -> int | None:
        buffers = [words(48, 0, 0, array.ctypes.data) for array in arrays]
        addresses = [ctypes.addressof(buffer) for buffer in buffers]
        operands = words(*addresses[: kernel.num_operands])
        results = words(*addresses[kernel.num_operands :])
        frame = words(
            *(0, 0, ctypes.addressof(self.api), self.context, 0),
            *(0, 0, kernel.num_operands, 0, ctypes.addressof(operands)),
            *(0, 0, kernel.num_results, 0, ctypes.addressof(results)),
        )
        return Function(cpu.code(kernel).handler)(ctypes.addressof(frame))

    def _num_threads(self, args: int) -> int | None:
        assert word(args, 2) == self.context
        if self.pool_size is None:
            return self._error()
        ctypes.c_int64.from_address(word(args, 3)).value = self.pool_size
        return None

    def _schedule(self, args: int) -> int | None:
        assert word(args, 2) == self.context
        if self.schedule is None:
            return self._error()
        self.scheduled += 1
        task, job = Task(word(args, 3)), word(args, 4)
        self.schedule(lambda: task(job))
        return None

    def _run_id(self, args: int) -> int | None:
        assert word(args, 2) == self.context
        ctypes.c_int64.from_address(args + 3 * POINTER).value = self.run_id
        return None

    def _create(self, args: int) -> int:
        said = ctypes.string_at(word(args, 2))
        assert said == b"onescan: the loop was ended by Ctrl-C"
        self.created += 1
        return 77

    def _error(self) -> int:
        self.errors += 1
        return 1000 + self.errors

    def _destroy(self, args: int) -> None:
        assert word(args, 2) == 1001 + self.destroyed
        self.destroyed += 1


def words(*values: int) -> Any:
    return (ctypes.c_int64 * len(values))(*values)


def word(address: int, index: int) -> int:
    return ctypes.c_int64.from_address(address + POINTER * index).value


def most_helpers() -> int:
    """Threads besides the caller's: as many as the pool and the machine have."""
    return min(POOL, available.cores()) - 1


def run(xla: FakeXla, tiles: int = 64, grain: int = 1) -> None:
    """Call a kernel and check its result."""
    x = np.arange(tiles * 5, dtype=np.float32)
    y, out = x + 1, np.zeros_like(x)
    assert xla.call(axpy(tiles, 5, threads=True, grain=grain), x, y, out) is None
    np.testing.assert_array_equal(out, 2 * x + y)


def test_no_context():
    xla = FakeXla(POOL, lambda task: task(), context=0)
    run(xla)
    assert xla.scheduled == 0


def test_no_pool():
    xla = FakeXla(None, lambda task: task())
    run(xla)
    assert (xla.scheduled, xla.errors, xla.destroyed) == (0, 1, 1)


def test_a_pool_that_refuses():
    xla = FakeXla(POOL, None)
    run(xla)
    assert xla.errors == xla.destroyed == most_helpers()


def test_a_pool_that_runs_tasks_at_once():
    xla = FakeXla(POOL, lambda task: task())
    run(xla)
    assert xla.scheduled == most_helpers()


@pytest.mark.parametrize(
    ("pool_size", "tiles", "grain", "helpers"),
    [(1, 64, 1, 0), (2, 64, 1, 1), (8, 1, 1, 0), (8, 64, 33, 0), (8, 64, 32, 1)],
)
def test_number_of_helpers(pool_size: int, tiles: int, grain: int, helpers: int):
    xla = FakeXla(pool_size, lambda task: task())
    run(xla, tiles, grain)
    assert xla.scheduled == helpers


def test_helpers_that_come_when_the_call_is_over():
    late: list[Callable[[], None]] = []
    xla = FakeXla(POOL, late.append)
    for _ in range(100):
        run(xla)
    assert len(late) == 100 * most_helpers()
    for task in late:
        task()


def test_the_call_lasts_until_the_slowest_helper_is_done():
    threads: list[threading.Thread] = []

    def start(task: Callable[[], None]) -> None:
        threads.append(threading.Timer(0.004, task))  # half a chunk behind the caller
        threads[-1].start()

    x = np.ones(64, np.float32)
    who = np.zeros(64, np.int64)
    for _ in range(30):  # until helpers come in time
        out = np.zeros(64, np.float32)
        FakeXla(POOL, start).call(witness(64), x, who, out)
        done = out.copy()
        while threads:
            threads.pop().join()
        np.testing.assert_array_equal(done, x)
        if len(set(who.tolist())) > 1:
            break
    assert len(set(who.tolist())) > 1


def test_helpers_that_come_when_they_like():
    threads: list[threading.Thread] = []

    def start(task: Callable[[], None]) -> None:
        threads.append(threading.Thread(target=task))
        threads[-1].start()

    xla = FakeXla(POOL, start)
    for _ in range(50):
        run(xla, tiles=1000)
    for thread in threads:
        thread.join()


def test_a_forked_child_leaves_the_pool_alone():
    code = """
        import os, warnings
        from test_pool import POOL, FakeXla, run

        xla = FakeXla(POOL, lambda task: task())
        run(xla)
        assert xla.scheduled > 0
        xla.scheduled = 0
        warnings.simplefilter("ignore")  # JAX and Python warn about forks
        child = os.fork()
        if child == 0:
            run(xla)
            os._exit(xla.scheduled)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    """
    assert output(code, beside=__file__) == "0"


@pytest.mark.skipif(sys.platform != "linux", reason="sleeps by a call of Linux")
def test_a_caller_that_waits_long_sleeps(monkeypatch: pytest.MonkeyPatch):
    """Or it would keep others, the helper it waits for among them, from its core."""
    asked: list[int] = []
    libc = ctypes.CDLL(None)

    @ctypes.CFUNCTYPE(ctypes.c_long, *[ctypes.c_long] * 7)
    def counting_syscall(*numbers: int) -> int:
        asked.append(numbers[2])
        asleep.set()
        return libc.syscall(*map(ctypes.c_long, numbers))

    text = handler.runtime_text().replace("@syscall", "@counting_syscall")
    address = ctypes.cast(counting_syscall, ctypes.c_void_p).value or 0
    runtime = handler.load(text, {"counting_syscall": address})
    monkeypatch.setattr(handler, "runtime", lambda: runtime)
    helpers: list[threading.Thread] = []
    begun = threading.Event()
    asleep = threading.Event()

    def start(task: Callable[[], None]) -> None:
        helpers.append(threading.Thread(target=task))
        helpers[-1].start()

    @ctypes.CFUNCTYPE(None, ctypes.c_int64)
    def tile(number: int) -> None:
        """The helper's lasts until the caller, which has had its own, sleeps."""
        del number
        if threading.current_thread() in helpers:
            begun.set()
            assert asleep.wait(timeout=60)
        else:
            assert begun.wait(timeout=60)

    out = np.zeros(1, np.float32)
    FakeXla(2, start).call(calling(tile, 2, threads=True), out)
    helpers.pop().join()
    wait, wake = 128, 129
    assert set(asked) == {wait, wake}
    assert asked.count(wake) == 1


def test_the_job_is_freed_by_the_last_to_leave(monkeypatch: pytest.MonkeyPatch):
    """Frees are counted by a runtime of its own, linked to another `free`."""
    freed: list[int] = []
    libc = ctypes.CDLL(None)
    libc.free.argtypes = [ctypes.c_void_p]

    @ctypes.CFUNCTYPE(None, ctypes.c_void_p)
    def counting_free(address: int) -> None:
        freed.append(address)
        libc.free(address)

    text = handler.runtime_text().replace("@free", "@counting_free")
    address = ctypes.cast(counting_free, ctypes.c_void_p).value or 0
    runtime = handler.load(text, {"counting_free": address})
    monkeypatch.setattr(handler, "runtime", lambda: runtime)

    late: list[Callable[[], None]] = []
    kernel = axpy(64, 5, threads=True, a=0.75)
    x = np.zeros(64 * 5, np.float32)
    FakeXla(POOL, late.append).call(kernel, x, x, x.copy())
    assert freed == []
    for task in late:
        task()
    assert len(freed) == 1
    FakeXla(POOL, lambda task: task()).call(kernel, x, x, x.copy())
    assert len(freed) == 2
    FakeXla(POOL, None).call(kernel, x, x, x.copy())
    assert len(freed) == 3


class Pressed:
    """Ctrl-C in the words of the runtime, without a signal."""

    def __init__(self) -> None:
        loaded = handler.loaded()
        self.words = {
            name: kind.from_address(loaded[name])
            for name, kind in interrupts.WORDS.items()
        }

    def press(self) -> None:
        self.words["onescan_presses"].value += 1

    def decide(self, run: int = 0) -> None:
        self.words["onescan_stopped"].value = run
        self.words["onescan_stop"].value = self.words["onescan_presses"].value


@pytest.mark.parametrize("look", [0, 1, 3])
def test_ctrl_c_during_a_call(look: int):
    """A kernel that looks ends early; one that does not, at its end, as an error."""
    tiles, seen, ctrl_c = 64, [], Pressed()

    @ctypes.CFUNCTYPE(None, ctypes.c_int64)
    def note(tile: int) -> None:
        seen.append(tile)
        if tile == 9:
            ctrl_c.press()
            ctrl_c.decide()

    kernel = replace(calling(note, tiles), look=look)
    xla = FakeXla(POOL, None)
    assert xla.call(kernel, np.zeros(1, np.float32)) == 77
    assert xla.created == 1
    last = {0: tiles - 1, 1: 9, 3: 11}[look]
    assert seen == list(range(last + 1))
    seen.clear()
    xla.run_id = 2
    ctrl_c.press()  # and somebody decides that it ends nothing
    assert (
        xla.call(replace(calling(note, 5), look=look), np.zeros(1, np.float32)) is None
    )
    assert seen == list(range(5))


def test_all_threads_leave():
    tiles, seen, ctrl_c = 1000, [], Pressed()

    @ctypes.CFUNCTYPE(None, ctypes.c_int64)
    def note(tile: int) -> None:
        seen.append(tile)
        if len(seen) == 20:
            ctrl_c.press()
            ctrl_c.decide()

    kernel = replace(calling(note, tiles, threads=True), look=1)
    threads: list[threading.Thread] = []

    def schedule(task: Callable[[], None]) -> None:
        threads.append(threading.Thread(target=task))
        threads[-1].start()

    assert FakeXla(POOL, schedule).call(kernel, np.zeros(1, np.float32)) == 77
    for thread in threads:
        thread.join()
    assert 20 <= len(seen) < 20 + POOL + 4 * POOL


@pytest.mark.parametrize(("look", "calls"), [(1, 1), (0, 16)])
def test_later_kernels_of_the_same_run_do_not_start(look: int, calls: int):
    """One that looks at once, of others one in sixteen."""
    xla, ctrl_c, seen = FakeXla(POOL, None), Pressed(), []

    @ctypes.CFUNCTYPE(None, ctypes.c_int64)
    def note(tile: int) -> None:
        seen.append(tile)

    kernel, nothing = replace(calling(note, 2), look=look), np.zeros(1, np.float32)

    def call(run: int) -> list[int | None]:
        xla.run_id = run
        return [xla.call(kernel, nothing) for _ in range(calls)]

    run = 10 * calls
    assert call(run) == [None] * calls
    ctrl_c.press()
    ctrl_c.decide(run)
    assert call(run).count(77) == 1
    assert call(run + 1) == [None] * calls
    assert seen == [0, 1] * (3 * calls - 1)
