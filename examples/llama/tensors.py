"""The safetensors format: a JSON table of tensors, and their bytes after it.

Tensors are mapped into memory one at a time, when they are asked for, so reading a
file takes no memory of its own.  The bytes: the length of the table (8 bytes, little
endian), the table, the data; the offsets of the table count from its end.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any, NamedTuple

import ml_dtypes
import numpy as np

from examples.llama.config import CheckpointError

DTYPES = {
    "F64": np.dtype(np.float64),
    "F32": np.dtype(np.float32),
    "F16": np.dtype(np.float16),
    "BF16": np.dtype(ml_dtypes.bfloat16),
}
NAMES = {dtype: name for name, dtype in DTYPES.items()}


class Entry(NamedTuple):
    """Where a tensor lies in a file."""

    path: Path
    dtype: str
    shape: tuple[int, ...]
    start: int  # bytes from the beginning of the file
    stop: int


def read_table(path: Path) -> dict[str, Entry]:
    """The tensors of a file, by name."""
    try:
        with path.open("rb") as file:
            size = path.stat().st_size
            length = _table_length(path, file.read(8), size)
            table = json.loads(file.read(length))
    except FileNotFoundError:
        raise CheckpointError(f"{path} does not exist") from None
    except (json.JSONDecodeError, UnicodeDecodeError):
        raise CheckpointError(
            f"{path} is not a safetensors file: its table is not JSON"
        ) from None
    table.pop("__metadata__", None)
    begin = 8 + length
    return {
        name: Entry(
            path,
            told["dtype"],
            tuple(told["shape"]),
            begin + told["data_offsets"][0],
            begin + told["data_offsets"][1],
        )
        for name, told in table.items()
    }


def read(name: str, entry: Entry) -> np.ndarray:
    """A tensor, mapped: nothing is read before it is used."""
    if entry.dtype not in DTYPES:
        raise CheckpointError(
            f"tensor {name} in {entry.path} is of type {entry.dtype}; supported are "
            f"{', '.join(DTYPES)}"
        )
    dtype = DTYPES[entry.dtype]
    if entry.stop - entry.start != math.prod(entry.shape) * dtype.itemsize:
        raise CheckpointError(
            f"tensor {name} in {entry.path} has {entry.stop - entry.start} bytes, and "
            f"its shape {entry.shape} of {entry.dtype} needs "
            f"{math.prod(entry.shape) * dtype.itemsize}"
        )
    size = entry.path.stat().st_size
    if entry.stop > size:
        raise CheckpointError(
            f"{entry.path} is cut short: it ends at byte {size}, and tensor {name} "
            f"reaches to byte {entry.stop}. Download it again."
        )
    if not math.prod(entry.shape):
        return np.zeros(entry.shape, dtype)
    return np.memmap(entry.path, dtype, "r", entry.start, entry.shape)


def write(path: Path, tensors: Mapping[str, Any]) -> None:
    """A file of tensors, each asked for just before it is written.

    The values are functions without arguments that give an array, together with its
    shape and dtype: ``(shape, dtype, function)``.
    """
    table: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    offset = 0
    for name, (shape, dtype, _) in tensors.items():
        stop = offset + math.prod(shape) * np.dtype(dtype).itemsize
        table[name] = {
            "dtype": NAMES[np.dtype(dtype)],
            "shape": list(shape),
            "data_offsets": [offset, stop],
        }
        offset = stop
    text = json.dumps(table).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)))
        file.write(text)
        for shape, dtype, give in tensors.values():
            _write_array(file, np.asarray(give(), dtype).reshape(shape))


def _write_array(file: IO[bytes], array: np.ndarray) -> None:
    file.write(np.ascontiguousarray(array).view(np.uint8).data)


def _table_length(path: Path, first: bytes, size: int) -> int:
    if len(first) == 8:
        (length,) = struct.unpack("<Q", first)
        if 8 + length <= size:
            return length
    raise CheckpointError(
        f"{path} is not a safetensors file, or is cut short: it has {size} bytes, "
        "fewer than its table of tensors needs. Download it again."
    )
