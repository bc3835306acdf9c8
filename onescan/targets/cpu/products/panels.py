"""Products of a step with weights, whose columns lie in panels.

    before the first step:  copy the weights, a few vectors of columns after the other
    in every step:          for each panel, for each block of rows: sum along the panel

As they are given, the numbers that a block of results sums lie a whole row of the
matrix apart: each in a page of its own, and all of them in a few places of the L1
cache.  In a panel they lie one after the other.  The rows of x meet a panel while it is
in that cache, and the weights pass through it once a step.  Weights of half precision
are converted on the way there, once, to the numbers of four bytes they are computed as.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np
from llvmlite import ir

from onescan.emit import types as ty
from onescan.emit.arrays import Array, Index, Memory, Vec, scale
from onescan.emit.dot import REGISTERS, ROWS, Product
from onescan.emit.emitter import Emitter
from onescan.emit.terms import read_often
from onescan.loop import Atom, Equation
from onescan.plan.plan import SHORTEST, Plan
from onescan.primitives import record_of
from onescan.targets.cpu.products.steps import tiled
from onescan.targets.cpu.products.streamed import stream_of
from onescan.targets.cpu.transposed import is_row_by_row

#: steps from which a copy is worth it
STEPS = 16
#: the same of weights whose sums go along their rows, which are copied to be turned
TURNED_STEPS = 32
#: bytes of weights that the L1 cache does not hold as they are, and the most to copy
SMALLEST, LARGEST = 1 << 15, 1 << 22
WIDE = np.dtype("float32")
TYPES = (WIDE, np.dtype("float64"), *ty.HALVES)


@dataclass(frozen=True)
class Panels:
    """Weights as panels of so many columns."""

    weights: Any  # the variable
    along: int  # its dimension that is summed over
    depth: int
    columns: int
    width: int  # of a panel

    @property
    def shape(self) -> tuple[int, int, int]:
        return self.columns // self.width, self.depth, self.width


def panels_of(plan: Plan, eqn: Equation) -> Panels | None:
    """The panels for a product, if it is one of a step with weights."""
    loop = plan.loop
    if plan.width < 2 or plan.vector is not None or loop.length < STEPS:
        return None
    if record_of(eqn).kind != "product" or (meeting := _meeting(eqn)) is None:
        return None
    x, y = meeting.x, meeting.weights
    constants = loop.body.jaxpr.invars[: loop.num_consts]
    if x is y or not any(v is y for v in constants):
        return None
    shape, dtype = y.aval.shape, np.dtype(y.aval.dtype)
    if {np.dtype(v.aval.dtype) for v in (x, y, eqn.outvars[0])} - {dtype}:
        return None
    if dtype not in TYPES or any(plan.local_lanes(y)) or tiled(plan, eqn):
        return None
    shape_of_x = enumerate(plan.local_shape(x))
    rows = prod(n for i, n in shape_of_x if i != meeting.along_x)
    along, size = meeting.along, prod(shape) * max(dtype.itemsize, WIDE.itemsize)
    depth, columns = shape[along], shape[1 - along]
    if not rows or size > LARGEST or is_row_by_row(eqn, y) or stream_of(plan, eqn):
        return None
    vectors, rest = divmod(columns, plan.inner_width)
    if size < SMALLEST or rest:
        better = along == 1 or dtype in ty.HALVES
        turned = better and columns >= SHORTEST and loop.length >= TURNED_STEPS
        return Panels(y, along, depth, columns, columns) if turned else None
    most = REGISTERS // min(rows, ROWS)
    width = max(n for n in range(1, most + 1) if vectors % n == 0) * plan.inner_width
    return Panels(y, along, depth, columns, width)


@dataclass(frozen=True)
class _Meeting:
    """A matrix of weights, and what it is multiplied with; a vector from either."""

    x: Atom
    weights: Atom
    along_x: int  # the dimensions that are summed over
    along: int
    place: int  # of x among the operands


def _meeting(eqn: Equation) -> _Meeting | None:
    x, y = eqn.invars
    (cx, cy), (batch, _) = eqn.params["dimension_numbers"]
    if batch or len(cx) != 1:
        return None
    if len(y.aval.shape) == 2:
        return _Meeting(x, y, cx[0], cy[0], 0)
    if len(x.aval.shape) == 2 and len(y.aval.shape) == 1:
        return _Meeting(y, x, cy[0], cx[0], 1)
    return None


@contextmanager
def prepared(e: Emitter, constant: Callable[[Any], Array]) -> Iterator[None]:
    """Copy weights into panels for the steps emitted inside."""
    found = (panels_of(e.plan, eqn) for eqn in e.plan.loop.body.jaxpr.eqns)
    for panels in filter(None, found):
        if panels not in e.weights:
            e.weights[panels] = _copied(e, panels, constant(panels.weights))
    yield


def _copied(e: Emitter, panels: Panels, weights: Array) -> Memory:
    (count, depth, width), dtype = panels.shape, _wide(weights.dtype)
    size = count * depth * width * dtype.itemsize
    kind = ir.ArrayType(ty.memory_type(dtype), count * depth * width)
    pointer = e.allocated(kind, size)
    e.weight_bytes += size
    memory = Memory(pointer, dtype, (depth * width, width, 1), 0, 64)

    def copy(index: tuple[Index, ...]) -> None:
        panel, k = index
        columns: Index = Vec(scale(e.b, panel, width), width)  # type: ignore[arg-type]
        place = (columns, k) if panels.along else (k, columns)
        memory.store(e.b, (panel, k, Vec(0, width)), weights.at(place))

    e.for_each([count, depth], copy, 999)
    return memory


def _wide(dtype: np.dtype) -> np.dtype:
    """The type whose numbers are held as they are computed with."""
    return WIDE if dtype in ty.HALVES else dtype


def by_panels(
    e: Emitter, eqn: Equation, panels: Panels, operands: list[Array]
) -> Array:
    """The product of a step with weights that lie in panels."""
    meeting = _meeting(eqn)
    assert meeting is not None
    target = e.fresh(eqn.outvars[0])
    assert target.memory is not None
    weights = e.stored(e.weights[panels], panels.shape, (None,) * 3)
    *rows, last = target.memory.strides
    view = replace(target.memory, strides=(last * panels.width, *rows, last))
    shape = (panels.shape[0], *target.shape[:-1], panels.width)
    Product(
        e,
        (((meeting.along_x,), (1,)), ((), (0,))),
        read_often(e, operands[meeting.place], panels.columns // e.plan.inner_width),
        replace(weights, dtype=target.dtype),
        e.stored(view, shape, (None, *target.lanes[:-1], None)),
    ).emit()
    return target
