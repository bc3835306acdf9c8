"""What operations on complex numbers do to their parts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend.core import jaxpr_as_fun

from onescan import compat
from onescan.passes.transforms import transformed


class Pair(NamedTuple):
    """The real and the imaginary part."""

    re: Any
    im: Any


class Unsupported(Exception):
    """An operation that has no definition here."""


def times(x: Pair, y: Pair) -> Pair:
    return Pair(x.re * y.re - x.im * y.im, x.re * y.im + x.im * y.re)


def over(x: Pair, y: Pair) -> Pair:
    """Smith's method, which does not overflow where the quotient does not."""
    steep = jnp.abs(y.re) < jnp.abs(y.im)
    large, small = (jnp.where(steep, a, b) for a, b in ((y.im, y.re), (y.re, y.im)))
    ratio = small / large
    below = large + small * ratio
    re = jnp.where(steep, x.re * ratio + x.im, x.re + x.im * ratio)
    im = jnp.where(steep, x.im * ratio - x.re, x.im - x.re * ratio)
    return Pair(re / below, im / below)


def magnitude(x: Pair) -> Any:
    """The root of the sum of squares, scaled so that nothing overflows."""
    a, b = jnp.abs(x.re), jnp.abs(x.im)
    large, small = jnp.maximum(a, b), jnp.minimum(a, b)
    safe = jnp.where((large == 0) | jnp.isinf(large), 1, large)
    ratio = small / safe
    size = large * jnp.sqrt(1 + ratio * ratio)
    return jnp.where(jnp.isinf(a) | jnp.isinf(b), jnp.inf, size).astype(a.dtype)


def _exp(x: Pair) -> Pair:
    size = jnp.exp(x.re)
    real = x.im == 0
    im = jnp.where(real, x.im, size * jnp.sin(x.im))
    return Pair(jnp.where(real, size, size * jnp.cos(x.im)), im)


def _log(x: Pair) -> Pair:
    return Pair(jnp.log(magnitude(x)), jnp.arctan2(x.im, x.re))


def _sqrt(x: Pair) -> Pair:
    """Half the angle: the larger part by a root, the other by a quotient."""
    size = magnitude(x)
    larger = jnp.sqrt((size + jnp.abs(x.re)) / 2)
    other = jnp.where(
        larger == 0, larger, x.im / (2 * jnp.where(larger == 0, 1, larger))
    )
    left = x.re < 0
    re = jnp.where(left, jnp.abs(other), larger)
    return Pair(re, jnp.where(left, jnp.copysign(larger, x.im), other))


def _sin(x: Pair) -> Pair:
    return Pair(jnp.sin(x.re) * jnp.cosh(x.im), jnp.cos(x.re) * jnp.sinh(x.im))


def _cos(x: Pair) -> Pair:
    return Pair(jnp.cos(x.re) * jnp.cosh(x.im), -jnp.sin(x.re) * jnp.sinh(x.im))


def _tanh(x: Pair) -> Pair:
    """From tanh of the real and tan of the imaginary part."""
    t, u = jnp.tanh(x.re), jnp.tan(x.im)
    one = jnp.ones_like(t)
    return over(Pair(t, u), Pair(one, t * u))


def _logistic(x: Pair) -> Pair:
    e = _exp(Pair(-x.re, -x.im))
    return over(_one(x), Pair(1 + e.re, e.im))


def _one(x: Pair) -> Pair:
    return Pair(jnp.ones_like(x.re), jnp.zeros_like(x.re))


def _sign(x: Pair) -> Pair:
    size = magnitude(x)
    zero = size == 0
    safe = jnp.where(zero, 1, size)
    return Pair(jnp.where(zero, 0, x.re / safe), jnp.where(zero, 0, x.im / safe))


def _integer_pow(eqn: Any, _: Any, x: Pair) -> Pair:
    power, result, factor = abs(eqn.params["y"]), None, x
    while power:
        if power & 1:
            result = factor if result is None else times(result, factor)
        factor, power = times(factor, factor), power >> 1
    result = _one(x) if result is None else result
    return over(_one(x), result) if eqn.params["y"] < 0 else result


def _convert(eqn: Any, _: Any, x: Any) -> Any:
    (out,) = eqn.outvars
    kind = np.zeros(0, out.aval.dtype).real.dtype
    if not isinstance(x, Pair):
        re = lax.convert_element_type(x, kind)
        return Pair(re, jnp.zeros_like(re))
    if not jnp.issubdtype(out.aval.dtype, jnp.complexfloating):
        return lax.convert_element_type(x.re, kind)
    return Pair(*(lax.convert_element_type(part, kind) for part in x))


def _complex(eqn: Any, _: Any, *parts: Any) -> Pair:
    """Of one shape, where one part may be a number and the other an array."""
    shape = eqn.outvars[0].aval.shape
    return Pair(*(jnp.broadcast_to(part, shape) for part in parts))


def _conj(eqn: Any, _: Any, x: Any) -> Pair:
    if isinstance(x, Pair):
        return Pair(x.re, -x.im)
    return Pair(x, jnp.zeros_like(x))


