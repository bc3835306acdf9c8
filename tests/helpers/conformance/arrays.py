"""Operations on whole arrays: every mode, on empty, one-element and odd shapes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from engines import kernels_alone, run, values
from jax import lax

import onescan
from conformance.compared import Found, compared

SHAPES = ((0,), (1,), (7,), (3, 5), (2, 0), (1, 1), (17,))
STEPS = 3
INDICES = np.array([0, -1, 3, -4, 100, -100, 2, 2], np.int32)


def _axis(x: Any) -> int:
    return x.ndim - 1


def _taken(mode: str) -> Callable[[Any], Any]:
    return lambda x: x.at[..., INDICES].get(mode=mode, fill_value=None)


def _put(how: str, mode: str) -> Callable[[Any], Any]:
    def f(x: Any) -> Any:
        where = INDICES if how == "add" else INDICES[:-1]  # no place twice
        return getattr(x.at[..., where], how)(jnp.asarray(2, x.dtype), mode=mode)

    return f


def _sliced(x: Any) -> Any:
    starts = [jnp.int32(9 - 15 * (i % 2)) for i in range(x.ndim)]
    sizes = [min(n, 2) for n in x.shape]
    part = lax.dynamic_slice(x, starts, sizes)
    return part, lax.dynamic_update_slice(x, part + jnp.ones_like(part), starts)


def _random(x: Any) -> Any:
    """Bits of JAX's own generator, from a key that is made of the data."""
    key = lax.convert_element_type(jnp.round(x.ravel()[:1]), jnp.uint32)[0]
    return jax.random.bits(jax.random.fold_in(jax.random.key(7), key), (3, 2))


def _parts(x: Any) -> Any:
    half = x.shape[-1] // 2
    return lax.split(x, (half, x.shape[-1] - half), axis=_axis(x))


def _branches(x: Any) -> Any:
    grown = lambda: lax.while_loop(lambda c: c.sum() < 9, lambda c: c + abs(c) + 1, x)
    shown = lambda: lax.scan(lambda c, row: (c + row, c), x[0] * 0, x)[1]
    return lax.cond(x.sum() > 2, grown, shown)


def _reduced(name: str) -> Callable[[Any], Any]:
    return lambda x: getattr(lax, name)(x, (_axis(x),))


NUMBERS = ("float32", "float16", "bfloat16", "float64", "int32", "uint8", "int64")
ROUNDED = {"reduce_sum", "reduce_prod", "cumsum", "cumprod", "cumlogsumexp", "dot"}
OPS: dict[str, Callable[[Any], Any]] = {
    "reduce_sum": lambda x: jnp.sum(x, _axis(x), dtype=x.dtype),
    "reduce_prod": lambda x: jnp.prod(x, _axis(x), dtype=x.dtype),
    "reduce_max": lambda x: lax.reduce_max(x, (_axis(x),)),
    "reduce_min": lambda x: lax.reduce_min(x, (_axis(x),)),
    "argmax": lambda x: lax.argmax(x, _axis(x), jnp.int32) if x.shape[-1] else x,
    "argmin": lambda x: lax.argmin(x, _axis(x), jnp.int32) if x.shape[-1] else x,
    **{
        name: lambda x, name=name: getattr(lax, name)(x, axis=_axis(x), reverse=True)
        for name in ("cumsum", "cumprod", "cummax", "cummin")
    },
    "gather wrap": lambda x: jnp.take(x, INDICES, axis=-1, mode="wrap"),
    "dot": lambda x: x @ jnp.ones((x.shape[-1], 2), x.dtype),
    "sort": lambda x: lax.sort(x, dimension=_axis(x)),
    "argsort": lambda x: jnp.argsort(x, axis=_axis(x), descending=True),
    **{f"gather {mode}": _taken(mode) for mode in ("clip", "fill")},
    **{
        f"scatter {how} {mode}": _put(how, mode)
        for how in ("set", "add", "multiply", "min", "max")
        for mode in ("clip", "drop")
    },
    "dynamic_slice, dynamic_update_slice": _sliced,
    "pad": lambda x: lax.pad(x, jnp.zeros((), x.dtype), [(-1, 2, 1)] * x.ndim),
    "concatenate": lambda x: jnp.concatenate([x, x[..., :1], x], -1),
    "rev, transpose, reshape": lambda x: lax.rev(x, (0,)).T.reshape(-1),
    "select, broadcast": lambda x: jnp.where(
        x[..., None] > 0, x[..., None], x[..., :1]
    ),
    **{f"reduce_{how}": _reduced(f"reduce_{how}") for how in ("and", "or", "xor")},
    "top_k": lambda x: lax.top_k(x, min(2, x.shape[-1])),
    "scatter subtract": lambda x: x.at[..., INDICES].subtract(jnp.asarray(2, x.dtype)),
    "split": _parts,
    "tile, stack, squeeze": lambda x: jnp.stack([jnp.tile(x[:1], 2)[0]] * 2),
    "threefry2x32": _random,
    "cond, while, scan": _branches,
    "iota": lambda x: x + lax.broadcasted_iota(x.dtype, x.shape, 0),
}


def measured(
    dtype: str, names: Iterable[str], shapes: Iterable[tuple[int, ...]] = SHAPES
) -> Iterator[Found]:
    """Each operation on every shape it takes, all shapes in one loop."""
    data = {shape: values(dtype, (STEPS, *shape), edges=False) for shape in shapes}
    for name in names:
        taken = {s: x for s, x in data.items() if _takes(name, x[0])}
        if not taken:
            continue

        def loop(xs: Any, name: str = name) -> Any:
            body = lambda c, x: (c + 1, [OPS[name](v) for v in x])
            return onescan.scan(body, jnp.int32(0), xs)[1]

        with kernels_alone():
            xs = list(taken.values())
            native = jax.tree.leaves(run("native", loop, xs))
            steps = [[OPS[name](jnp.asarray(x[t])) for x in xs] for t in range(STEPS)]
            eager = jax.tree.leaves(jax.tree.map(lambda *v: jnp.stack(v), *steps))
            found = [
                compared(name, dtype, (), np.asarray(a), np.asarray(b))
                for a, b in zip(native, eager, strict=True)
            ]
            yield max(found, key=lambda f: (f.different, f.ulps))


def _takes(name: str, x: np.ndarray) -> bool:
    """Whether JAX lets an operation run on such an array."""
    try:
        jax.eval_shape(OPS[name], x)
    except (TypeError, ValueError, IndexError, ZeroDivisionError):
        return False
    return True


def names() -> list[str]:
    return list(OPS)
