"""Random containers and random bodies, against both oracles."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from compare import assert_same
from hypothesis import given
from hypothesis import strategies as st
from sampling import examples

import onescan
from onescan.api import reference


class Pair(NamedTuple):
    left: Any
    right: Any


def assert_by_both(f: Any, init: Any, xs: Any, **kwargs: Any) -> None:
    result = onescan.scan(f, init, xs, **kwargs)
    assert_same(result, jax.lax.scan(f, init, xs, **kwargs), rounding=16)
    assert_same(result, reference.scan(f, init, xs, **kwargs), rounding=16)


# Random containers: each leaf of the carry moves by the x of the same place.

KINDS = st.sampled_from(
    [
        ("float32", ()),
        ("float32", (2, 1)),
        ("int32", (3,)),
        ("bool", ()),
        ("uint8", (0,)),
    ]
)
TREES = st.recursive(
    KINDS | st.none(),
    lambda inner: st.one_of(
        st.lists(inner, max_size=2),
        st.tuples(inner, inner),
        st.dictionaries(st.sampled_from("abc"), inner, max_size=2),
        st.builds(Pair, inner, inner),
    ),
    max_leaves=4,
)


def is_kind(node: Any) -> bool:
    return type(node) is tuple and len(node) == 2 and isinstance(node[0], str)


@examples(10)
@given(TREES, TREES, st.integers(0, 3), st.booleans(), st.integers(0, 2**31))
def test_random_containers(carry_kinds, y_kinds, length, reverse, seed):
    rng = np.random.default_rng(seed)

    def array(kind, *leading):
        dtype, shape = kind
        return jnp.asarray(rng.integers(0, 9, (*leading, *shape)), dtype)

    def arrays(kinds, *leading):
        return jax.tree.map(lambda k: array(k, *leading), kinds, is_leaf=is_kind)

    init, xs = arrays(carry_kinds), arrays((carry_kinds, y_kinds), length)

    def f(carry, x):
        moves, ys = x
        carry = jax.tree.map(
            lambda c, m: c ^ m if c.dtype == bool else c + m, carry, moves
        )
        return carry, (
            jax.tree.map(lambda y: ~y if y.dtype == bool else y * 2, ys),
            carry,
        )

    assert_by_both(f, init, xs, length=length, reverse=reverse)


# Random bodies: a list of operations, each on two values made before it.

Operation = tuple[str, int, int]

FLOAT: dict[str, Callable[[Any, Any], Any]] = {
    "add": lambda a, b: a + b,
    "subtract": lambda a, b: a - 0.5 * b,
    "multiply": lambda a, b: a * b,
    "divide": lambda a, b: a / (1.5 + b * b),
    "maximum": jnp.maximum,
    "where": lambda a, b: jnp.where(a > 0, a, b),
    "tanh": lambda a, b: jnp.tanh(a),
    "sin": lambda a, b: jnp.sin(a + b),
    "exp": lambda a, b: jnp.exp(-jnp.abs(a)),
    "log": lambda a, b: jnp.log1p(a * a),
    "sum": lambda a, b: jnp.sum(a) + 0 * b,
    "max": lambda a, b: jnp.max(a) - b,
    "reverse": lambda a, b: jnp.flip(a, -1) if jnp.ndim(a) else -a,
    "shift": lambda a, b: jnp.roll(a, 1),
    "cumsum": lambda a, b: jnp.cumsum(a) if jnp.ndim(a) else a,
    "index": lambda a, b: jnp.broadcast_to(jnp.ravel(a)[-1], jnp.shape(b)),
    "round": lambda a, b: jnp.floor(a) + b,
}
INTEGER: dict[str, Callable[[Any, Any], Any]] = {
    "add": lambda a, b: a + b,
    "multiply": lambda a, b: a * b,
    "and": lambda a, b: a & b,
    "xor": lambda a, b: a ^ ~b,
    "shift": lambda a, b: a >> (b & 7),
    "divide": lambda a, b: a // ((b & 3) + 1),
    "minimum": jnp.minimum,
    "compare": lambda a, b: (a < b).astype(a.dtype),
    "sum": lambda a, b: jnp.sum(a) + b,
    "sort": lambda a, b: jnp.sort(a) if jnp.ndim(a) else a - b,
}


def body(table: dict[str, Any], operations: list[Operation]) -> Callable[..., Any]:
    """A scan body of two carries and two x, made of these operations."""

    def f(carry, x):
        values = [*carry, *x]
        for name, i, j in operations:
            values.append(table[name](values[i % len(values)], values[j % len(values)]))
        made = [
            _like(leaf, value) for leaf, value in zip(carry, values[-2:], strict=True)
        ]
        return made, tuple(values[4:])

    return f


def _like(leaf: Any, value: Any) -> Any:
    """The value in the type of a carry leaf, and bounded if it is a float."""
    if jnp.ndim(value) > jnp.ndim(leaf):
        value = value.sum()
    if jnp.issubdtype(leaf.dtype, jnp.floating):
        value = jnp.tanh(value)
    return jnp.broadcast_to(value, leaf.shape).astype(leaf.dtype)


def operations(table: dict[str, Any]) -> st.SearchStrategy[list[Operation]]:
    index = st.integers(0, 20)
    one = st.tuples(st.sampled_from(sorted(table)), index, index)
    return st.lists(one, min_size=1, max_size=8)


@examples(12)
@given(operations(FLOAT), st.integers(0, 5), st.booleans(), st.integers(0, 2**31))
def test_random_bodies_of_floats(operations, length, reverse, seed):
    rng = np.random.default_rng(seed)
    init = [jnp.float32(rng.normal()), jnp.asarray(rng.normal(size=3), jnp.float32)]
    xs = [rng.normal(size=(length, 3)), rng.normal(size=length)]
    xs = [jnp.asarray(x, jnp.float32) for x in xs]
    assert_by_both(body(FLOAT, operations), init, xs, reverse=reverse)


@examples(10)
@given(
    operations(INTEGER),
    st.sampled_from(["int8", "uint8", "int32", "uint32"]),
    st.integers(0, 5),
    st.integers(0, 2**31),
)
def test_random_bodies_of_integers(operations, dtype, length, seed):
    rng = np.random.default_rng(seed)

    def array(*shape):
        return jnp.asarray(rng.integers(0, 100, shape), dtype)

    init, xs = [array(), array(3)], [array(length, 3), array(length)]
    assert_by_both(body(INTEGER, operations), init, xs)


@examples(6)
@given(operations(FLOAT), st.integers(0, 2**31))
def test_gradients_of_random_bodies(operations, seed):
    rng = np.random.default_rng(seed)
    init = [jnp.float32(rng.normal()), jnp.asarray(rng.normal(size=3), jnp.float32)]
    xs = [jnp.asarray(rng.normal(size=s), jnp.float32) for s in ((3, 3), (3,))]
    f = body(FLOAT, operations)

    def gradient(scan):
        def loss(init, xs):
            return sum(jnp.sum(leaf) for leaf in jax.tree.leaves(scan(f, init, xs)))

        return jax.jit(jax.grad(loss, (0, 1)))(init, xs)

    assert_same(gradient(onescan.scan), gradient(jax.lax.scan), rounding=64)
