"""stripes: how one float32 product is laid over x86's matrix unit, caches and threads.

The unit reads stripes: of 32 rows of x and of 32 columns of y, the pieces of all
numbers of one stretch of the contraction, in its own order (`emit/amx.py`).  To make
them for 32 rows takes about as long as to multiply these by 32 columns.  So the stripes
of one operand are kept for a whole tile of the result, as many as the L2 cache has
room for, and those of the other pass by them, made once for all that is kept.

The contraction is cut the same way whatever the tiles are, and tiles begin at multiples
of 32, so results do not depend on the number of threads.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from onescan.targets.cpu.plan import Machine
from onescan.targets.cpu.products.plan import Matrices, Tiling

#: rows and columns of results that are summed at once, and steps that are multiplied
SIDE = 32
#: bytes of the three pieces of a number
PIECES = 6
#: the most steps of a stretch: stripes of 32 rows for so many are what the L1 cache
#: holds
STRETCH = 256
#: bytes of the stripes that are kept, for which a stack has room
KEPT = 384 * 1024
#: times, next to that of multiplying 32 rows by 32 columns for 32 steps: to make the
#: stripes of 32 rows or columns for so many, also where they have to be transposed; and
#: to store or add and to look at the results, once a stretch
MAKE, TURN, STORE = 1.0, 1.5, 1.0
#: what vectors of float32 multiply in that time, of such a square
BY_VECTORS = 0.46
#: multiply-adds from which the unit gains more than its code takes longer to compile,
#: and is no slower than vectors on a busy machine either, where it stalls
WORTH_IT = 300_000_000
#: such squares from which threads are worth waking, and waiting for: 200 us
WORTH_THREADS = 800
#: tiles for each thread at most, and the part of a tile for which a late one is awaited
EACH = 4
LATE = 0.125


@dataclass(frozen=True, kw_only=True)
class Stripes(Tiling):
    """Tiles of stripes; a stretch is a multiple of 32 steps."""

    keeps_x: bool  # the stripes of x, else those of y
    kept: int  # rows or columns whose stripes are kept, a multiple of 32


def suits(matrices: Matrices, machine: Machine) -> bool:
    """Whether the matrix unit is there for a product, and faster than vectors."""
    m = matrices
    if m.dtype != np.float32 or "amx" not in machine.features or m.work < WORTH_IT:
        return False
    rows, columns = _squares(m.rows), _squares(m.columns)
    time = min(_time(m, rows, columns, keeps_x) for keeps_x in (True, False))
    return time * BY_VECTORS * SIDE**3 <= m.work


def stripes_of(matrices: Matrices, machine: Machine) -> Stripes:
    """Lay a product over the matrix unit of the machine."""
    m = matrices
    rows, columns, steps = map(_squares, (m.rows, m.columns, m.depth))
    threads = rows * columns * steps > WORTH_THREADS and machine.cores > 1
    cores = machine.cores if threads else 1
    most = EACH * cores if threads else 1

    def wait(down: int, across: int, keeps_x: bool) -> float:
        """How long the thread takes that is last."""
        each = -(-down * across // cores) + LATE
        return each * _time(m, -(-rows // down), -(-columns // across), keeps_x)

    ways = [
        (down, across, keeps_x)
        for down in range(1, min(rows, most) + 1)
        for across in range(1, min(columns, most // down) + 1)
        for keeps_x in (True, False)
    ]
    down, across, keeps_x = min(ways, key=lambda way: wait(*way))
    tile_rows, tile_columns = -(-rows // down), -(-columns // across)
    kept = tile_rows if keeps_x else tile_columns
    return Stripes(
        matrices=m,
        stretch=SIDE * _stretch(m),
        keeps_x=keeps_x,
        kept=SIDE * -(-kept // -(-kept // _room(m))),
        tile_rows=SIDE * tile_rows,
        tile_columns=SIDE * tile_columns,
        features=machine.features,
        threads=threads,
    )


def _time(m: Matrices, rows: int, columns: int, keeps_x: bool) -> float:
    """That of a tile; it and all below count in squares."""
    room, steps = _room(m), _squares(m.depth)
    times_x = 1 if keeps_x else -(-columns // room)
    times_y = -(-rows // room) if keeps_x else 1
    make = times_x * rows * (TURN if m.transposed else MAKE) + times_y * columns * MAKE
    stretches = -(-steps // _stretch(m))
    return steps * (rows * columns + make) + stretches * STORE * rows * columns


def _stretch(m: Matrices) -> int:
    """As even as stretches go."""
    steps = _squares(m.depth)
    return -(-steps // -(-steps // (STRETCH // SIDE)))


def _room(m: Matrices) -> int:
    """How many rows or columns of squares are kept at most."""
    return KEPT // (_stretch(m) * PIECES * SIDE**2)


def _squares(n: int) -> int:
    return -(-n // SIDE)
