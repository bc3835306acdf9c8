"""Sums over time of a body's values, without computing the value at each step.

A sum over all steps goes through every linear operation: the sum of transposes is
the transpose of the sum, and so on down to

* a product of two values that both change with time: ``sum_t dot(a_t, b_t)`` is
  one product that contracts time as well;
* a *ready* value, one that can be had for all steps at once without the loop
  computing anything new: it needs no carry, or the loop leaves it behind anyway,
  or it follows elementwise from such values.  Its stack is summed.

`Totals.missing` says what the loop would have to leave behind to make a sum
possible, `Totals.total` computes it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from math import prod
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.extend.core import JaxprEqn, Literal, Var

from onescan import compat
from onescan.passes.overtime import evaluate, kinds_of, over_time
from onescan.passes.products import product
from onescan.passes.split import Parts
from onescan.passes.worth import elements, is_view
from onescan.primitives import ELEMENTWISE, FREE, named, record_of

#: what costs nothing or little to compute again outside
CHEAP = ELEMENTWISE | FREE
#: what may leave little of much: the energy of a step less that of the first one.  The
#: sums of cotangents are `add_any`.
CANCELLING = {"add", "sub"}
#: factors up to which a sum of steps is as far from overflow as the result
USUAL = 1e12


class Totals:
    """What is known about one body, and which of its values are left behind."""

    def __init__(self, parts: Parts, left: Iterable[Any]) -> None:
        self.parts = parts
        self.kinds = kinds_of(parts)
        self.makers = {v: eqn for eqn in parts.eqns for v in eqn.outvars}
        self.left: set[Var] = set()  # stacked by the loop
        self.leave(v for v in left if isinstance(v, Var))

    def leave(self, values: Iterable[Var]) -> None:
        """Let the loop leave these values behind too."""
        self.left |= set(values)
        self.ready = {v for v, kind in self.kinds.items() if kind != "bound"}
        self.ready |= self.left
        self.holding: dict[Var, list[JaxprEqn]] = {}  # products inside a sum of v
        for eqn in self.parts.eqns:
            if eqn.primitive.name in CHEAP and all(map(self.is_ready, eqn.invars)):
                self.ready.update(eqn.outvars)
            if held := self._held(eqn):
                self.holding.update(dict.fromkeys(eqn.outvars, held))

    def _held(self, eqn: JaxprEqn) -> list[JaxprEqn]:
        if self.is_product(eqn):
            return [eqn]
        below = (self.products(x) for x in self.operands(eqn) or ())
        return list({id(e): e for eqns in below for e in eqns}.values())

    def is_fixed(self, v: Any) -> bool:
        return isinstance(v, Literal) or self.kinds[v] == "fixed"

    def is_ready(self, v: Any) -> bool:
        return isinstance(v, Literal) or v in self.ready

    def operands(self, eqn: JaxprEqn) -> list[Any] | None:
        """The operands an equation is linear in, the others being fixed.

        So far as numbers go: a sum of integers is not divided as they are, in a
        narrower type than that of the result it has another end, and one of steps may
        be too large where theirs are not.  What is left of two sums that nearly cancel
        in each step is taken as it is.
        """
        name = eqn.primitive.name
        out: Any = eqn.outvars[0] if eqn.outvars else None
        if name in CANCELLING and _is_float(out.aval.dtype):
            return list(eqn.invars) if any(map(self.products, eqn.invars)) else None
        if named(name).linear:
            return list(eqn.invars)
        if out is None or out.aval.dtype == np.float16:  # which ends at 65504
            return None
        if name == "convert_element_type":
            source, made = (np.dtype(v.aval.dtype) for v in _ends(eqn))
            kept = all(jnp.issubdtype(d, np.floating) for d in (source, made))
            kept &= source.itemsize >= made.itemsize
            return list(eqn.invars) if kept else None
        if name in ("mul", "dot_general"):
            moving: list[Any] = [v for v in eqn.invars if not self.is_fixed(v)]
            same = all(v.aval.dtype == out.aval.dtype for v in moving)
            usual = name != "mul" or all(map(_is_usual, eqn.invars))
            return moving if len(moving) == 1 and same and usual else None
        if name == "div" and self.is_fixed(eqn.invars[1]):
            usual = _is_float(out.aval.dtype) and _is_usual(eqn.invars[1])
            return [eqn.invars[0]] if usual else None
        return None

    def is_product(self, eqn: JaxprEqn) -> bool:
        """Whether an equation multiplies two values that change with time."""
        return (
            record_of(eqn).kind == "product"
            and eqn.params.get("out_sharding") is None
            and not any(map(self.is_fixed, eqn.invars))
        )

    def products(self, v: Any) -> list[JaxprEqn]:
        """The products that a sum of `v` would go down to."""
        return [] if isinstance(v, Literal) else self.holding.get(v, [])

    def path(self, v: Any, left: set[Var]) -> list[JaxprEqn]:
        """The equations that a sum of `v` takes out of a step that leaves `left`."""
        if self._stops(v) or v in left:
            return []
        maker = self.makers[v]
        rest = () if self.is_product(maker) else self.operands(maker) or ()
        return [maker, *(eqn for x in rest for eqn in self.path(x, left))]

    def missing(self, v: Any, through_sums: bool = False) -> set[Var]:
        """The values the loop must leave behind to make a sum of `v` possible.

        As few elements as will do; `through_sums` takes what goes into a
        reduction instead of what comes out.
        """
        if self._stops(v):
            return set()
        maker = self.makers.get(v)
        if maker is None:
            return {v}
        if self.is_product(maker):
            return {x for operand in maker.invars for x in self._stack_of(operand)}
        deeper = self.operands(maker)
        if deeper is None:
            return {v}
        below = set().union(*(self.missing(x, through_sums) for x in deeper))
        if self.products(v) or (through_sums and maker.primitive.name == "reduce_sum"):
            return below
        return below if elements(below) < elements([v]) else {v}

    def _stops(self, v: Any) -> bool:
        return self.is_fixed(v) or (self.is_ready(v) and not self.products(v))

    def _stack_of(self, v: Any) -> set[Var]:
        """What to leave behind to have `v` of all steps: the source of a view."""
        if self.is_ready(v):
            return set()
        maker = self.makers.get(v)
        if maker is not None and is_view(maker):
            return {x for operand in maker.invars for x in self._stack_of(operand)}
        return {v}

    def _turned_product(self, eqn: JaxprEqn) -> JaxprEqn | None:
        """The product that gives a transposed product, by operands changed over."""
        source: Any = eqn.invars[0] if eqn.primitive.name == "transpose" else None
        product = self.makers.get(source) if isinstance(source, Var) else None
        if product is None or not self.is_product(product):
            return None
        along, batch = product.params["dimension_numbers"]
        sides: list[Any] = list(product.invars)
        free = [len(v.aval.shape) - len(d) for v, d in zip(sides, along, strict=True)]
        if any(batch) or free != [1, 1] or eqn.params["permutation"] != (1, 0):
            return None
        precision = product.params["precision"]
        changes = {
            "dimension_numbers": (along[::-1], batch),
            "precision": precision[::-1] if isinstance(precision, tuple) else precision,
        }
        return product.replace(invars=sides[::-1], params={**product.params, **changes})

    def evaluator(
        self,
        fixed: Mapping[Var, Any],
        stacked: Mapping[Var, Any],
        length: int,
        sums: Mapping[Var, Any] | None = None,
    ) -> Callable[[Any], Any]:
        """A function from a value of the body to its sum over all steps.

        Some of these sums may be known.
        """
        whole = partial(over_time, self.parts.eqns, fixed, stacked, length=length)
        known: dict[Var, Any] = dict(sums or {})

        def total(v: Any) -> Any:
            if self.is_fixed(v):
                return _times(fixed_value(v), length, v.aval.dtype)
            if v not in known:
                known[v] = compute(v)
            return known[v]

        def compute(v: Any) -> Any:
            if self._stops(v):
                return jnp.sum(whole(wanted=[v])[0], axis=0, dtype=v.aval.dtype)
            maker = self.makers[v]
            if self.is_product(maker):
                return _contract_time(maker, whole(wanted=list(maker.invars)))
            if transposed := self._turned_product(maker):
                return _contract_time(transposed, whole(wanted=list(transposed.invars)))
            deeper = self.operands(maker)
            assert deeper is not None, f"no sum over time of {maker}"
            values = [
                total(x) if any(x is y for y in deeper) else fixed_value(x)
                for x in maker.invars
            ]
            return compat.bind(maker, values)[maker.outvars.index(v)]

        def fixed_value(v: Any) -> Any:
            return evaluate(self.parts.eqns, fixed, [v])[0]

        return total


def _is_usual(v: Any) -> bool:
    """Whether a factor, if it is known, is neither huge nor tiny."""
    if not isinstance(v, Literal):
        return True
    with np.errstate(over="ignore"):
        sizes = np.abs(np.asarray(v.val).astype(complex))
    return bool(np.all((sizes == 0) | ((sizes >= 1 / USUAL) & (sizes <= USUAL))))


def _ends(eqn: JaxprEqn) -> list[Any]:
    return [*eqn.invars, *eqn.outvars]


def _times(value: Any, length: int, dtype: Any) -> Any:
    """The sum of equal values; small types cannot hold the count itself."""
    small = jnp.float32 if _is_float(dtype) else jnp.int32
    wide = jnp.promote_types(dtype, small) if np.dtype(dtype).itemsize < 4 else dtype
    return (jnp.asarray(value, wide) * jnp.asarray(length, wide)).astype(dtype)


def _is_float(dtype: Any) -> bool:
    return jnp.issubdtype(dtype, np.inexact)


def _contract_time(eqn: JaxprEqn, stacks: list[Any]) -> Any:
    """A product of stacks that sums over time as well.

    Time and what was contracted before are one long dimension, because XLA runs a
    product with one contracted dimension several times faster than with two.
    """
    contracted, batch = eqn.params["dimension_numbers"]
    if any(batch):
        numbers = tuple((0, *_later(d)) for d in contracted), tuple(map(_later, batch))
        changed = eqn.replace(params={**eqn.params, "dimension_numbers": numbers})
        return compat.bind(changed, stacks)[0]
    merged, kept = [], []
    for stack, dims in zip(stacks, contracted, strict=True):
        dims = (0, *_later(dims))
        free = [d for d in range(stack.ndim) if d not in dims]
        kept += [stack.shape[d] for d in free]
        rows = stack.transpose(*dims, *free)
        shape = [prod(rows.shape[: len(dims)]), prod(rows.shape[len(dims) :])]
        merged.append(rows.reshape(shape))
    how = {k: eqn.params[k] for k in ("precision", "preferred_element_type")}
    x, y = merged
    return product(x, y, (0, 0), how).reshape(kept)


def _later(dims: Any) -> tuple[int, ...]:
    """The same dimensions where time comes first."""
    return tuple(d + 1 for d in dims)
