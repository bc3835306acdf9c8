"""Ctrl-C while a compiled program runs.

Python's own handler only notes the signal. If the main thread waits for the program, it
raises when that has ended; if the program calls Python on the main thread, it raises
inside of that call, and `KeyboardInterrupt` becomes an error of the program.  So while
a loop that calls Python runs, the signal goes to a few instructions of ours, which
count it and hold it back.  The loop's next call finds the count changed, ends the
program, and has `KeyboardInterrupt` raised in the main thread.

It is held back for `HELD` seconds after a call at most: a loop that failed elsewhere
takes nobody's Ctrl-C.
"""

from __future__ import annotations

import _thread
import ctypes
import functools
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from types import FrameType

#: seconds after a call of a loop in which a signal is left to its next call
HELD = 2.0

TEXT = """
target triple = "{triple}"
target datalayout = "{layout}"

@count = global i64 0
@held_until = global i64 0
@following = global ptr null
declare i32 @clock_gettime(i32, ptr)

define void @on_signal(i32 %signal) nounwind {{
  %clock = alloca [2 x i64]
  %before = atomicrmw add ptr @count, i64 1 monotonic
  %ignored = call i32 @clock_gettime(i32 {clock}, ptr %clock)
  %seconds = load i64, ptr %clock
  %place = getelementptr i64, ptr %clock, i64 1
  %rest = load i64, ptr %place
  %whole = mul i64 %seconds, 1000000000
  %now = add i64 %whole, %rest
  %until = load atomic i64, ptr @held_until monotonic, align 8
  %held = icmp slt i64 %now, %until
  br i1 %held, label %done, label %free
free:
  %handler = load ptr, ptr @following
  %none = icmp eq ptr %handler, null
  br i1 %none, label %done, label %follow
follow:
  call void %handler(i32 %signal)
  br label %done
done:
  ret void
}}
"""


def count() -> int:
    """How often Ctrl-C was pressed while it was watched."""
    return ctypes.c_int64.from_address(_code()["count"]).value


def watch() -> None:
    """Put our handler in front of Python's, unless it is there or is not Python's."""
    if os.name != "posix" or not callable(signal.getsignal(signal.SIGINT)):
        return
    libc, ours = ctypes.CDLL(None), _code()["on_signal"]
    libc.signal.argtypes = [ctypes.c_int, ctypes.c_void_p]
    libc.signal.restype = ctypes.c_void_p
    before = libc.signal(signal.SIGINT, ours)
    if before != ours:
        ctypes.c_void_p.from_address(_code()["following"]).value = before
        libc.siginterrupt(signal.SIGINT, 1)  # as Python has it: reads end early


def hold(seconds: float = HELD) -> None:
    """Leave signals of the next seconds to a loop that looks at the count."""
    until = ctypes.c_int64.from_address(_code()["held_until"])
    until.value = time.clock_gettime_ns(time.CLOCK_MONOTONIC) + int(seconds * 1e9)


def interrupt() -> None:
    """Raise `KeyboardInterrupt` in the main thread, once it has left this call.

    It may come just before the error that the program ends with, or just after.
    """
    hold(0)
    here = sys._getframe(1)
    threading.Thread(target=_interrupt_after, args=(here,), daemon=True).start()


def _interrupt_after(frame: FrameType) -> None:
    main = threading.main_thread().ident or 0
    while frame in _stack(sys._current_frames().get(main)):
        time.sleep(1e-4)
    _thread.interrupt_main()


def _stack(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back


@functools.cache
def _code() -> dict[str, int]:
    from onescan.runtime import compiler  # which needs llvmlite

    text = TEXT.format(
        triple=compiler.triple(),
        layout=compiler.data_layout(),
        clock=int(time.CLOCK_MONOTONIC),
    )
    clock = ctypes.cast(ctypes.CDLL(None).clock_gettime, ctypes.c_void_p).value or 0
    names = ["count", "held_until", "following", "on_signal"]
    return compiler.link(text, names, {"clock_gettime": clock})
