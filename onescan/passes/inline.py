"""inline: one flat body, without calls, key types or dead code.

In goes a loop as JAX traced it; out comes the same loop whose body (and the
bodies of the loops and branches inside it) holds no call equations (jit,
custom derivatives, remat, closed calls), no typed keys, no reduction of one number
and no equation whose result nobody reads.  A call means its body with the arguments
put in, so substitution keeps the meaning; at lowering time custom derivative rules have
already been used.  A typed key is the uint32 array JAX lowers it to, with one
more dimension at the end; a loop with values of any other type of the user's making
is left to XLA, because only JAX knows what its equations mean.  Every inner jaxpr gets
variables of its own, so that later stages can key their tables by variable.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import dtypes, lax
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Literal, Var
from jax.extend.core import primitives as jp

from onescan import compat
from onescan.loop import LeaveToXla, Loop
from onescan.passes.equinox import MARKS, definition
from onescan.passes.keys import is_key, key_params, selection
from onescan.passes.philox import drawn
from onescan.passes.quotients import by_reciprocal
from onescan.passes.selected import cheap
from onescan.passes.special import special_function
from onescan.primitives.reductions import REDUCED

Atom = Any

#: call primitives and the parameter that holds what they call
CALLS = {
    "jit": "jaxpr",
    "pjit": "jaxpr",
    "closed_call": "call_jaxpr",
    "core_call": "call_jaxpr",
    "eval_jaxpr": "call_jaxpr",  # both of these, since JAX 0.12
    "custom_jvp_call": "call_jaxpr",
    "custom_vjp_call": "call_jaxpr",
    "checkpoint": "jaxpr",
    "remat": "jaxpr",
    "remat2": "jaxpr",
    "custom_lin": "call_jaxpr",
}

IDENTITIES = MARKS.union(
    {"random_wrap", "random_unwrap", "copy", "copy_p", "name", "stop_gradient"}
)


def inline(loop: Loop, platform: str = "cpu") -> Loop:
    """Flatten the body of a loop that runs on a platform."""
    return loop.replace(body=flatten(loop.body, platform))


def flatten(closed: ClosedJaxpr, platform: str = "cpu") -> ClosedJaxpr:
    """The same function without calls, typed keys and dead code."""
    jaxpr = closed.jaxpr
    invars = [Var(_physical(v.aval)) for v in jaxpr.invars]
    eqns: list[JaxprEqn] = []
    outs = _emit(jaxpr, closed.consts, invars, eqns, platform)
    live = _live(eqns, outs)
    return ClosedJaxpr(Jaxpr([], invars, outs, live, debug_info=jaxpr.debug_info), [])


def _emit(
    jaxpr: Jaxpr, consts: Any, args: list[Atom], eqns: list[JaxprEqn], platform: str
) -> list[Atom]:
    """Append the equations of `jaxpr`, applied to `args`, and return its results."""
    env: dict[Var, Atom] = dict(zip(jaxpr.invars, args, strict=True))
    for var, value in zip(jaxpr.constvars, consts, strict=True):
        env[var] = Literal(value, _physical(var.aval))

    def read(atom: Atom) -> Atom:
        return atom if isinstance(atom, Literal) else env[atom]

    for eqn in jaxpr.eqns:
        inputs = [read(v) for v in eqn.invars]
        outs = _equation(eqn, inputs, eqns, platform)
        env.update(zip(eqn.outvars, outs, strict=True))
    return [read(v) for v in jaxpr.outvars]


def _equation(
    eqn: JaxprEqn, inputs: list[Atom], eqns: list[JaxprEqn], platform: str
) -> list[Atom]:
    name = eqn.primitive.name
    if name in IDENTITIES:
        return inputs
    if name in CALLS and CALLS[name] in eqn.params:
        called = eqn.params[CALLS[name]]
        if not isinstance(called, ClosedJaxpr):
            called = ClosedJaxpr(called, ())
        first = len(eqns)
        results = _emit(called.jaxpr, called.consts, inputs, eqns, platform)
        eqns[first:] = [compat.placed(inner, eqn) for inner in eqns[first:]]
        return results
    if name == "custom_linear_solve":
        return _solved(eqn, inputs, eqns, platform)
    if name == "device_put" and _stays(eqn):
        return inputs
    if name == "platform_index":
        return [_index_of_platform(eqn, platform)]
    if name == jp.cond_p.name and isinstance(inputs[0], Literal):
        branches = eqn.params["branches"]
        which = min(max(int(inputs[0].val), 0), len(branches) - 1)
        branch = branches[which]
        return _emit(branch.jaxpr, branch.consts, inputs[1:], eqns, platform)
    if name in REDUCED and _takes_one_each(eqn):
        eqn = eqn.replace(
            primitive=jp.squeeze_p, params={"dimensions": eqn.params["axes"]}
        )
    if expansion := _expansion(eqn):
        return expand(expansion, inputs, eqn, eqns, platform)
    if rewritten := by_reciprocal(eqn, inputs, eqns):
        return expand(*rewritten, eqn, eqns, platform)
    if _takes_keys(eqn):
        raise LeaveToXla(f"`{name}` at {compat.source_of(eqn)} has no native rule")
    inputs, params = key_params(eqn, inputs)
    params = _inner(name, _on_one_device(params), platform)
    if name == jp.cond_p.name:
        inputs, params = _each_once(inputs, params)
    if name == jp.cond_p.name and cheap(eqn, params["branches"], platform):
        return _selected(eqn, inputs, params["branches"], eqns, platform)
    outvars = [Var(_physical(v.aval)) for v in eqn.outvars]
    eqns.append(eqn.replace(invars=inputs, outvars=outvars, params=params))
    return outvars  # type: ignore[return-value]


def _on_one_device(params: dict[str, Any]) -> dict[str, Any]:
    """Without the parts that a mesh of one device has of a result: it has all of it."""
    gone = {
        key: None
        for key in ("sharding", "out_sharding")
        if getattr(getattr(params.get(key), "mesh", None), "size", 0) == 1
    }
    return {**params, **gone}


def expand(
    function: Callable[..., Any],
    inputs: list[Atom],
    eqn: JaxprEqn,
    eqns: list[JaxprEqn],
    platform: str = "cpu",
) -> list[Atom]:
    """Append the equations of a function of `inputs`, in the place of an equation."""
    traced = jax.make_jaxpr(function)(*(_struct(v.aval) for v in inputs))
    first = len(eqns)
    results = _emit(traced.jaxpr, traced.consts, inputs, eqns, platform)
    eqns[first:] = [compat.placed(inner, eqn) for inner in eqns[first:]]
    return results


def _expansion(eqn: JaxprEqn) -> Callable[..., Any] | None:
    """What an equation computes, as a function to be traced, where that says more."""
    keys = compat.keys_as_bits(eqn) or selection(eqn)
    function = special_function(eqn) or definition(eqn)
    return keys or _permutation(eqn) or function or drawn(eqn)


def _selected(
    eqn: JaxprEqn,
    inputs: list[Atom],
    branches: tuple[ClosedJaxpr, ...],
    eqns: list[JaxprEqn],
    platform: str,
) -> list[Atom]:
    """The results of all branches, and of those the ones that are asked for."""
    which, *args = inputs
    ways = [_emit(b.jaxpr, b.consts, args, eqns, platform) for b in branches]
    values = list(ways[0])
    differ = [k for k, cases in enumerate(zip(*ways, strict=True)) if _differ(cases)]
    asked = [way[k] for k in differ for way in ways]

    def choose(which: Any, *cases: Any) -> list[Any]:
        each = len(ways)
        starts = range(0, len(cases), each)
        return [lax.select_n(which, *cases[k : k + each]) for k in starts]

    chosen = expand(choose, [which, *asked], eqn, eqns, platform)
    for k, value in zip(differ, chosen, strict=True):
        values[k] = value
    return values


def _differ(cases: tuple[Atom, ...]) -> bool:
    return any(case is not cases[0] for case in cases)


def _solved(
    eqn: JaxprEqn, inputs: list[Atom], eqns: list[JaxprEqn], platform: str
) -> list[Atom]:
    """A linear system by the function that its caller gave to solve it."""
    lengths, solve = eqn.params["const_lengths"], eqn.params["jaxprs"].solve
    first = lengths.matvec + lengths.vecmat
    consts = inputs[first : first + lengths.solve]
    args = [*consts, *inputs[sum(lengths) :]]
    start = len(eqns)
    results = _emit(solve.jaxpr, solve.consts, args, eqns, platform)
    eqns[start:] = [compat.placed(inner, eqn) for inner in eqns[start:]]
    return results


def _permutation(eqn: JaxprEqn) -> Callable[[Any], Any] | None:
    """A reshape that takes dimensions in another order, as the two things it does."""
    if eqn.primitive.name != "reshape" or is_key(eqn.outvars[0].aval):
        return None
    order, shape = eqn.params["dimensions"], eqn.params["new_sizes"]
    if order is None:
        return None
    return lambda x: lax.reshape(lax.transpose(x, order), shape)


def _takes_one_each(eqn: JaxprEqn) -> bool:
    """Whether a reduction is over axes of one number, which XLA takes as it is."""
    operand: Any = eqn.invars[0]
    return all(operand.aval.shape[axis] == 1 for axis in eqn.params["axes"])


def _stays(eqn: JaxprEqn) -> bool:
    """Whether arrays go to no other kind of memory, and are not divided."""
    devices = eqn.params["devices"]
    return all(device is None or isinstance(device, jax.Device) for device in devices)


def _takes_keys(eqn: JaxprEqn) -> bool:
    """Whether something unknown is made of keys, of which only JAX knows what."""
    results: list[Any] = list(eqn.outvars)
    operands: list[Any] = list(eqn.invars)
    if eqn.primitive.name in ("scan", "while", "cond"):
        return False
    taken = any(is_key(v.aval) for v in operands)
    return taken and not any(is_key(v.aval) for v in results)


def _index_of_platform(eqn: JaxprEqn, platform: str) -> Literal:
    """Which of the branches for several platforms is the one for ours."""
    platforms = enumerate(eqn.params["platforms"])
    fits = (i for i, names in platforms if names is None or platform in names)
    return Literal(np.int32(next(fits)), eqn.outvars[0].aval)


def _physical(aval: Any) -> Any:
    """The type that a value has in memory."""
    dtype = getattr(aval, "dtype", None)
    made_up = dtype is None or jnp.issubdtype(dtype, dtypes.extended)
    if made_up and not (dtype and is_key(aval)):
        raise LeaveToXla(f"{dtype or aval} values have no native rule")
    return compat.physical(aval)


def _struct(aval: Any) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(aval.shape, aval.dtype)


def _inner(name: str, params: dict[str, Any], platform: str) -> dict[str, Any]:
    """The same parameters with every control-flow body flattened."""
    if name == jp.scan_p.name:
        return {**params, "jaxpr": flatten(params["jaxpr"], platform)}
    if name == jp.while_p.name:
        bodies = {k: flatten(params[k], platform) for k in ("cond_jaxpr", "body_jaxpr")}
        return {**params, **bodies}
    if name == jp.cond_p.name:
        branches = tuple(flatten(branch, platform) for branch in params["branches"])
        return {**params, "branches": branches}
    return params


def _each_once(
    inputs: list[Atom], params: dict[str, Any]
) -> tuple[list[Atom], dict[str, Any]]:
    """A conditional that is given each value once, which its branches share.

    JAX gives it twice what a function is given and also sees around it; a branch that
    changes its argument would then have to keep the other.
    """
    which, *args = inputs
    firsts = [next(k for k, v in enumerate(args) if v is arg) for arg in args]
    kept = [k for k, first in enumerate(firsts) if k == first]
    if len(kept) == len(args):
        return inputs, params
    branches = tuple(_sharing(branch, firsts) for branch in params["branches"])
    return [which, *(args[k] for k in kept)], {**params, "branches": branches}


def _sharing(closed: ClosedJaxpr, firsts: list[int]) -> ClosedJaxpr:
    """The same function with one parameter for all that are given the same."""
    jaxpr = closed.jaxpr
    pairs = zip(jaxpr.invars, firsts, strict=True)
    names: dict[Any, Any] = {v: jaxpr.invars[first] for v, first in pairs}
    read = lambda atoms: [names.get(v, v) if isinstance(v, Var) else v for v in atoms]
    eqns = [eqn.replace(invars=read(eqn.invars)) for eqn in jaxpr.eqns]
    invars = [v for k, v in enumerate(jaxpr.invars) if firsts[k] == k]
    info = jaxpr.debug_info._replace(arg_names=None, result_paths=None)
    outs = read(jaxpr.outvars)
    return ClosedJaxpr(Jaxpr([], invars, outs, eqns, debug_info=info), closed.consts)


def _live(eqns: list[JaxprEqn], outs: list[Atom]) -> list[JaxprEqn]:
    """The equations that something reads."""
    needed = {v for v in outs if isinstance(v, Var)}
    kept = []
    for eqn in reversed(eqns):
        if eqn.effects or not needed.isdisjoint(eqn.outvars):
            kept.append(eqn)
            needed.update(v for v in eqn.invars if isinstance(v, Var))
    return kept[::-1]
