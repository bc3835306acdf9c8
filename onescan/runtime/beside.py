"""beside: LLVM makes the code of a kernel while the rest of a program is compiled.

LLVM needs neither Python nor what follows in the program, so threads of their own make
machine code while this one plans and emits the next kernel, and while XLA compiles what
is around them.  Nothing calls the code before the program runs, so the end of XLA's
compilation waits for it.

Outside a program that is being lowered, code is made at once; so it is where memory is
limited, which is asked for before each kernel.
"""

from __future__ import annotations

import functools
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any


class Job:
    """Code that is being made."""

    def __init__(self, make: Callable[[], None]) -> None:
        self._make: Callable[[], None] | None = make
        self._ended, self._lock = threading.Event(), threading.Lock()
        self._error: Exception | None = None
        self._then: list[Callable[[], None]] = []
        self._seconds = 0.0
        self.is_made = False  # and there

    def run(self) -> None:
        """Make it, once; whoever waits goes on when all has been called."""
        make, self._make = self._make, None
        assert make is not None
        start = time.perf_counter()
        try:
            make()
            self.is_made = True
        except Exception as error:
            self._error = error
        del make  # which holds what was made
        with self._lock:
            self._seconds = time.perf_counter() - start
            calls, self._then = self._then, []
            for call in calls:
                call()
            self._ended.set()

    def wait(self) -> None:
        """Until it is there."""
        self._ended.wait()
        if self._error is not None:
            raise self._error

    def then(self, call: Callable[[], None]) -> None:
        """Call this when it is there, or cannot be made."""
        with self._lock:
            if not self._ended.is_set():
                self._then.append(call)
                return
        call()

    def tell(self, longer: Callable[[float], None]) -> None:
        """Call with the seconds that it takes from now on, if it is still going on."""
        now = time.perf_counter()
        if not self._ended.is_set():
            self.then(lambda: longer(min(self._seconds, time.perf_counter() - now)))


class NotMade(Exception):
    """Code that could not be made, found out after its call was in the program."""

    def __init__(self, lower: Callable[[], Any]) -> None:
        self.lower = lower


class Promise:
    """That the code which a program calls will be there, or the program lowered anew.

    What lowers it holds its constants, and is forgotten as soon as the code is there.
    """

    def __init__(self, jobs: Sequence[Job], lower: Callable[[], Any]) -> None:
        self._jobs, self._lower = list(jobs), lower
        for job in jobs:
            job.then(self._forget)

    def keep(self) -> None:
        """Wait for the code."""
        try:
            for job in list(self._jobs):
                job.wait()
        except Exception as error:
            raise NotMade(self._lower) from error

    def __reduce__(self) -> Any:  # an executable that is serialised was compiled
        return Promise, ((), _nothing)

    def _forget(self) -> None:
        if all(job.is_made for job in self._jobs):
            self._jobs, self._lower = [], _nothing


def _nothing() -> None:
    return None


class Program:
    """What is made for a program that is being lowered."""

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self.jobs: list[Job] = []  # those that its calls need


class _Here(threading.local):
    program: Program | None = None  # that this thread lowers


_here = _Here()


@contextmanager
def program(threads: int) -> Iterator[list[Job]]:
    """A program is lowered in here; gives the jobs whose code it calls.

    One may be inside another, as for a trial.  Without threads, code is made at once.
    """
    around, inside = _here.program, Program(threads)
    _here.program = inside if threads else None
    try:
        yield inside.jobs
    finally:
        _here.program = around


@functools.cache
def _pool(threads: int) -> ThreadPoolExecutor:
    """For all programs: threads keep what LLVM makes once, about the processor."""
    return ThreadPoolExecutor(threads, "onescan-llvm")


os.register_at_fork(after_in_child=_pool.cache_clear)


def started(make: Callable[[], None]) -> Job:
    """Make code: beside the program that this thread lowers, or now."""
    job = Job(make)
    if _here.program is None:
        job.run()
        job.wait()
    else:
        _pool(_here.program.threads).submit(job.run)
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
