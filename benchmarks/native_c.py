"""The hand-written versions of `native.c`, compiled by the system's C compiler."""

from __future__ import annotations

import ctypes
import hashlib
import os
import shutil
import subprocess
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent
SOURCE, HEADER = HERE / "native.c", HERE / "kalman.h"
BUILD = HERE.parent / "build" / "benchmarks"
# No reassociation, as in XLA and onescan; these only drop errno and traps.
SAFE_MATH = ["-fno-math-errno", "-fno-trapping-math"]
FLAGS = ["-O3", "-march=native", *SAFE_MATH, "-shared", "-fPIC"]


def version(
    name: str,
    sizes: tuple[int, ...],
    inputs: list[np.ndarray],
    outputs: list[np.ndarray],
) -> Callable[[], None] | None:
    """A call of the C function `name` that fills `outputs`, if there is one."""
    library = _library()
    if library is None or not hasattr(library, name):
        return None
    function = getattr(library, name)
    function.restype = None
    lengths = [ctypes.c_long(size) for size in sizes]
    arrays = *inputs, *outputs
    pointers = [ctypes.c_void_p(array.ctypes.data) for array in arrays]

    def call(keep_alive: tuple[np.ndarray, ...] = arrays) -> None:
        function(*lengths, *pointers)

    return call


@cache
def _library() -> ctypes.CDLL | None:
    compiler = shutil.which("cc")
    if compiler is None:
        return None
    content = SOURCE.read_bytes() + HEADER.read_bytes() + " ".join(FLAGS).encode()
    path = BUILD / f"native-{hashlib.sha256(content).hexdigest()[:12]}.so"
    if not path.exists():
        BUILD.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(f".{os.getpid()}")
        command = [compiler, *FLAGS, str(SOURCE), "-o", str(part), "-lm"]
        subprocess.run(command, check=True)
        part.replace(path)
    return ctypes.CDLL(str(path))
