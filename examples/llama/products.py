"""Products of a few tokens with a layer's weights, read where they lie in the stack.

A decode step reads all weights for one token of each sequence, so its time is that of
reading them.  In a loop over layers a layer's weights are a slice of a stack.  XLA's
products on a GPU have a slice copied before they read it, which triples the bytes.
Here is a kernel that is given whole stacks and the number of the layer.  Products of
the same tokens with weights of one shape (queries, keys and values; gate and up) are
one kernel.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

MOST_TOKENS = 64  # with more, a product has more to do than to read its weights
NARROWEST = 16  # what tensor cores multiply

# A program's tile of weights, and how many are in flight to hide the memory's latency.
ROWS, COLUMNS, STAGES, WARPS = 128, 64, 4, 4
PROGRAMS = 256  # at least so many, two for each multiprocessor of an H200


class Stacked(NamedTuple):
    """The weights of one layer, where they lie among those of all layers."""

    stack: jax.Array  # (layers, ...)
    layer: jax.Array

    @property
    def shape(self) -> tuple[int, ...]:
        return self.stack.shape[1:]

    def reshape(self, *shape: int) -> Stacked:
        return Stacked(self.stack.reshape(self.stack.shape[0], *shape), self.layer)


def taken(weight: Any) -> jax.Array:
    """The weights of a layer as an array."""
    if isinstance(weight, Stacked):
        return jax.lax.dynamic_index_in_dim(*weight, keepdims=False)
    return weight


def product(x: jax.Array, weight: Any, contracted: int = 1) -> jax.Array:
    """The last axes of x with the first ones of the weights; so many are contracted.

    >>> product(jnp.ones((1, 5, 2, 3)), jnp.ones((2, 3, 7)), 2).shape
    (1, 5, 7)
    """
    x = x.reshape(*x.shape[: x.ndim - contracted], -1)
    (found,) = products(x, [weight.reshape(-1, *weight.shape[contracted:])])
    return found


def products(x: jax.Array, weights: Sequence[Any]) -> list[jax.Array]:
    """The last axis of x with the first one of each of the weights.

    >>> [y.shape for y in products(jnp.ones((5, 2)), [jnp.ones((2, 3))] * 2)]
    [(5, 3), (5, 3)]
    """
    if not isinstance(weights[0], Stacked):
        return [jnp.tensordot(x, weight, 1) for weight in weights]
    matrices = [weight.reshape(x.shape[-1], -1) for weight in weights]
    found: dict[int, jax.Array] = {}
    for columns in dict.fromkeys(matrix.shape[1] for matrix in matrices):
        alike = [i for i, matrix in enumerate(matrices) if matrix.shape[1] == columns]
        stacks = [matrices[i].stack for i in alike]
        flat = in_place(x.reshape(-1, x.shape[-1]), stacks, weights[0].layer)
        found |= zip(alike, flat, strict=True)
    return [
        found[i].astype(x.dtype).reshape(*x.shape[:-1], *weight.shape[1:])
        for i, weight in enumerate(weights)
    ]


def in_place(
    x: jax.Array, stacks: Sequence[jax.Array], layer: jax.Array
) -> list[jax.Array]:
    """x (M, K) times stack[layer] (K, N) of each stack, in float32, by one kernel.

    The programs of the kernel divide the columns, and, where these are too few, also
    the rows; the parts of a sum are then added here.
    """
    from jax.experimental import pallas
    from jax.experimental.pallas import triton

    tokens, size = x.shape
    shape = stacks[0].shape
    columns = math.gcd(COLUMNS, shape[2])
    rows = math.gcd(ROWS, size)
    parts = _parts(size // rows, shape[2] // columns)
    padded = max(NARROWEST, 1 << (tokens - 1).bit_length())
    x = jnp.pad(x, ((0, padded - tokens), (0, 0)))
    one = pallas.BlockSpec((None, padded, columns), lambda i, j: (j, 0, i))
    result = jax.ShapeDtypeStruct((parts, padded, shape[2]), jnp.float32)
    run = pallas.pallas_call(
        functools.partial(_kernel, rows=rows, steps=size // rows // parts),
        grid=(shape[2] // columns, parts),
        in_specs=[
            pallas.BlockSpec((), lambda i, j: ()),
            pallas.BlockSpec(x.shape, lambda i, j: (0, 0)),
            *[pallas.BlockSpec(shape, lambda i, j: (0, 0, 0)) for _ in stacks],
        ],
        out_specs=[one for _ in stacks],
        out_shape=[result for _ in stacks],
        compiler_params=triton.CompilerParams(num_warps=WARPS, num_stages=STAGES),
        interpret=jax.default_backend() == "cpu",
    )
    return [found.sum(axis=0)[:tokens] for found in run(layer, x, *stacks)]


def _parts(row_blocks: int, column_blocks: int) -> int:
    """Into how many parts the rows are divided, so that there are enough programs."""
    divisors = [n for n in range(1, min(row_blocks, 8) + 1) if row_blocks % n == 0]
    enough = [n for n in divisors if n * column_blocks >= PROGRAMS]
    return enough[0] if enough else divisors[-1]


def _kernel(layer_ref: Any, x_ref: Any, *refs: Any, rows: int, steps: int) -> None:
    from jax.experimental import pallas
    from jax.experimental.pallas import triton

    stacks, results = refs[: len(refs) // 2], refs[len(refs) // 2 :]
    layer, columns = layer_ref[()], results[0].shape[1]
    across = pallas.ds(pallas.program_id(0) * columns, columns)
    first = pallas.program_id(1) * steps

    for stack, result in zip(stacks, results, strict=True):

        def add(step: Any, total: Any, stack: Any = stack) -> Any:
            down = pallas.ds((first + step) * rows, rows)
            return total + triton.dot(x_ref[:, down], stack[layer, down, across])

        zero = jnp.zeros(result.shape, jnp.float32)
        result[...] = jax.lax.fori_loop(0, steps, add, zero)
