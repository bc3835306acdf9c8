"""beside: LLVM makes the code of a kernel while the rest of a program is lowered.

LLVM needs neither Python nor what follows in the program, so threads of their own make
machine code while this one plans and emits the next kernel.  XLA asks for the code when
it compiles the program, so the end of lowering waits for it.

Outside a program that is being lowered, code is made at once; so it is in a program of
one loop, and where memory is limited, which is asked for before each kernel.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager


class NotMade(Exception):
    """Code that could not be made, found out after its call was in the program."""


class Job:
    """Code that is being made."""

    def __init__(self, make: Callable[[], None]) -> None:
        self._make: Callable[[], None] | None = make
        self._future: Future[None] | None = None
        self._seconds = 0.0

    def run(self) -> None:
        """Make it now, once."""
        make, self._make = self._make, None
        assert make is not None
        start = time.perf_counter()
        try:
            make()
        finally:
            self._seconds = time.perf_counter() - start

    def start(self, pool: ThreadPoolExecutor) -> None:
        """Make it in a thread of the pool."""
        self._future = pool.submit(self.run)

    def wait(self) -> None:
        """Until it is there."""
        if self._future is not None:
            self._future.result()

    def tell(self, longer: Callable[[float], None]) -> None:
        """Call with the seconds that it takes from now on, if it is still going on."""
        if self._future is None or self._future.done():
            return
        now = time.perf_counter()
        self._future.add_done_callback(
            lambda _: longer(min(self._seconds, time.perf_counter() - now))
        )


class Program:
    """What is made for a program that is being lowered."""

    def __init__(self, pool: ThreadPoolExecutor) -> None:
        self.pool = pool
        self.jobs: list[Job] = []  # those that its calls need

    def finish(self) -> None:
        """Wait for everything that the program calls."""
        for job in self.jobs:
            try:
                job.wait()
            except Exception as error:
                raise NotMade from error


class _Here(threading.local):
    program: Program | None = None  # that this thread lowers


_here = _Here()


@contextmanager
def program(threads: int) -> Iterator[None]:
    """A program is lowered in here; at the end all its code is there, or `NotMade`.

    One inside another, as for a trial, shares its threads.  Without threads, code is
    made at once.
    """
    around = _here.program
    if not threads:
        _here.program = None
        try:
            yield
        finally:
            _here.program = around
        return
    pool = around.pool if around else ThreadPoolExecutor(threads, "onescan-llvm")
    inside = _here.program = Program(pool)
    try:
        yield
        inside.finish()
    finally:
        _here.program = around
        if around is None:
            pool.shutdown()


def started(make: Callable[[], None]) -> Job:
    """Make code: beside the program that this thread lowers, or now."""
    job = Job(make)
    if _here.program is None:
        job.run()
    else:
        job.start(_here.program.pool)
    return job


def needed(job: Job) -> None:
    """The program that this thread lowers calls this code."""
    if _here.program is None:
        job.wait()
    else:
        _here.program.jobs.append(job)


def asked_for() -> list[Job]:
    """What the program that this thread lowers has asked for so far."""
    return [] if _here.program is None else list(_here.program.jobs)
