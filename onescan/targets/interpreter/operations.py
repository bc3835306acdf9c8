"""What each primitive does, in NumPy, to the parts of a tile."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from onescan import compat
from onescan.passes.complex_numbers import mended
from onescan.primitives import IDENTITIES
from onescan.targets.interpreter.elementwise import FUNCTIONS, convert, threefry
from onescan.targets.interpreter.linalg import MATRICES


@dataclass(frozen=True, eq=False)
class Local:
    """An equation, as a tile sees it."""

    params: dict[str, Any]
    shapes: list[tuple[int, ...]]  # of its results, in the tile
    dtypes: list[Any]
    whole: list[tuple[int, ...]]  # shapes of its operands, outside of the tile
    starts: list[tuple[int, ...]]  # of the tile in its results
    inside: Callable[[Any, list[Any]], list[Any]]  # runs a body of its own

    def __getattr__(self, name: str) -> Any:
        return self.params[name]


def _wide(x: Any) -> Any:
    """16-bit floats are computed in 32 bits."""
    return x.astype(np.float32) if x.dtype.itemsize == 2 and x.dtype.kind in "fV" else x


def _elementwise(function: Any) -> Any:
    return lambda e, *xs: np.broadcast_to(function(*map(_wide, xs)), e.shapes[0])


def _broadcast(e: Local, x: Any, *_: Any) -> Any:
    shape = [1] * len(e.shapes[0])
    for n, j in zip(x.shape, e.broadcast_dimensions, strict=True):
        shape[j] = n
    return np.broadcast_to(x.reshape(shape), e.shapes[0])


def _slice(e: Local, x: Any) -> Any:
    strides = e.strides or (1,) * x.ndim
    index = map(slice, e.start_indices, e.limit_indices, strides)
    lanes = [n != m for n, m in zip(x.shape, e.whole[0], strict=True)]
    return x[tuple(slice(None) if l else i for l, i in zip(lanes, index, strict=True))]


def _window(shape: Any, sizes: Any, starts: Any) -> tuple[slice, ...]:
    both = zip(shape, sizes, starts, strict=True)
    begin = [max(0, min(int(start), n - size)) for n, size, start in both]
    return tuple(slice(b, b + size) for b, size in zip(begin, sizes, strict=True))


def _update(e: Local, x: Any, update: Any, *starts: Any) -> Any:
    result = x.copy()
    result[_window(x.shape, update.shape, starts)] = update
    return result


def _pad(e: Local, x: Any, value: Any) -> Any:
    result = np.full(e.shapes[0], value, x.dtype)
    places = [
        low + np.arange(n) * (inner + 1)
        for n, (low, _, inner) in zip(x.shape, e.padding_config, strict=True)
    ]
    kept = [(p >= 0) & (p < m) for p, m in zip(places, e.shapes[0], strict=True)]
    there = np.ix_(*(p[k] for p, k in zip(places, kept, strict=True)))
    result[there] = x[np.ix_(*(np.nonzero(k)[0] for k in kept))]
    return result


def _fft(e: Local, re: Any, im: Any) -> list[Any]:
    found = np.fft.fft(re + 1j * im, axis=e.axis)
    return [part.astype(re.dtype) for part in (found.real, found.imag)]


def _dot_general(e: Local, x: Any, y: Any) -> Any:
    (cx, cy), (bx, by) = e.dimension_numbers
    left = list(range(x.ndim))
    right = list(range(x.ndim, x.ndim + y.ndim))
    for i, j in (*zip(cx, cy, strict=True), *zip(bx, by, strict=True)):
        right[j] = left[i]
    out = [left[i] for i in bx] + [i for i in left if i not in (*cx, *bx)]
    out += [right[j] for j in range(y.ndim) if j not in (*cy, *by)]
    return np.einsum(_wide(x), left, _wide(y), right, out)


def _running(function: Any) -> Any:
    def apply(e: Local, x: Any) -> Any:
        wide = np.flip(_wide(x), e.axis) if e.reverse else _wide(x)
        found = function.accumulate(wide, axis=e.axis, dtype=wide.dtype)
        return np.flip(found, e.axis) if e.reverse else found

    return apply


def _sort(e: Local, *xs: Any) -> Any:
    keys = [_wide(x) for x in reversed(xs[: e.num_keys])]
    order = np.lexsort(keys, axis=e.dimension)
    return [np.take_along_axis(x, order, e.dimension) for x in xs]


def _top_k(e: Local, x: Any) -> Any:
    """By IEEE's total order, the first of equal ones first."""
    wide = _wide(x)
    if wide.dtype.kind == "f":
        bits = np.ascontiguousarray(wide).view(f"i{wide.dtype.itemsize}")
        wide = np.where(bits < 0, bits ^ np.iinfo(bits.dtype).max, bits)
    order = np.argsort(~wide, axis=e.axis, kind="stable")
    order = np.take(order, np.arange(e.k), e.axis)
    return [np.take_along_axis(x, order, e.axis), order]


def _iota(e: Local, *_: Any) -> Any:
    (shape,), (start,) = e.shapes, e.starts
    line = start[e.dimension] + np.arange(shape[e.dimension])
    after = [1] * (len(shape) - e.dimension - 1)
    return np.broadcast_to(line.reshape([-1, *after]), shape)


