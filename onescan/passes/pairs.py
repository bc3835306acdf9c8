"""pairs: complex numbers as pairs of real ones.

In goes a loop with complex values; out comes one in which each of them is two, the real
and the imaginary part, that goes the same way.  Kernels know only real numbers.  What
only moves values moves both parts; products, quotients and functions are their
textbook definitions.  The parts are taken before the loop, and joined after it, but for
kernels that read and write complex numbers where they stand (`plan/joined.py`).

A loop with something that has no definition here is left as it is.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Literal, Var

from onescan.loop import Loop, nbytes
from onescan.passes.complex_rules import RULES, Pair, Unsupported
from onescan.passes.inline import expand
from onescan.passes.split import Split, Values, slice_of
from onescan.plan.work import equations

#: a value of the new body, or the two that stand for one
Parts = tuple[Any, ...]


def pairs(loop: Loop) -> Split | None:
    """Take complex numbers out of a loop."""
    jaxpr = loop.body.jaxpr
    made = [v for eqn in equations(jaxpr) for v in eqn.outvars]
    if not any(map(_is_complex, [*jaxpr.invars, *made])):
        return None
    try:
        body = paired(loop.body)
    except Unsupported:
        return None
    consts = jaxpr.invars[: loop.num_consts]
    carry = jaxpr.invars[loop.num_consts : loop.num_consts + loop.num_carry]
    stacked = jaxpr.invars[loop.num_consts + loop.num_carry :]
    stacked += jaxpr.outvars[loop.num_carry :]
    smaller = loop.replace(
        body=body,
        converted=nbytes([v.aval for v in stacked if _is_complex(v)]),
        pairs=_pairs(jaxpr, body.jaxpr),
        num_consts=sum(map(_parts_of, consts)),
        num_carry=sum(map(_parts_of, carry)),
    )

    def before(args: Values) -> Values:
        return [
            part
            for v, x in zip(jaxpr.invars, args, strict=True)
            for part in ((lax.real(x), lax.imag(x)) if _is_complex(v) else (x,))
        ]

    def after(args: Values, results: Values) -> Values:
        rest = iter(results)
        return [
            lax.complex(next(rest), next(rest)) if _is_complex(v) else next(rest)
            for v in jaxpr.outvars
        ]

    return Split("pairs", smaller, before, after, ("made pairs of complex numbers",))


def _pairs(whole: Jaxpr, parted: Jaxpr) -> frozenset[tuple[Any, Any]]:
    """The two variables of each complex operand and result."""
    found = set()
    for before, after in (
        (whole.invars, parted.invars),
        (whole.outvars, parted.outvars),
    ):
        rest = iter(after)
        for v in before:
            both = tuple(next(rest) for _ in range(_parts_of(v)))
            if len(both) == 2 and all(isinstance(part, Var) for part in both):
                found.add(both)
    return frozenset(found)


def without_complex(loop: Loop) -> Loop:
    """The loop with pairs in place of complex numbers, as far as that is known."""
    split = pairs(loop)
    return loop if split is None else split.loop


def _is_complex(v: Any) -> bool:
    return jnp.issubdtype(v.aval.dtype, np.complexfloating)


def _parts_of(v: Any) -> int:
    return 2 if _is_complex(v) else 1


def paired(closed: ClosedJaxpr) -> ClosedJaxpr:
    """The same function of the parts of its arguments."""
    jaxpr = closed.jaxpr
    env: dict[Var, Parts] = {v: _variables(v) for v in jaxpr.invars}
    eqns: list[JaxprEqn] = []

    def read(atom: Any) -> Parts:
        if not isinstance(atom, Literal):
            return env[atom]
        if not _is_complex(atom):
            return (atom,)
        kind = _real(atom.aval)
        value: Any = np.asarray(atom.val)  # parts of a `jax.Array` would be traced
        parts = value.real, value.imag
        return tuple(Literal(part, kind) for part in parts)

    for eqn in jaxpr.eqns:
        inputs = [part for v in eqn.invars for part in read(v)]
        if not _has_complex(eqn):
            eqns.append(eqn.replace(invars=inputs))
            env.update((v, (v,)) for v in eqn.outvars)
            continue
        results = iter(expand(_defined(eqn), inputs, eqn, eqns))
        for v in eqn.outvars:
            env[v] = tuple(next(results) for _ in range(_parts_of(v)))
    invars = [part for v in jaxpr.invars for part in env[v]]
    outvars = [part for v in jaxpr.outvars for part in read(v)]
    debug_info = jaxpr.debug_info._replace(arg_names=None, result_paths=None)
    live = slice_of(eqns, outvars, invars)
    return ClosedJaxpr(Jaxpr([], invars, outvars, live, debug_info=debug_info), [])


def _variables(v: Var) -> Parts:
    kind = _real(v.aval)
    return (Var(kind), Var(kind)) if _is_complex(v) else (v,)


def _real(aval: Any) -> Any:
    """The type of one part of a complex value."""
    return aval.update(dtype=np.zeros(0, aval.dtype).real.dtype)


def _has_complex(eqn: Any) -> bool:
    inner = (
        v
        for value in eqn.params.values()
        for part in (value if isinstance(value, (tuple, list)) else (value,))
        if isinstance(getattr(part, "jaxpr", None), Jaxpr)
        for one in equations(part.jaxpr)
        for v in one.outvars
    )
    return any(map(_is_complex, [*eqn.invars, *eqn.outvars, *inner]))


def _defined(eqn: Any) -> Any:
    """An equation as a function of the parts of its operands."""
    rule = RULES.get(eqn.primitive.name)
    if rule is None:
        raise Unsupported(eqn.primitive.name)

    def function(*flat: Any) -> list[Any]:
        rest = iter(flat)
        operands = [
            Pair(next(rest), next(rest)) if _is_complex(v) else next(rest)
            for v in eqn.invars
        ]
        results = rule(eqn, paired, *operands)
        results = results if isinstance(results, list) else [results]
        return [
            part
            for value in results
            for part in (value if isinstance(value, Pair) else (value,))
        ]

    return function
