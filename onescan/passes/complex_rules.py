"""What operations on complex numbers do to their parts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend.core import ClosedJaxpr, jaxpr_as_fun

from onescan import compat
from onescan.passes import complex_factors, complex_linalg
from onescan.passes.complex_numbers import Pair, over, times
from onescan.passes.transforms import transformed
from onescan.primitives import is_refused
from onescan.primitives.linalg import FEW, unfit, unfit_alone

#: rows up to which a complex matrix, that is twice as large as a real one, has a
#: Cholesky factor alone (8 rows take 0.6 times as long as LAPACK, 16 one and a half)
ALONE = 12


class Unsupported(Exception):
    """An operation that has no definition here."""


def magnitude(x: Pair) -> Any:
    """The root of the sum of squares, scaled so that nothing overflows."""
    large, ratio = _larger(x)
    size = large * jnp.sqrt(1 + ratio * ratio)
    infinite = jnp.isinf(x.re) | jnp.isinf(x.im)
    return jnp.where(infinite, jnp.inf, size).astype(size.dtype)


def _larger(x: Pair) -> tuple[Any, Any]:
    """The size of the larger part, and that of the other as a share of it."""
    a, b = jnp.abs(x.re), jnp.abs(x.im)
    large, small = jnp.maximum(a, b), jnp.minimum(a, b)
    safe = jnp.where((large == 0) | jnp.isinf(large), 1, large)
    return large, small / safe


def _exp(x: Pair) -> Pair:
    size = jnp.exp(x.re)
    real = x.im == 0
    im = jnp.where(real, x.im, size * jnp.sin(x.im))
    return Pair(jnp.where(real, size, size * jnp.cos(x.im)), im)


def _log(x: Pair) -> Pair:
    """That of the larger part, and of one and a bit: exact around the unit circle."""
    large, ratio = _larger(x)
    size = jnp.log(large) + jnp.log1p(ratio * ratio) / 2
    return Pair(size, jnp.arctan2(x.im, x.re))


def _sqrt(x: Pair) -> Pair:
    """Half the angle: the larger part by a root, the other by a quotient."""
    size = magnitude(x)
    larger = jnp.sqrt((size + jnp.abs(x.re)) / 2)
    other = jnp.where(
        larger == 0, larger, x.im / (2 * jnp.where(larger == 0, 1, larger))
    )
    left, infinite = x.re < 0, jnp.isinf(x.im)
    re = jnp.where(left, jnp.abs(other), larger)
    im = jnp.where(left, jnp.where(x.im < 0, -larger, larger), other)
    nan = jnp.where(jnp.isnan(x.re) | jnp.isnan(x.im), np.nan, 0).astype(size.dtype)
    return Pair(
        jnp.where(infinite, size, re) + nan, jnp.where(infinite, x.im, im) + nan
    )


def _sin(x: Pair) -> Pair:
    """Of an imaginary number imaginary, however large."""
    re = jnp.sin(x.re) * jnp.cosh(x.im)
    return Pair(jnp.where(x.re == 0, x.re, re), jnp.cos(x.re) * jnp.sinh(x.im))


def _cos(x: Pair) -> Pair:
    """Of an imaginary number real, however large."""
    im = -jnp.sin(x.re) * jnp.sinh(x.im)
    return Pair(jnp.cos(x.re) * jnp.cosh(x.im), jnp.where(x.re == 0, -x.re, im))


def _tanh(x: Pair) -> Pair:
    """From tanh of the real and tan of the imaginary part."""
    t, u = jnp.tanh(x.re), jnp.tan(x.im)
    found = over(Pair(t, u), Pair(jnp.ones_like(t), t * u))
    one = jnp.isinf(x.re) & ~jnp.isfinite(x.im)
    im = jnp.where(one, 0, jnp.where(x.im == 0, x.im, found.im))
    return Pair(jnp.where(one, t, found.re), im)


def _square(x: Pair) -> Pair:
    """As a difference times a sum, which loses nothing where the parts are alike."""
    product = x.re * x.im
    return Pair((x.re - x.im) * (x.re + x.im), product + product)


def _one_minus_square(x: Pair) -> Pair:
    square = _square(x)
    return Pair(1 - square.re, -square.im)


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


def _dot_general(eqn: Any, _: Any, x: Any, y: Any) -> Pair:
    """Of numbers of any types, which are first what the result is, as XLA has them."""
    x, y = (_convert(eqn, _, operand) for operand in (x, y))
    numbers, precision = (eqn.params[k] for k in ("dimension_numbers", "precision"))
    dot = lambda a, b: lax.dot_general(a, b, numbers, precision)
    re = dot(x.re, y.re) - dot(x.im, y.im)
    return Pair(re, dot(x.re, y.im) + dot(x.im, y.re))


def _apart(eqn: Any, _: Any, *operands: Any) -> list[Any]:
    """Each part by itself, the same way."""
    if (update := eqn.params.get("update_jaxpr")) is not None:  # of complex numbers
        if is_refused(eqn):
            raise Unsupported(eqn.primitive.name)
        of_parts = _update_of_parts(eqn, isinstance(update, ClosedJaxpr))
        eqn = eqn.replace(params={**eqn.params, "update_jaxpr": of_parts})
    parts = [
        compat.bind(eqn, [x[k] if isinstance(x, Pair) else x for x in operands])
        for k in (0, 1)
    ]
    return [Pair(re, im) for re, im in zip(*parts, strict=True)]


def _update_of_parts(eqn: Any, closed: bool) -> Any:
    """How a scatter applies an update, to a part of a number.

    Without it XLA would put the update in the number's place, where a pass takes the
    scatter out of the loop.
    """
    part = np.zeros((), eqn.outvars[0].aval.dtype).real
    made = jax.make_jaxpr(UPDATES[eqn.primitive.name])(part, part)
    return made if closed else made.jaxpr


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


def _cholesky(eqn: Any, _: Any, x: Pair) -> Pair:
    *batch, n, _ = x.re.shape
    if n > ALONE and prod(batch) < FEW:
        raise Unsupported("cholesky")
    return complex_linalg.cholesky(x)


def _triangular_solve(eqn: Any, _: Any, a: Pair, b: Pair) -> Pair:
    return complex_linalg.triangular_solve(eqn.params, a, b)


def _factors(made: Callable[..., Any]) -> Any:
    """What a kernel has of some sizes only."""

    def rule(eqn: Any, _: Any, *operands: Pair) -> Any:
        if unfit(eqn) or unfit_alone(eqn):
            raise Unsupported(eqn.primitive.name)
        return made(eqn.params, *operands)

    return rule


def _reduce_prod(eqn: Any, _: Any, x: Pair) -> Pair:
    """Halves times each other, until one number is left."""
    for axis in sorted(eqn.params["axes"], reverse=True):
        n = x.re.shape[axis]
        if not n:
            raise Unsupported("reduce_prod")
        while n > 1:
            cut = lambda first, last, axis=axis, x=x: Pair(
                *(lax.slice_in_dim(part, first, last, axis=axis) for part in x)
            )
            half = n // 2
            made = times(cut(0, half), cut(half, 2 * half))
            if n % 2:
                rest = cut(n - 1, n)
                both = zip(made, rest, strict=True)
                made = Pair(*(jnp.concatenate(parts, axis) for parts in both))
            x, n = made, half + n % 2
        x = Pair(*(lax.squeeze(part, (axis,)) for part in x))
    return x


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
    """The same loop of pairs; a condition may be one for each lane."""
    cond, body = eqn.params["cond_jaxpr"], eqn.params["body_jaxpr"]
    first, second = eqn.params["cond_nconsts"], eqn.params["body_nconsts"]
    params = {
        "cond_jaxpr": paired(cond),
        "body_jaxpr": paired(body),
        "cond_nconsts": len(_flat(operands[:first])),
        "body_nconsts": len(_flat(operands[first : first + second])),
    }
    loop = eqn.replace(params={**eqn.params, **params})
    return _joined(compat.bind(loop, _flat(operands)), body.out_avals)


def _cond(eqn: Any, paired: Any, which: Any, *operands: Any) -> list[Any]:
    branches = [_function(branch, paired) for branch in eqn.params["branches"]]
    return lax.switch(lax.convert_element_type(which, "int32"), branches, *operands)


def _function(closed: Any, paired: Any) -> Callable[..., list[Any]]:
    """A body as a function of numbers and pairs."""
    run = jaxpr_as_fun(paired(closed))
    return lambda *operands: _joined(run(*_flat(operands)), closed.out_avals)


def _flat(operands: Sequence[Any]) -> list[Any]:
    """The parts of all pairs, and numbers."""
    return [part for x in operands for part in (x if isinstance(x, Pair) else (x,))]


def _joined(parts: Sequence[Any], types: Sequence[Any]) -> list[Any]:
    """Pairs where types are complex."""
    rest = iter(parts)
    return [
        Pair(next(rest), next(rest))
        if jnp.issubdtype(a.dtype, jnp.complexfloating)
        else next(rest)
        for a in types
    ]


def _plain(function: Callable[..., Any]) -> Any:
    return lambda eqn, paired, *operands: function(*operands)


#: what a scatter makes of a number and an update
UPDATES: dict[str, Callable[..., Any]] = {
    "scatter": lambda number, update: update,
    "scatter-add": lax.add,
    "scatter-sub": lax.sub,
}
#: what does the same to both parts
MOVED = """
    add add_any broadcast_in_dim concatenate copy copy_p cumsum dynamic_slice
    dynamic_update_slice expand_dims neg pad reduce_sum reshape rev scatter scatter-add
    scatter-sub select_n slice split squeeze stack sub tile transpose unstack
