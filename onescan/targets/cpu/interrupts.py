"""Ctrl-C while compiled programs run.

Python's own handler only notes the signal, and the main thread, which waits for the
program, looks at the note when that has ended.  So while kernels run, a few
instructions of ours (`interrupt.ll`) stand in front of it and wake a thread here.  If
Ctrl-C means `KeyboardInterrupt`, which is Python's default, the thread tells the
kernels to end.  Their program fails, and before its error is raised, Python's note is
looked at: `KeyboardInterrupt` is what the user sees.  A handler of the user's own may
mean anything, so it is called when the program has ended, as ever.

A loop that calls Python now and then (a progress bar) is ended by its next call.  If
the main thread is what calls, Python would raise `KeyboardInterrupt` inside of that
call, where it becomes an error of the program.  So until then the signal is held back:
`HELD` seconds at most, so that a loop that failed elsewhere takes nobody's Ctrl-C.
"""

from __future__ import annotations

import _thread
import ctypes
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import FrameType
from typing import Any

import jax

SOURCE = Path(__file__).with_name("interrupt.ll")
#: what of it is used from here
WORDS = {
    "onescan_presses": ctypes.c_int64,
    "onescan_stop": ctypes.c_int64,
    "onescan_asked": ctypes.c_int64,
    "onescan_stopped": ctypes.c_int64,
    "onescan_held_until": ctypes.c_int64,
    "onescan_following": ctypes.c_void_p,
    "onescan_pipe": ctypes.c_int32,
}
FUNCTIONS = ["onescan_listen", "onescan_on_signal"]
#: where a system has the number of its last error
ERRNO = "__error" if sys.platform == "darwin" else "__errno_location"
#: bytes of what a system knows of a signal's handler, and more
ACTION = 256
#: seconds after a call of a loop in which a signal is left to its next call
HELD = 2.0


def text() -> str:
    """`interrupt.ll` for the system at hand."""
    written = SOURCE.read_text()
    for name, value in {
        "{clock}": int(time.CLOCK_MONOTONIC),
        "{signal}": int(signal.SIGINT),
        "{errno}": ERRNO,
    }.items():
        written = written.replace(name, str(value))
    return written


class Interrupts:
    """Ctrl-C in one process, given where the words and functions of `text` are."""

    def __init__(self, addresses: Mapping[str, int]) -> None:
        self._words = {
            name: kind.from_address(addresses[name]) for name, kind in WORDS.items()
        }
        self._ours = addresses["onescan_on_signal"]
        self._listen = ctypes.CFUNCTYPE(None)(addresses["onescan_listen"])
        self._lock = threading.Lock()
        self._raising: threading.Thread | None = None
        os.register_at_fork(after_in_child=self._alone)

    def prepare(self) -> None:
        """Find Python's handler, and have a thread wait for what stands before it."""
        with self._lock:
            if self._words["onescan_following"].value or not _is_handled():
                return
            reading, writing = os.pipe()
            os.set_blocking(writing, False)
            waiting = threading.Thread(
                target=self._wait, args=(reading,), name="onescan-ctrl-c", daemon=True
            )
            try:
                waiting.start()
            except RuntimeError:  # the interpreter is ending
                return
            _before_errors(self._settle)
            self._words["onescan_pipe"].value = writing
            self._words["onescan_following"].value = _handler()

    def listen(self) -> None:
        """Put ours in front of Python's handler, if that is the one in place."""
        self.prepare()
        self._listen()

    def count(self) -> int:
        """How often Ctrl-C was pressed while somebody listened."""
        return self._words["onescan_presses"].value

    def hold(self, seconds: float = HELD) -> None:
        """Leave signals of the next seconds to a loop that looks at the count."""
        until = time.clock_gettime_ns(time.CLOCK_MONOTONIC) + int(seconds * 1e9)
        self._words["onescan_held_until"].value = until

    def interrupt(self) -> None:
        """Raise `KeyboardInterrupt` in the main thread, once it has left this call."""
        self.hold(0)
        here = sys._getframe(1)
        self._raising = threading.Thread(
            target=_interrupt_after, args=(here,), daemon=True
        )
        self._raising.start()

    def _wait(self, pipe: int) -> None:
        """Tell kernels to end, whenever Ctrl-C is pressed and means that."""
        words = self._words
        while os.read(pipe, 64):
            if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
                words["onescan_stopped"].value = words["onescan_asked"].value
                words["onescan_stop"].value = words["onescan_presses"].value

    def _settle(self) -> None:
        """Before the error of a program: let the main thread be interrupted first."""
        raising = self._raising
        if raising is not None and threading.current_thread() is _main():
            self._raising = None
            raising.join(1.0)

    def _alone(self) -> None:
        """After a fork: the thread is the parent's, and so is the pipe."""
        self._words["onescan_pipe"].value = -1


def _is_handled() -> bool:
    """Whether Python is told of Ctrl-C."""
    return os.name == "posix" and callable(signal.getsignal(signal.SIGINT))


def _handler() -> int | None:
    """The function that the system calls: Python's, on its way to those in Python."""
    action = ctypes.create_string_buffer(ACTION)
    if ctypes.CDLL(None).sigaction(int(signal.SIGINT), None, action):
        return None
    return ctypes.c_void_p.from_buffer(action).value


def _interrupt_after(frame: FrameType) -> None:
    main = _main().ident or 0
    while frame in _stack(sys._current_frames().get(main)):
        time.sleep(1e-4)
    _thread.interrupt_main()


def _main() -> threading.Thread:
    return threading.main_thread()


def _stack(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back


def _before_errors(function: Callable[[], None]) -> None:
    """Have a function called before the error of a program is raised.

    That it is Python's matters too: signals that came in the meantime are handled by
    then, and what their handlers raise is raised instead of the error.
    """
    error: Any = jax.errors.JaxRuntimeError
    original = error.__init__

    def __init__(self: Any, *args: Any) -> None:
        function()
        original(self, *args)

    error.__init__ = __init__
