"""matrix: how one product of two matrices is laid over registers, caches and threads.

A block of results, a few rows of a few vectors, is summed in registers over a stretch
of the contraction that the L1 cache can hold; stretch after stretch is added to
the result.  So sums are taken in parts, which rounds less than one long sum.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from onescan.emit.math.features import AVX512, NEON
from onescan.targets.cpu.plan import Machine

#: vector operations from which threads are worth waking, and waiting for: 200 us
WORTH_THREADS = 1_000_000
#: multiply-adds from which a kernel of our own is worth compiling
WORTH_IT = 1_000_000
#: rows of a block of results with 32 vector registers, and with fewer
ROWS, FEWER_ROWS = 8, 4
VECTORS = 3
#: the longest stretch of the contraction, in bytes, and the most rows of a tile: as
#: much of x as the L2 cache holds beside a tile of the result, and a stack may
STRETCH = 1024
TILE_ROWS = 256
#: the fewest rows and panels of a tile, which use what was copied for them often
FEWEST_ROWS, FEWEST_PANELS = 64, 2
#: tiles for each thread, so that one that comes late costs little
EACH = 2


@dataclass(frozen=True)
class Matrices:
    """``x @ y``, or ``x.T @ y``: `rows` by `columns` sums of `depth` products."""

    rows: int
    columns: int
    depth: int
    dtype: np.dtype
    transposed: bool  # whether x comes as depth by rows

    @property
    def work(self) -> int:
        return self.rows * self.columns * self.depth


@dataclass(frozen=True, kw_only=True)
class Tiling:
    """A plan for `matrices`; tiles are counted along rows, then along columns."""

    matrices: Matrices
    stretch: int  # of the contraction
    tile_rows: int
    tile_columns: int
    features: frozenset[str]
    threads: bool

    @property
    def tiles(self) -> tuple[int, int]:
        m = self.matrices
        return -(-m.rows // self.tile_rows), -(-m.columns // self.tile_columns)


@dataclass(frozen=True, kw_only=True)
class Blocks(Tiling):
    """Tiles of blocks that are summed in registers."""

    height: int  # rows of a block
    vectors: int  # that it is wide
    width: int  # of one vector


def is_worth_it(matrices: Matrices) -> bool:
    """Whether a product gains more by a kernel than that takes to compile."""
    return matrices.work >= WORTH_IT


def blocks_of(matrices: Matrices, machine: Machine) -> Blocks:
    """Lay a product over the machine."""
    m = matrices
    width = machine.vector_bytes // m.dtype.itemsize
    many = {AVX512, NEON} & machine.features
    height = ROWS if many else FEWER_ROWS
    threads = m.work / width > WORTH_THREADS and machine.cores > 1
    panel = VECTORS * width
    wanted = EACH * machine.cores if threads else 1
    across = m.columns // (FEWEST_PANELS * panel) if m.transposed else 1
    across = max(1, min(across, wanted))
    down = min(m.rows // FEWEST_ROWS, -(-wanted // across))
    down = max(down, -(-m.rows // TILE_ROWS))
    if threads and across == 1:  # as many for each thread
        down = -(-down // machine.cores) * machine.cores
    return Blocks(
        matrices=matrices,
        height=height,
        vectors=VECTORS,
        width=width,
        stretch=_even(m.depth, STRETCH // m.dtype.itemsize),
        tile_rows=_share(m.rows, down, height),
        tile_columns=_share(m.columns, across, panel),
        features=machine.features,
        threads=threads,
    )


def _share(n: int, pieces: int, unit: int) -> int:
    """How many of n are one piece's: whole units, as even as they go."""
    return n if pieces == 1 else -(-n // (pieces * unit)) * unit


def _even(n: int, most: int) -> int:
    """The length of pieces of at most so many, all but the last alike."""
    return -(-n // -(-n // most))
