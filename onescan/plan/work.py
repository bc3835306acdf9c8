"""How much a body computes: operations by equation, nested bodies included."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from typing import Any

from jax.extend.core import Jaxpr

from onescan import compat
from onescan.loop import Equation

#: operations of one element, where that is not 1
DEAR = {
    **dict.fromkeys(("exp", "exp2", "log", "logistic", "tanh", "sin", "cos"), 16),
    **dict.fromkeys(("expm1", "log1p", "tan", "erf", "erfc", "erf_inv"), 25),
    **dict.fromkeys(("asin", "acos", "atan", "sinh", "cosh", "pow", "atan2"), 30),
    **dict.fromkeys(("asinh", "acosh", "atanh", "lgamma", "digamma", "cbrt"), 40),
    **dict.fromkeys(("div", "sqrt", "rsqrt"), 4),
    "threefry2x32": 110,
    "rem": 20,
    "gather": 6,
}

FREE = {
    "broadcast_in_dim",
    "reshape",
    "squeeze",
    "expand_dims",
    "transpose",
    "slice",
    "iota",
    "split",
    "unstack",
    "rev",
    "copy",
    "dynamic_slice",
}


@dataclass(frozen=True)
class Work:
    """Operations of one equation in one step of the loop."""

    eqn: Equation
    elements: int  # results
    each: float  # operations per result
    times: int  # how often it runs in a step

    @property
    def operations(self) -> float:
        return self.elements * self.each * self.times


def work_of(jaxpr: Jaxpr, times: int = 1) -> Iterator[Work]:
    """What each equation does; a while loop is counted as ten rounds."""
    for eqn in jaxpr.eqns:
        yield from work_in(eqn, times)


def work_in(eqn: Equation, times: int = 1) -> Iterator[Work]:
    """What one equation does, with all that is inside it."""
    name = eqn.primitive.name
    if name == "scan":
        inner = compat.loop_of(eqn.params)
        yield from work_of(inner.body.jaxpr, times * inner.length)
    elif name == "while":
        yield from work_of(eqn.params["body_jaxpr"].jaxpr, times * 10)
        yield from work_of(eqn.params["cond_jaxpr"].jaxpr, times * 10)
    elif name == "cond":
        for branch in eqn.params["branches"]:
            yield from work_of(branch.jaxpr, times)
    else:
        yield Work(eqn, *_cost(eqn), times)


def equations(jaxpr: Jaxpr) -> Iterator[Equation]:
    """Every equation of a body, those of inner bodies included."""
    for eqn in jaxpr.eqns:
        yield eqn
        for value in eqn.params.values():
            for part in value if isinstance(value, (tuple, list)) else (value,):
                inner = getattr(part, "jaxpr", part)  # of a closed one
                if isinstance(inner, Jaxpr):
                    yield from equations(inner)


def _cost(eqn: Equation) -> tuple[int, float]:
    name = eqn.primitive.name
    results = sum(prod(v.aval.shape) for v in eqn.outvars)
    if name in FREE:
        return results, 0.0
    if name == "dot_general":
        (contracted, _), _ = eqn.params["dimension_numbers"]
        shape = eqn.invars[0].aval.shape
        return results, float(prod(shape[i] for i in contracted))
    if name.startswith(("reduce_", "arg", "cum")) and name != "reduce_precision":
        inputs = prod(eqn.invars[0].aval.shape)
        return results, inputs / max(results, 1)
    if name == "sort":
        n = eqn.invars[0].aval.shape[eqn.params["dimension"]]
        return results, 2.0 * max(n, 2).bit_length() ** 2
    if name.startswith(("scatter", "dynamic_update_slice")):
        return prod(eqn.invars[-1].aval.shape or (1,)), 6.0
    return results, float(DEAR.get(name, 1))


def operand_of(eqn: Equation) -> Any:
    """The value whose last dimension an equation runs along."""
    name = eqn.primitive.name
    if name.startswith(("reduce_", "arg")) and name != "reduce_precision":
        return eqn.invars[0]
    return eqn.outvars[0]
