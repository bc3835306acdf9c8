"""narrow: what is the same at many places is computed once, and spread afterwards.

In goes a loop; out comes one in which ``tanh(broadcast(x))`` is ``broadcast(tanh(x))``,
and likewise for every costly elementwise operation along axes in which its operands do
not change, and for sums and extremes of such values.  Programs have that where they
fill arrays with a number, `jax.vmap` where it spreads what its lanes share, and
gradients of sums, whose cotangent is one number.

Each value that does not change along some axes has a twin without them, and equations
between such values have twins too, which go again where nothing needs them.

Right, because an elementwise operation gives equal results for equal operands, and a
sum of equal numbers is their count times one of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from jax.core import ShapedArray
from jax.extend.core import JaxprEqn, Literal, Var
from jax.extend.core.primitives import broadcast_in_dim_p, mul_p, squeeze_p

from onescan.loop import Loop
from onescan.passes.split import Split, parts_of, rebuilt, slice_of, unchanged
from onescan.primitives import record_of

#: how many times as large as what it is computed from a value is, at least
WORTH = 2
#: what the reduction of equal numbers is: one of them, or for a sum as many times that
EXTREMES = {"reduce_and", "reduce_max", "reduce_min", "reduce_or"}


def narrow(loop: Loop) -> Split | None:
    """Compute before spreading."""
    parts = parts_of(loop)
    twins = _Twins()
    for eqn in parts.eqns:
        twins.add(eqn)
    if not twins.count:
        return None
    live = slice_of(tuple(twins.eqns), parts.results, parts.inputs)
    what = "1 operation" if twins.count == 1 else f"{twins.count} operations"
    return Split(
        name="narrow",
        loop=rebuilt(loop, parts.replace(eqns=tuple(live))),
        before=unchanged,
        after=lambda args, results: results,
        notes=(f"computed {what} once that had equal operands at many places",),
    )


@dataclass(frozen=True)
class _Small:
    """A value without the axes along which it does not change."""

    atom: Any
    axes: tuple[int, ...]  # those that it has, of the whole value


class _Twins:
    """The equations of a body, with those between small values in front of them."""

    def __init__(self) -> None:
        self.eqns: list[JaxprEqn] = []
        self.count = 0  # equations that are computed on small values only
        self._small: dict[Any, _Small] = {}

    def add(self, eqn: JaxprEqn) -> None:
        """One more equation of the body, itself or by its twin."""
        small, instead = self._twin(eqn), _is_costly(eqn)
        if small is not None:
            self._small[eqn.outvars[0]] = small
        if small is None or not instead:
            self.eqns.append(eqn)
            return
        self.count += 1
        result: Any = eqn.outvars[0]
        self.eqns.append(
            _spread(small.atom, result.aval.shape, small.axes, eqn, result)
        )

    def _twin(self, eqn: JaxprEqn) -> _Small | None:
        """The result of an equation, from small operands, if that is much less."""
        if eqn.effects or len(eqn.outvars) != 1:
            return None
        aval: Any = eqn.outvars[0].aval
        kind, name = record_of(eqn).kind, eqn.primitive.name
        if name == "broadcast_in_dim" and len(eqn.invars) == 1:
            small = self._of(eqn.invars[0], eqn)
            places = eqn.params["broadcast_dimensions"]
            return _Small(small.atom, tuple(places[axis] for axis in small.axes))
        if kind == "elementwise":
            return self._elementwise(eqn, aval)
        if name == "reduce_sum" or name in EXTREMES:
            return self._reduced(eqn, aval)
        return None

    def _elementwise(self, eqn: JaxprEqn, aval: Any) -> _Small | None:
        types: list[Any] = [v.aval for v in eqn.invars]
        if any(each.ndim not in (0, aval.ndim) for each in types):
            return None
        smalls = [self._of(v, eqn) for v in eqn.invars]
        axes = tuple(sorted({axis for small in smalls for axis in small.axes}))
        shape = tuple(aval.shape[axis] for axis in axes)
        if WORTH * prod(shape) > prod(aval.shape):
            return None
        operands = [self._widened(small, axes, shape, eqn) for small in smalls]
        return _Small(self._made(eqn, operands, shape, aval.dtype), axes)

    def _reduced(self, eqn: JaxprEqn, aval: Any) -> _Small | None:
        operand: Any = eqn.invars[0]
        whole, over = operand.aval.shape, eqn.params["axes"]
        small = self._of(operand, eqn)
        sizes = [whole[axis] for axis in small.axes]
        if WORTH * prod(sizes) > prod(whole):
            return None
        equal = prod(whole[axis] for axis in over if axis not in small.axes)
        times = _count(equal, aval.dtype)
        if eqn.primitive.name == "reduce_sum" and times is None:
            return None
        kept = [axis for axis in range(len(whole)) if axis not in over]
        axes = tuple(kept.index(axis) for axis in small.axes if axis in kept)
        shape = tuple(aval.shape[axis] for axis in axes)
        inner = tuple(i for i, axis in enumerate(small.axes) if axis in over)
        value = small.atom
        if inner:
            params = {**eqn.params, "axes": inner}
            value = self._made(eqn, [value], shape, aval.dtype, params=params)
        if eqn.primitive.name == "reduce_sum" and equal > 1:
            by = Literal(times, ShapedArray((), aval.dtype))
            way = {"primitive": mul_p, "params": {}}
            value = self._made(eqn, [value, by], shape, aval.dtype, **way)
        return _Small(value, axes)

    def _of(self, v: Any, eqn: JaxprEqn) -> _Small:
        """A value without axes along which it is known not to change."""
        aval: Any = v.aval
        shape = aval.shape
        if isinstance(v, Literal):
            return _Small(v, tuple(range(len(shape))))
        if v in self._small:
            return self._small[v]
        single = tuple(axis for axis, size in enumerate(shape) if size == 1)
        axes = tuple(axis for axis, size in enumerate(shape) if size != 1)
        atom = v
        if single:
            way = {"primitive": squeeze_p, "params": {"dimensions": single}}
            sizes = tuple(shape[axis] for axis in axes)
            atom = self._made(eqn, [v], sizes, aval.dtype, **way)
        self._small[v] = _Small(atom, axes)
        return self._small[v]

    def _widened(
        self, small: _Small, axes: Sequence[int], shape: tuple[int, ...], eqn: JaxprEqn
    ) -> Any:
        """A small operand with the axes that the operation has."""
        if small.axes == axes or _is_number(small.atom):
            return small.atom
        wide = Var(ShapedArray(shape, small.atom.aval.dtype))
        places = tuple(axes.index(axis) for axis in small.axes)
        self.eqns.append(_spread(small.atom, shape, places, eqn, wide))
        return wide

    def _made(
        self,
        eqn: JaxprEqn,
        operands: list[Any],
        shape: tuple[int, ...],
        dtype: Any,
        **changes: Any,
    ) -> Var:
        """The result of one more equation, made in the likeness of another."""
        result = Var(ShapedArray(shape, dtype))
        self.eqns.append(eqn.replace(invars=operands, outvars=[result], **changes))
        return result


def _is_number(atom: Any) -> bool:
    aval: Any = atom.aval
    return isinstance(atom, Literal) and not aval.shape


def _is_costly(eqn: JaxprEqn) -> bool:
    """Whether an equation takes longer than spreading its result."""
    record = record_of(eqn)
    return record.kind == "reduction" or (
        record.kind == "elementwise" and record.cost > 1
    )


def _spread(
    v: Any, shape: tuple[int, ...], places: Sequence[int], eqn: JaxprEqn, result: Var
) -> JaxprEqn:
    params = {"shape": shape, "broadcast_dimensions": tuple(places), "sharding": None}
    return eqn.replace(
        primitive=broadcast_in_dim_p, params=params, invars=[v], outvars=[result]
    )


def _count(number: int, dtype: Any) -> Any:
    """A number in a type that has it, or of integers what it is there."""
    if dtype.kind in "iu":
        return np.asarray(number).astype(dtype)
    found = np.asarray(number, dtype)
    return found if float(found) == number else None
