"""The links of an accumulator: what combines a carry with one more value.

An accumulator is a chain of links from the old value of a carry to the new one,
all of one kind.  A kind is right when a reduction over time, in any order, gives
what the chain gives but for rounding:

* sums (``add``, ``sub``) and ``logaddexp``, whose reduction is a logsumexp;
* ``max``, ``min``, ``and``, ``or``, ``xor``, and products of integers, exactly.

Products of floats are not among them: in another order they may overflow, or
vanish, where the loop does neither, and no later factor brings them back.

Most links are one equation.  ``jnp.logaddexp`` is a cluster of them, with its
answers for NaN and infinities; the cluster is recognised as this JAX traces it,
whole, and nothing less is taken for it.  Both it and `logsumexp` give NaN where
one value is NaN, otherwise inf where one is inf, and -inf where all are -inf.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import Jaxpr, JaxprEqn, Var
from jax.nn import logsumexp

from onescan import compat
from onescan.loop import Atom
from onescan.passes.inline import flatten
from onescan.passes.split import Parts, variables
from onescan.primitives import named


@dataclass(frozen=True, eq=False)
class Link:
    """``new = combine(old, term)``, one link of an accumulator."""

    kind: str
    term: Any
    new: Var
    eqns: tuple[JaxprEqn, ...]
    combine: Callable[[Any, Any], Any]


LOGADDEXP = "logaddexp"

#: from the values of all steps, stacked, to their combination
REDUCTIONS: dict[str, Callable[[Any], Any]] = {
    "max": partial(jnp.max, axis=0),
    "min": partial(jnp.min, axis=0),
    "and": partial(jnp.bitwise_and.reduce, axis=0),
    "or": partial(jnp.bitwise_or.reduce, axis=0),
    "xor": partial(jnp.bitwise_xor.reduce, axis=0),
    "product": lambda rows: jnp.prod(rows, axis=0, dtype=rows.dtype),
    LOGADDEXP: partial(logsumexp, axis=0),
}


@dataclass(frozen=True, eq=False)
class Uses:
    """Who makes and who reads each value of a body."""

    makers: dict[Var, JaxprEqn]
    readers: dict[Var, list[JaxprEqn]]
    leaving: Counter[Var]  # how often a value is a result of the body

    @staticmethod
    def of(parts: Parts) -> Uses:
        readers: dict[Var, list[JaxprEqn]] = {}
        for eqn in parts.eqns:
            for v in dict.fromkeys(variables(eqn.invars)):
                readers.setdefault(v, []).append(eqn)
        makers = {v: eqn for eqn in parts.eqns for v in eqn.outvars}
        return Uses(makers, readers, Counter(variables(parts.results)))

    def only_in(self, v: Var, eqns: Iterable[JaxprEqn]) -> bool:
        """Whether nothing but these equations reads a value."""
        return not self.leaving[v] and all(
            any(reader is eqn for eqn in eqns) for reader in self.readers.get(v, ())
        )


def link_from(v: Var, uses: Uses) -> Link | None:
    """The link that a value is combined by, if that is all that becomes of it."""
    reading = uses.readers.get(v, [])
    if len(reading) == 1 and uses.only_in(v, reading):
        return _single(v, reading[0])
    return _logaddexp(v, uses) if len(reading) > 1 else None


def _single(v: Any, eqn: JaxprEqn) -> Link | None:
    name = eqn.primitive.name
    kind = named(name).collects
    new: Any = eqn.outvars[0]
    terms = [x for x in eqn.invars if x is not v]
    if kind is None or len(terms) != 1 or (name == "sub" and terms[0] is eqn.invars[0]):
        return None
    if not _any_order(kind, v.aval.dtype) or new.aval.shape != v.aval.shape:
        return None

    def combine(old: Any, total: Any) -> Any:
        return compat.bind(eqn, [old if x is v else total for x in eqn.invars])[0]

    return Link(kind, terms[0], new, (eqn,), combine)


def _any_order(kind: str, dtype: Any) -> bool:
    """Whether values of this type may be combined in any order."""
    if kind == "sum":
        return not jnp.issubdtype(dtype, np.bool_)
    if kind == "product":
        return jnp.issubdtype(dtype, np.integer)
    return not jnp.issubdtype(dtype, np.complexfloating)


def _logaddexp(v: Any, uses: Uses) -> Link | None:
    made = (eqn.primitive.name for eqn in uses.makers.values())
    if not jnp.issubdtype(v.aval.dtype, np.floating) or "log1p" not in made:
        return None  # before JAX is asked how it would write it
    pattern = _traced(v.aval.shape, v.aval.dtype)
    last = pattern.eqns[-1].primitive
    for eqn in uses.makers.values():
        if eqn.primitive is not last:
            continue
        for mine, other in (pattern.invars, pattern.invars[::-1]):
            bound = {mine: v}
            eqns = _matched(pattern, eqn.outvars[0], bound, uses.makers)
            inner = [x for e in eqns for x in e.outvars if e is not eqn]
            alone = all(uses.only_in(x, eqns) for x in (v, *inner))
            if eqns and alone and (term := bound[other]) is not v:
                return Link(LOGADDEXP, term, eqn.outvars[0], eqns, jnp.logaddexp)
    return None


@cache
def _traced(shape: tuple[int, ...], dtype: Any) -> Jaxpr:
    """`jnp.logaddexp` as this JAX writes it."""
    value = jax.ShapeDtypeStruct(shape, dtype)
    return flatten(jax.make_jaxpr(jnp.logaddexp)(value, value)).jaxpr


def _matched(
    pattern: Any, result: Var, bound: dict[Any, Any], makers: dict[Var, JaxprEqn]
) -> tuple[JaxprEqn, ...]:
    """The equations that compute `result` as `pattern` does, or none.

    `bound` has what is known of the pattern's variables, and hears of the others.
    """
    wanted = {v: eqn for eqn in pattern.eqns for v in eqn.outvars}
    found: list[JaxprEqn] = []

    def same(p: Any, atom: Atom) -> bool:
        if p in bound:
            return bound[p] is atom
        if p in wanted:
            made = makers.get(atom) if isinstance(atom, Var) else None
            if made is None or not alike(wanted[p], made):
                return False
            found.append(made)
        bound[p] = atom
        return _type(p) == _type(atom)

    def alike(a: JaxprEqn, b: JaxprEqn) -> bool:
        equal = a.primitive is b.primitive and a.params == b.params
        return equal and all(map(same, a.invars, b.invars))

    return tuple(found) if same(pattern.outvars[0], result) else ()


def _type(v: Any) -> tuple[Any, Any]:
    return v.aval.shape, v.aval.dtype
