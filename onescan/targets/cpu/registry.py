"""The code of kernels, as long as something may call it.

All kernels are one target of XLA's FFI, and each call site says which it means by a
hash.  `registry.ll` counts who needs a kernel: executables, by what XLA tells when it
makes and destroys them, and `Code`, which a lowered program keeps alive until it is
compiled.  Code that nobody needs is unloaded when the next kernel is compiled.

XLA may ask for a kernel whose code is still being made: it gets the record, and the
code is there before the executable runs (`lowering/hook.py: compile_program`).
"""

from __future__ import annotations

import ctypes
import functools
import os
import threading
import weakref
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import numpy as np

from onescan.runtime.beside import Job, started
from onescan.runtime.compiler import Linked
from onescan.targets.cpu import handler

#: the name of the target, and of the type of a call site's state
TARGET = STATE = "onescan_kernel"


class Code:
    """A kernel that is loaded while this lives: its name, and what XLA has to know."""

    job: Job | None = None  # which loads it

    def __init__(self, name: str) -> None:
        self.name = name
        self.handler: int | None = None
        self.kernel: int | None = None
        high, low = _keys(name)
        self.attributes = {"high": np.int64(high), "low": np.int64(low)}

    def __reduce__(self) -> Any:  # an executable that is serialised has its name
        return Code, (self.name,)

    def holds(self, record: int) -> None:
        """Its record stays as long as this lives."""
        release = weakref.finalize(self, _native().release, record)
        release.atexit = False

    def is_loaded(self, linked: Linked) -> None:
        """It is at these addresses."""
        self.handler, self.kernel = map(linked.addresses.get, ("handler", "kernel"))


def code(name: str, linked: Callable[[], Linked]) -> Code:
    """The code of this name, loaded by `linked` if there is none, maybe `beside`."""
    with _lock:
        if (found := _codes.get(name)) is not None:
            return found
        made = Code(name)
        record = _native().find(*_keys(name)) or _native().add(*_keys(name))
        made.holds(record)
        there, _ = _kernels.setdefault(name, (None, record))
        if there is not None:
            made.is_loaded(there)
        else:
            made.job = started(partial(_load, made, linked))
        _codes[name] = made
        return made


def _load(made: Code, linked: Callable[[], Linked]) -> None:
    try:
        loaded = linked()
    except BaseException:
        with _lock:
            _codes.pop(made.name, None)  # the next one tries again
        raise
    with _lock:
        sweep()
        _, record = _kernels[made.name]
        _native().complete(record, loaded.addresses["handler"])
        _kernels[made.name] = loaded, record
        made.is_loaded(loaded)


def sweep() -> None:
    """Unload what nobody needs any more, if there is anything."""
    native = _native()
    with _lock:
        if (idle := native.idle.value) == native.swept:
            return
        native.swept = idle
        for name, (linked, record) in list(_kernels.items()):
            if native.remove(record):
                del _kernels[name]
                if linked is not None:
                    linked.unload()


def loaded() -> int:
    """How many kernels this process has."""
    return sum(linked is not None for linked, _ in _kernels.values())


class _Native:
    """`registry.ll`, made known to XLA."""

    def __init__(self, addresses: dict[str, int]) -> None:
        def function(name: str, result: Any, *args: Any) -> Callable[..., Any]:
            return ctypes.CFUNCTYPE(result, *args)(addresses[f"onescan_{name}"])

        word, pointer = ctypes.c_int64, ctypes.c_void_p
        self.add = function("add", pointer, word, word)
        self.complete = function("complete", None, pointer, pointer)
        self.find = function("find", pointer, word, word)
        self.release = function("release", None, pointer)
        self.remove = function("remove", word, pointer)
        self.idle = word.from_address(addresses["onescan_idle"])
        self.swept = 0
        # which another thread of the parent may have had
        lock = ctypes.c_int32.from_address(addresses["onescan_lock"])
        os.register_at_fork(after_in_child=lambda: setattr(lock, "value", 0))
        # kept, because XLA has pointers to it
        self.info = (ctypes.c_void_p * 3)(24, None, addresses["onescan_release"])
        capsule = jax.ffi.pycapsule
        type_id = capsule(addresses["onescan_state_type"])
        info = capsule(ctypes.addressof(self.info))
        jax.ffi.register_ffi_type(
            STATE, {"type_id": type_id, "type_info": info}, platform="cpu"
        )
        stages = ("instantiate", "execute")
        handlers = {stage: capsule(addresses[f"onescan_{stage}"]) for stage in stages}
        jax.ffi.register_ffi_target(TARGET, handlers, platform="cpu")


@functools.cache
def _native() -> _Native:
    return _Native(handler.loaded())


def _keys(name: str) -> tuple[int, int]:
    """The hash in a name, as two numbers."""
    digits = bytes.fromhex(name.rpartition("_")[2])
    high, low = digits[:8], digits[8:16]
    return int.from_bytes(high, signed=True), int.from_bytes(low, signed=True)


_kernels: dict[str, tuple[Linked | None, int]] = {}  # and where its record is
_codes: weakref.WeakValueDictionary[str, Code] = weakref.WeakValueDictionary()
_lock = threading.RLock()