def _round(e: Local, x: Any) -> Any:
    even = int(e.rounding_method) == 1
    wide = _wide(x)
    return np.round(wide) if even else np.copysign(np.floor(np.abs(wide) + 0.5), wide)


def _scan(e: Local, *args: Any) -> Any:
    inner = compat.loop_of(e.params)
    fixed = inner.num_consts + inner.num_carry
    carry, xs = list(args[inner.num_consts : fixed]), args[fixed:]
    kinds = list(zip(e.shapes, e.dtypes, strict=True))[inner.num_carry :]
    stacks = [np.zeros(shape, dtype) for shape, dtype in kinds]
    steps = range(inner.length)
    for t in reversed(steps) if inner.reverse else steps:
        given = [*args[: inner.num_consts], *carry, *(x[t] for x in xs)]
        outs = e.inside(inner.body.jaxpr, given)
        carry = outs[: inner.num_carry]
        for stack, y in zip(stacks, outs[inner.num_carry :], strict=True):
            stack[t] = y
    return [*carry, *stacks]


def _while(e: Local, *args: Any) -> Any:
    first, last = e.cond_nconsts, e.cond_nconsts + e.body_nconsts
    carry = list(args[last:])
    while True:
        (test,) = e.inside(e.cond_jaxpr.jaxpr, [*args[:first], *carry])
        if not test.any():
            return carry
        new = e.inside(e.body_jaxpr.jaxpr, [*args[first:last], *carry])
        spread = [test.reshape(test.shape + (1,) * (c.ndim - test.ndim)) for c in carry]
        carry = [np.where(s, n, c) for s, n, c in zip(spread, new, carry, strict=True)]


def _cond(e: Local, which: Any, *args: Any) -> Any:
    chosen = e.branches[max(0, min(int(which), len(e.branches) - 1))]
    return e.inside(chosen.jaxpr, list(args))


def _reduced(function: Any) -> Any:
    return lambda e, x: function(_wide(x), axis=tuple(e.axes), dtype=_wide(x).dtype)


OPERATIONS: dict[str, Callable[..., Any]] = {
    **{name: _elementwise(function) for name, function in FUNCTIONS.items()},
    **{
        name: (lambda e, *xs, function=function: function(e.params, *xs))
        for name, function in MATRICES.items()
    },
    **dict.fromkeys(IDENTITIES, lambda e, *xs: list(xs)),
    **dict.fromkeys(
        ("expand_dims", "reshape", "squeeze"), lambda e, x, *_: x.reshape(e.shapes[0])
    ),
    "argmax": lambda e, x: np.argmax(_wide(x), axis=e.axes[0]),
    "argmin": lambda e, x: np.argmin(_wide(x), axis=e.axes[0]),
    "bitcast_convert_type": lambda e, x: np.ascontiguousarray(x).view(e.dtypes[0]),
    "broadcast_in_dim": _broadcast,
    "concatenate": lambda e, *xs: np.concatenate(xs, e.dimension),
    "cond": _cond,
    "convert_element_type": lambda e, x: convert(np.dtype(e.dtypes[0]), _wide(x)),
    "cummax": _running(np.maximum),
    "cummin": _running(np.minimum),
    "cumprod": _running(np.multiply),
    "cumsum": _running(np.add),
    "dot_general": _dot_general,
    "dynamic_slice": lambda e, x, *at: x[_window(x.shape, e.shapes[0], at)],
    "dynamic_update_slice": _update,
    "integer_pow": lambda e, x: _wide(x) ** np.asarray(e.y, _wide(x).dtype),
    "iota": _iota,
    "onescan_fft": _fft,
    "onescan_quotient": lambda e, *xs: mended(*xs, imaginary=e.imaginary, xp=np),
    "one_minus_square": lambda e, x: 1 - _wide(x) * _wide(x),
    "pad": _pad,
    "reduce_max": lambda e, x: np.max(_wide(x), axis=tuple(e.axes)),
    "reduce_min": lambda e, x: np.min(_wide(x), axis=tuple(e.axes)),
    "reduce_or": lambda e, x: np.bitwise_or.reduce(x, axis=tuple(e.axes)),
    "reduce_and": lambda e, x: np.bitwise_and.reduce(x, axis=tuple(e.axes)),
    "round": _round,
    "reduce_prod": _reduced(np.prod),
    "reduce_sum": _reduced(np.sum),
    "rev": lambda e, x: np.flip(x, e.dimensions),
    "scan": _scan,
    "slice": _slice,
    "sort": _sort,
    "split": lambda e, x: np.split(x, np.cumsum(e.sizes)[:-1], e.axis),
    "stack": lambda e, *xs: np.stack(xs, e.axis),
    "threefry2x32": lambda e, *xs: threefry(*np.broadcast_arrays(*xs)),
    "top_k": _top_k,
    "transpose": lambda e, x: x.transpose(e.permutation),
    "unstack": lambda e, x: list(np.moveaxis(x, e.axis, 0)),
    "unvmap_all": lambda e, x: np.all(x),
    "unvmap_any": lambda e, x: np.any(x),
    "while": _while,
}