def _dot_general(eqn: Any, _: Any, x: Pair, y: Pair) -> Pair:
    numbers, precision = (eqn.params[k] for k in ("dimension_numbers", "precision"))
    dot = lambda a, b: lax.dot_general(a, b, numbers, precision)
    re = dot(x.re, y.re) - dot(x.im, y.im)
    return Pair(re, dot(x.re, y.im) + dot(x.im, y.re))


def _apart(eqn: Any, _: Any, *operands: Any) -> list[Any]:
    """Each part by itself, the same way."""
    if "update_jaxpr" in eqn.params:  # which works on complex numbers, and says nothing
        eqn = eqn.replace(params={**eqn.params, "update_jaxpr": None})
    parts = [
        compat.bind(eqn, [x[k] if isinstance(x, Pair) else x for x in operands])
        for k in (0, 1)
    ]
    return [Pair(re, im) for re, im in zip(*parts, strict=True)]


def _gather(eqn: Any, paired: Any, *operands: Any) -> list[Any]:
    (found,) = _apart(eqn, paired, *operands)
    if eqn.params["mode"] != lax.GatherScatterMode.FILL_OR_DROP:
        return [found]
    zero = eqn.replace(params={**eqn.params, "fill_value": 0.0})
    (other,) = _apart(zero, paired, *operands)
    return [Pair(found.re, other.im)]


def _fft(eqn: Any, _: Any, x: Any) -> Any:
    found = transformed(eqn, x)
    if found is None:
        raise Unsupported("fft")
    return Pair(*found) if isinstance(found, tuple) else found


def _scan(eqn: Any, paired: Any, *operands: Any) -> list[Any]:
    inner = compat.loop_of(eqn.params)
    run = _function(inner.body, paired)
    consts, rest = operands[: inner.num_consts], operands[inner.num_consts :]
    carry, xs = list(rest[: inner.num_carry]), list(rest[inner.num_carry :])

    def step(c: Any, x: Any) -> Any:
        outs = run(*consts, *c, *x)
        return outs[: inner.num_carry], outs[inner.num_carry :]

    last, ys = lax.scan(
        step, carry, xs, inner.length, reverse=inner.reverse, unroll=inner.unroll
    )
    return [*last, *ys]


def _while(eqn: Any, paired: Any, *operands: Any) -> list[Any]:
    cond, body = eqn.params["cond_jaxpr"], eqn.params["body_jaxpr"]
    if cond.out_avals[0].shape:
        raise Unsupported("while")
    first, last = eqn.params["cond_nconsts"], eqn.params["body_nconsts"]
    last += first
    test, run = (_function(closed, paired) for closed in (cond, body))
    return lax.while_loop(
        lambda c: test(*operands[:first], *c)[0],
        lambda c: run(*operands[first:last], *c),
        list(operands[last:]),
    )


def _cond(eqn: Any, paired: Any, which: Any, *operands: Any) -> list[Any]:
    branches = [_function(branch, paired) for branch in eqn.params["branches"]]
    return lax.switch(lax.convert_element_type(which, "int32"), branches, *operands)


def _function(closed: Any, paired: Any) -> Callable[..., list[Any]]:
    """A body as a function of numbers and pairs."""
    run = jaxpr_as_fun(paired(closed))
    kinds = [jnp.issubdtype(a.dtype, jnp.complexfloating) for a in closed.out_avals]

    def function(*operands: Any) -> list[Any]:
        flat = [p for x in operands for p in (x if isinstance(x, Pair) else (x,))]
        rest = iter(run(*flat))
        return [Pair(next(rest), next(rest)) if k else next(rest) for k in kinds]

    return function


def _plain(function: Callable[..., Any]) -> Any:
    return lambda eqn, paired, *operands: function(*operands)


#: what does the same to both parts
MOVED = """
    add add_any broadcast_in_dim concatenate copy copy_p cumsum dynamic_slice
    dynamic_update_slice expand_dims neg pad reduce_sum reshape rev scatter scatter-add
    scatter-sub select_n slice split squeeze stack sub tile transpose unstack
""".split()
RULES: dict[str, Any] = {
    **dict.fromkeys(MOVED, _apart),
    "abs": _plain(magnitude),
    "complex": _complex,
    "cond": _cond,
    "conj": _conj,
    "convert_element_type": _convert,
    "cos": _plain(_cos),
    "div": _plain(over),
    "dot_general": _dot_general,
    "eq": _plain(lambda x, y: (x.re == y.re) & (x.im == y.im)),
    "exp": _plain(_exp),
    "fft": _fft,
    "gather": _gather,
    "imag": _plain(lambda x: x.im),
    "integer_pow": _integer_pow,
    "log": _plain(_log),
    "logistic": _plain(_logistic),
    "mul": _plain(times),
    "ne": _plain(lambda x, y: (x.re != y.re) | (x.im != y.im)),
    "optimization_barrier": lambda eqn, paired, *operands: list(operands),
    "real": _plain(lambda x: x.re),
    "scan": _scan,
    "sign": _plain(_sign),
    "sin": _plain(_sin),
    "sqrt": _plain(_sqrt),
    "square": _plain(lambda x: times(x, x)),
    "tanh": _plain(_tanh),
    "while": _while,
}
