"""Rules for values whose rows end anywhere in a vector: reshaped and tiled ones."""

from __future__ import annotations

from dataclasses import replace
from math import prod

from llvmlite import ir

from onescan.emit import types as ty
from onescan.emit.arrays import (
    Array,
    Groups,
    Index,
    Vec,
    add,
    as_value,
    is_scalar,
    scale,
)
from onescan.emit.constants import positions
from onescan.emit.emitter import Emitter
from onescan.emit.interleave import joined
from onescan.emit.joining import together
from onescan.emit.lines import multiple_of
from onescan.loop import Atom, Equation
from onescan.primitives.axes import reshape_groups

#: numbers from which copies of a value are written down
WRITTEN = 64
#: numbers of rows of which a vector has several, put together by shuffles
SHORT_ROWS = (2, 4, 8)


def reshape(e: Emitter, eqn: Equation, operands: list[Array]) -> list[Array]:
    (x,), (out,) = operands, eqn.outvars
    shape = e.plan.local_shape(out)
    groups = reshape_groups(x.shape, shape)
    if _lies_across_rows(e, eqn, x, groups):
        x = e.copied(x)
    if x.memory is not None and (there := x.memory.reshaped(x.shape, shape, groups)):
        return [e.lazy(out, lambda index: there.load(e.b, index), [x])]

    def at(index: tuple[Index, ...]) -> ty.Value:
        place: dict[int, Index] = {}
        wide, turns = [i for i in index if not is_scalar(i)], None
        for left, right in groups:
            if len(left) == len(right) == 1:
                place[left[0]] = index[right[0]]
                continue
            flat: Index = 0
            for j in right:
                flat = add(e.b, scale(e.b, flat, shape[j]), index[j])
            sizes = [x.shape[i] for i in left]
            if len(wide) == 1 and (rows := _whole_rows(flat, sizes)) is not None:
                turns = left, sizes, rows
                continue
            for i, part in zip(left, unravel(e, flat, sizes), strict=True):
                place[i] = part
        if turns is not None:
            return _in_turns(e, x, place, *turns)
        return x.at(tuple(place[i] for i in range(len(x.shape))))

    return [e.lazy(out, at, [x])]


def _whole_rows(flat: Index, sizes: list[int]) -> Vec | None:
    """A vector of positions, if it is that of whole short rows of these sizes."""
    if not isinstance(flat, Vec) or len(sizes) < 2 or sizes[-1] not in SHORT_ROWS:
        return None
    row = sizes[-1]
    whole = flat.width % row == 0 and multiple_of(flat.base) % row == 0
    return flat if whole else None


def _in_turns(
    e: Emitter,
    x: Array,
    place: dict[int, Index],
    left: list[int],
    sizes: list[int],
    flat: Vec,
) -> ty.Value:
    """A number of each row in turn, from a vector for each place in the rows."""
    b, row = e.b, sizes[-1]
    count, base = flat.width // row, flat.base
    if not isinstance(base, int):
        base = b.udiv(base, ir.Constant(ty.I64, row))
    else:
        base //= row
    rows = Vec(base, count) if count > 1 else base
    found = dict(place)
    found.update(zip(left[:-1], unravel(e, rows, sizes[:-1]), strict=True))
    values = []
    for k in range(row):
        found[left[-1]] = k
        value = x.at(tuple(found[i] for i in range(len(x.shape))))
        values.append(ty.splat(b, value, count) if count > 1 else value)
    if count == 1:
        return together(b, values)
    side_by_side = joined(b, values)
    mask = [k * count + i for i in range(count) for k in range(row)]
    return b.shuffle_vector(side_by_side, side_by_side, positions(*mask))


def _lies_across_rows(e: Emitter, eqn: Equation, x: Array, groups: Groups) -> bool:
    """Whether vectors of a reshaped value would begin and end anywhere in its rows."""
    (out,), shape = eqn.outvars, e.plan.local_shape(eqn.outvars[0])
    small = prod(shape) < WRITTEN or e.plan.inner_width < 2 or e.plan.is_laned(out)
    if small or e.pulls(out, e.lazy(out, x.at, [x])):
        return False
    if x.memory is not None and x.memory.reshaped(x.shape, shape, groups):
        return False
    along = e.plan.minor(shape)
    rows = next(left for left, right in groups if along in right)
    rows = [i for i in rows if x.shape[i] > 1]
    return len(rows) > 1 and x.shape[rows[-1]] >= e.plan.inner_width


def unravel(e: Emitter, flat: Index, sizes: list[int]) -> list[Index]:
    """A position in row-major order as one index component for each size."""
    parts: list[Index] = []
    for n in reversed(sizes[1:]):
        flat, part = _divmod(e, flat, n)
        parts.append(part)
    if sizes:
        parts.append(flat)
    return parts[::-1]


def _divmod(e: Emitter, flat: Index, n: int) -> tuple[Index, Index]:
    if n == 1:
        return flat, 0
    if isinstance(flat, int):
        return divmod(flat, n)
    if isinstance(flat, Vec) and isinstance(flat.base, int):
        row, place = divmod(flat.base, n)
        if place + flat.width <= n:
            return row, Vec(place, flat.width)
    value = as_value(e.b, flat)
    by = ty.constant(ty.I64, n, ty.width_of(value))
    return e.b.udiv(value, by), e.b.urem(value, by)


def tile(e: Emitter, eqn: Equation, operands: list[Array]) -> list[Array]:
    """A value several times: written down where vectors would lie across its ends."""
    (x,), (out,) = [e.once(a) for a in operands], eqn.outvars
    shapes = eqn.invars[0].aval.shape, out.aval.shape
    again = [n for n, m in zip(*shapes, strict=True) if n != m]

    def at(index: tuple[Index, ...]) -> ty.Value:
        sizes = zip(index, x.shape, *shapes, strict=True)
        return x.at(
            tuple(i if m == m0 else _divmod(e, i, n)[1] for i, n, m0, m in sizes)
        )

    found = e.lazy(out, at, [x])
    few = prod(found.shape) < WRITTEN or e.pulls(out, found)
    lengthwise = not e.plan.is_laned(out) and shapes[0][-1:] != shapes[1][-1:]
    if few or not lengthwise or any(n % e.plan.inner_width == 0 for n in again):
        return [found]
    return [_written_again(e, out, x)]


def _written_again(e: Emitter, out: Atom, x: Array) -> Array:
    """Copies of a value side by side in memory."""
    target = e.fresh(out)
    memory = target.memory
    assert memory is not None
    sizes = zip(target.shape, x.shape, memory.strides, strict=True)
    copies = [(m // n, n * stride) for m, n, stride in sizes if m != n]
    view = replace(memory, strides=(*(s for _, s in copies), *memory.strides))
    shape = (*(count for count, _ in copies), *x.shape)
    lanes = (*(None for _ in copies), *target.lanes)
    visit = lambda at: view.store(e.b, at, x.at(at[len(copies) :]))
    e.nest(shape, lanes, visit, cost=x.cost)
    return target
