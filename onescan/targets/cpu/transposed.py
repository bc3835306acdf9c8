"""Matrices that a kernel wants column by column.

``h @ W`` reads W along its rows, a vector of neighbours at a time, and each vector
position sums a result of its own.  ``h @ W.T``, which every gradient of a product
has, reads along the contraction: the positions of a vector are shares of one result
and must be joined at its end.  A matrix that the steps only read so is asked for
the other way round; XLA turns it once, before the loop.
"""

from __future__ import annotations

from math import prod

from onescan.loop import Atom, Equation, Loop
from onescan.primitives import record_of

#: steps from which turning a matrix once is worth it
STEPS = 32
#: vectors of results that hide the latency of their sums from each other
VECTORS = 8
#: bytes of a matrix that one vector is multiplied with, from which its rows are summed
#: where they lie: one after the other they pass at the speed of the memory (1024 x 1024
#: 24 GB/s, column by column 15, and turning it takes as long as 20 products)
LARGE = 1 << 15


def is_transposed(loop: Loop, var: Atom, width: int) -> bool:
    """Whether a constant is better laid out column by column, for such vectors."""
    jaxpr = loop.body.jaxpr
    shape = var.aval.shape
    if loop.length < STEPS or len(shape) != 2:
        return False
    readers = [eqn for eqn in jaxpr.eqns if any(v is var for v in eqn.invars)]
    if not readers or any(v is var for v in jaxpr.outvars):
        return False
    return all(_sums_along_rows(eqn, var, width) for eqn in readers)


def _sums_along_rows(eqn: Equation, var: Atom, width: int) -> bool:
    """Whether an equation multiplies a matrix along its rows, into enough results."""
    columns, results = var.aval.shape[0], prod(eqn.outvars[0].aval.shape)
    if columns < width or results < VECTORS * width:
        return False
    if record_of(eqn).kind != "product" or eqn.invars[0] is eqn.invars[1]:
        return False
    if is_row_by_row(eqn, var):
        return False
    (cx, cy), (bx, _) = eqn.params["dimension_numbers"]
    if bx:
        return False
    x, _ = eqn.invars
    if x is not var:
        return tuple(cy) == (1,)
    # the left operand's positions are the last of the result only beside a vector
    return tuple(cx) == (1,) and len(eqn.invars[1].aval.shape) == 1


def is_row_by_row(eqn: Equation, matrix: Atom) -> bool:
    """Whether a large matrix is multiplied with one vector, along its rows."""
    x, y = eqn.invars
    (along_x, along_y), (batch, _) = eqn.params["dimension_numbers"]
    along, other = (along_x, y) if x is matrix else (along_y, x)
    size = prod(matrix.aval.shape) * matrix.aval.dtype.itemsize
    one = prod(other.aval.shape) == matrix.aval.shape[-1]
    return one and not batch and tuple(along) == (1,) and size >= LARGE
