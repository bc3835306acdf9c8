"""Equations and jaxprs: what JAX calls their parts."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from jax._src import core as _core
from jax._src.random import core as _random
from jax._src.random import prng as _prng
from jax.extend.core import ClosedJaxpr, Jaxpr, Var
from jax.extend.core.primitives import scan_p, while_p

from onescan.compat.sources import name_and_source
from onescan.loop import Loop

flattree: Any
try:  # JAX 0.11 and later
    flattree = importlib.import_module("jax._src.flattree")
except ImportError:
    flattree = None


def bind(eqn: Any, values: Sequence[Any]) -> Sequence[Any]:
    """Apply one equation to values."""
    params = eqn.primitive.get_bind_params(eqn.params)
    with eqn.ctx.manager:
        out = eqn.primitive.bind(*values, **params)
    return out if eqn.primitive.multiple_results else [out]


def loop_of(params: dict[str, Any]) -> Loop:
    """JAX's parameters of a scan equation as our `Loop`."""
    if "ft_in" in params:  # JAX 0.11 and later
        consts, carry, _ = params["ft_in"].unpack()
        num_consts, num_carry = len(consts), len(carry)
    else:
        num_consts, num_carry = params["num_consts"], params["num_carry"]
    name, source = name_and_source(params["jaxpr"].jaxpr.debug_info)
    return Loop(
        body=params["jaxpr"],
        num_consts=num_consts,
        num_carry=num_carry,
        length=params["length"],
        reverse=params["reverse"],
        unroll=params["unroll"],
        name=name,
        source=source,
        differentiated=params["jaxpr"].jaxpr.debug_info.arg_names is None,
    )


def while_loop_of(params: dict[str, Any]) -> Loop:
    """JAX's parameters of a while equation as a `Loop` of one step that holds it."""
    cond, body = params["cond_jaxpr"], params["body_jaxpr"]
    nc, nb = params["cond_nconsts"], params["body_nconsts"]
    types = [*cond.in_avals[:nc], *body.in_avals]
    invars, outvars = list(map(Var, types)), list(map(Var, body.out_avals))
    effects = {*cond.effects, *body.effects}
    eqn = _core.new_jaxpr_eqn(invars, outvars, while_p, params, set())
    info = body.jaxpr.debug_info._replace(arg_names=None, result_paths=None)
    whole = Jaxpr([], invars, outvars, [eqn], effects, debug_info=info)
    name, source = name_and_source(body.jaxpr.debug_info)
    return Loop(
        body=ClosedJaxpr(whole, []),
        num_consts=nc + nb,
        num_carry=len(body.out_avals),
        length=1,
        reverse=False,
        unroll=1,
        name=name,
        source=source,
        is_while=True,
    )


def argument_names(loop: Loop) -> list[str] | None:
    """What the user calls the arguments of a body, "carry[0]"; None if not known."""
    names = loop.body.jaxpr.debug_info.arg_names
    if names is None or len(names) != len(loop.body.in_avals):
        return None
    return [name or f"argument {i}" for i, name in enumerate(names)]


def keys_as_bits(eqn: Any) -> Callable[..., Any] | None:
    """A random-key primitive as a function of raw uint32 key data, if it is one."""
    name, params = eqn.primitive.name, eqn.params
    if name == "random_seed":
        return lambda seeds: _prng.random_seed_impl_base(seeds, impl=params["impl"])
    if name not in ("random_split", "random_fold_in", "random_bits", "random_gamma"):
        return None
    aval = eqn.invars[0].aval
    impl = aval.dtype._impl
    if name == "random_gamma":  # as JAX lowers it on all platforms
        typed = lambda bits: _prng.random_wrap(bits, impl=impl)
        gamma = partial(_random._gamma_impl, **params, use_vmap=True)
        return lambda keys, shape: gamma(typed(keys), shape)
    if name == "random_split":
        split = _prng.random_split_impl_base
        return lambda keys: split(impl, keys, aval.ndim, shape=params["shape"])
    if name == "random_fold_in":
        fold_in = _prng.random_fold_in_impl_base
        return lambda keys, data: fold_in(impl, keys, data, aval.shape)
    bits = _prng.random_bits_impl_base
    return lambda keys: bits(impl, keys, aval.ndim, **params)


def physical(aval: Any) -> Any:
    """The type a value has in memory: keys are arrays of uint32."""
    return _core.physical_aval(aval)


def stacked(aval: Any, length: int) -> Any:
    """The type of `length` values of this type, with time as first dimension."""
    return _core.unmapped_aval(length, 0, aval)


def array_type(shape: Sequence[int], dtype: Any) -> Any:
    """The type of an array."""
    return _core.ShapedArray(tuple(shape), dtype)


def scalar_aval(dtype: Any) -> Any:
    """The type of one number."""
    return _core.ShapedArray((), dtype)


def scan_params(loop: Loop) -> dict[str, Any]:
    """Our `Loop` as JAX's parameters of a scan equation."""
    params: dict[str, Any] = {
        "jaxpr": loop.body,
        "length": loop.length,
        "reverse": loop.reverse,
        "unroll": loop.unroll,
    }
    if flattree is None:
        return params | {"num_consts": loop.num_consts, "num_carry": loop.num_carry}
    nones, pack = flattree.nones, flattree.pack
    carry = nones(loop.num_carry)
    ft_in = pack((nones(loop.num_consts), carry, nones(len(loop.x_avals))))
    ft_out = pack((carry, nones(len(loop.y_avals))))
    return params | {"ft_in": ft_in, "ft_out": ft_out}


def scan_of(loop: Loop, values: Sequence[Any]) -> Sequence[Any]:
    """The results of a loop, called with its constants, carries and xs."""
    return scan_p.bind(*values, **scan_params(loop))