""".split()
RULES: dict[str, Any] = {
    **dict.fromkeys(MOVED, _apart),
    "abs": _plain(magnitude),
    "cholesky": _cholesky,
    "complex": _complex,
    "cond": _cond,
    "conj": _conj,
    "convert_element_type": _convert,
    "cos": _plain(_cos),
    "div": _plain(over),
    "dot_general": _dot_general,
    "eigh": _factors(complex_factors.eigh),
    "eq": _plain(lambda x, y: (x.re == y.re) & (x.im == y.im)),
    "exp": _plain(_exp),
    "fft": _fft,
    "gather": _gather,
    "geqrf": _factors(complex_factors.geqrf),
    "householder_product": _factors(complex_factors.householder_product),
    "imag": _plain(lambda x: x.im),
    "integer_pow": _integer_pow,
    "log": _plain(_log),
    "logistic": _plain(_logistic),
    "lu": _plain(complex_linalg.lu),
    "mul": _plain(times),
    "ne": _plain(lambda x, y: (x.re != y.re) | (x.im != y.im)),
    "one_minus_square": _plain(_one_minus_square),
    "optimization_barrier": lambda eqn, paired, *operands: list(operands),
    "ormqr": _factors(complex_factors.ormqr),
    "qr": _factors(complex_factors.qr),
    "real": _plain(lambda x: x.re),
    "reduce_prod": _reduce_prod,
    "scan": _scan,
    "sign": _plain(_sign),
    "sin": _plain(_sin),
    "sqrt": _plain(_sqrt),
    "square": _plain(_square),
    "svd": _factors(complex_factors.svd),
    "tanh": _plain(_tanh),
    "triangular_solve": _triangular_solve,
    "while": _while,
}
