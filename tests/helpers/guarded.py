"""Call a kernel directly, on buffers that end (and start) at forbidden memory.

Each buffer has memory of its own, with a page before and a page after it that may not
be touched.  A kernel that reads or writes past the end, or before the start, of any
buffer dies at once instead of going unnoticed.
"""

from __future__ import annotations

import ctypes
import math
import mmap
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from onescan.targets.cpu import kernel as cpu

PAGE = mmap.PAGESIZE
PROT_NONE = 0
FRESH = 0xA5  # results start out as this byte, and so does what surrounds a buffer

_mprotect = ctypes.CDLL(None, use_errno=True).mprotect
_mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]


class Guarded:
    """An array that touches a forbidden page with its last, or its first, byte."""

    def __init__(
        self,
        shape: Sequence[int],
        dtype: Any,
        side: Literal["end", "start"] = "end",
        alignment: int = 1,
    ) -> None:
        dtype = np.dtype(dtype)
        self.size = math.prod(shape) * dtype.itemsize
        self._pages = max(1, -(-self.size // PAGE)) * PAGE
        self._map = mmap.mmap(-1, self._pages + 2 * PAGE)
        base = ctypes.addressof(ctypes.c_char.from_buffer(self._map))
        self._guards = (base, base + PAGE + self._pages)
        slack = (self._pages - self.size) // alignment * alignment
        self._offset = PAGE + (slack if side == "end" else 0)
        self.address = base + self._offset
        self._map[PAGE : PAGE + self._pages] = bytes([FRESH]) * self._pages
        self.array = np.frombuffer(
            self._map, dtype, math.prod(shape), self._offset
        ).reshape(shape)
        self._forbid()

    def surroundings_untouched(self) -> bool:
        """Whether nothing was written beside the array, inside its pages."""
        before = self._map[PAGE : self._offset]
        after = self._map[self._offset + self.size : PAGE + self._pages]
        return all(byte == FRESH for byte in before + after)

    def _forbid(self) -> None:
        for guard in self._guards:
            if _mprotect(guard, PAGE, PROT_NONE) != 0:
                raise OSError(ctypes.get_errno(), "mprotect failed")


def call_directly(
    kernel: cpu.Kernel,
    operands: Sequence[Any],
    results: Sequence[tuple[Sequence[int], Any]],
    side: Literal["end", "start"] = "end",
    alignment: int = 1,
    ranges: Sequence[tuple[int, int]] | None = None,
) -> list[np.ndarray]:
    """Run a kernel on copies of `operands`, and give its results.

    `results` are pairs of shape and dtype.  `alignment` is that of the buffers' starts
    (XLA's are 64; 1 puts the last byte exactly before the forbidden page).  `ranges`
    are the ranges of tiles to call it with, by default all at once.  Subnormal numbers
    are kept here, whereas XLA's threads flush them to zero.
    """
    if len(operands) != kernel.num_operands or len(results) != kernel.num_results:
        raise ValueError(
            f"the kernel takes {kernel.num_operands} operands and gives "
            f"{kernel.num_results} results, not {len(operands)} and {len(results)}"
        )
    inputs = [np.asarray(operand) for operand in operands]
    ins = [Guarded(x.shape, x.dtype, side, alignment) for x in inputs]
    outs = [Guarded(shape, dtype, side, alignment) for shape, dtype in results]
    for buffer, value in zip(ins, inputs, strict=True):
        buffer.array[...] = value
    began = 2**62  # after so many Ctrl-C's: none that comes will end it
    addresses = [*(buffer.address for buffer in ins + outs), began]
    pointers = (ctypes.c_void_p * len(addresses))(*addresses)
    signature = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
    call = signature(cpu.code(kernel).kernel)
    for first, last in ranges or [(0, kernel.tiles)]:
        call(ctypes.addressof(pointers), first, last)
    for buffer, value in zip(ins, inputs, strict=True):
        assert buffer.array.tobytes() == value.tobytes(), "an operand was changed"
    assert all(buffer.surroundings_untouched() for buffer in ins + outs), (
        "the kernel wrote beside a buffer"
    )
    return [np.array(buffer.array) for buffer in outs]
