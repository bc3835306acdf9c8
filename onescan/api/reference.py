"""The meaning of `scan`, as a plain Python loop: the first oracle of every test.

Nothing here is compiled.  Only the types need a word.  All steps of a loop have
the types of the first: the carry comes in with the types of `init`, except that
Python numbers in `init` are first promoted to what the function makes of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from onescan import compat
from onescan.api.arguments import checked
from onescan.api.carry import trouble_with
from onescan.errors import ScanTypeError


def scan(
    f: Callable[[Any, Any], tuple[Any, Any]],
    init: Any,
    xs: Any = None,
    length: int | None = None,
    reverse: bool = False,
    unroll: int | bool = 1,
) -> tuple[Any, Any]:
    """`onescan.scan` as a plain loop, step by step, without compiling anything.

    >>> from onescan.api import reference
    >>> total, before = reference.scan(lambda c, x: (c + x, c), 0, [1, 2, 3])
    >>> print(total, before)
    6 [0 1 3]
    """
    xs, steps, _ = checked(f, init, xs, length, unroll)
    x_types = jax.tree.map(type_of_entry, xs)
    carry_types, (after_types, y_types) = types_of(f, init, x_types)

    carry = jax.tree.map(as_type, carry_types, init)
    ys: list[Any] = [None] * steps
    for i in reversed(range(steps)) if reverse else range(steps):
        after, ys[i] = f(carry, jax.tree.map(lambda x: x[i], xs))
        carry = jax.tree.map(as_type, carry_types, after)
    return jax.tree.map(as_type, after_types, carry), _stack(ys, y_types)


def types_of(f: Callable[..., Any], init: Any, x: Any) -> tuple[Any, Any]:
    """The types of the carry as the function gets it, and of what it returns."""
    carry = jax.tree.map(_type, init)
    for first in (True, False):
        result = jax.eval_shape(f, carry, x)
        if trouble := trouble_with(carry, result, f, first):
            raise ScanTypeError(trouble)
        carry = jax.tree.map(_promoted, carry, result[0])
    return carry, result


def _promoted(before: Any, after: Any) -> Any:
    if not before.weak_type or before.dtype == after.dtype:
        return before
    scalars = [
        jax.ShapeDtypeStruct((), kind.dtype, weak_type=kind.weak_type)
        for kind in (before, after)
    ]
    return jax.ShapeDtypeStruct(before.shape, jax.eval_shape(jnp.add, *scalars).dtype)


def _type(x: Any) -> jax.ShapeDtypeStruct:
    kind = jax.typeof(x)
    return jax.ShapeDtypeStruct(kind.shape, kind.dtype, weak_type=kind.weak_type)


def type_of_entry(x: Any) -> jax.ShapeDtypeStruct:
    kind = jax.typeof(x)
    return jax.ShapeDtypeStruct(kind.shape[1:], kind.dtype, weak_type=kind.weak_type)


def as_type(kind: Any, x: Any) -> Any:
    """The value in the type that it has in every step."""
    if jnp.issubdtype(kind.dtype, jax.dtypes.prng_key):
        return x
    x = jnp.asarray(x, kind.dtype)
    return compat.weak(x) if kind.weak_type else x


def _stack(ys: list[Any], y_types: Any) -> Any:
    if ys:
        return jax.tree.map(lambda *y: jnp.stack([jnp.asarray(e) for e in y]), *ys)
    return jax.tree.map(_empty, y_types)


def _empty(kind: Any) -> Any:
    return as_type(kind, jnp.empty((0, *kind.shape), kind.dtype))
