"""Products of a few tokens with a layer's weights, which read the weights once.

A decode step reads all weights for one token of each sequence, so its time is that of
reading them.  In a loop over layers a layer's weights are a slice of a stack.  XLA's
products on a GPU do not read a slice where it lies: they have it copied first, which
triples the bytes.  Ways around that:

- `Blocks`: a kernel that is given the whole stack and the number of the layer.
- `"sums"`: multiply and add, which XLA fuses with the slice.  For one token; with more,
  the weights are read once for each.
- `"apart"`: JAX's own product, and nothing fused with it.  cuBLAS then reads slices
  where they lie, if XLA is told to use it for all products (`benchmarks/llama.py`).
"""

from __future__ import annotations

import functools
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

MOST_TOKENS = 64  # with more, a product has more to do than to read its weights


class Blocks(NamedTuple):
    """How the kernel divides a matrix; what is in flight hides the memory's latency."""

    rows: int = 128
    columns: int = 64
    warps: int = 4
    stages: int = 4
    programs: int = 256  # at least so many, two for each multiprocessor of an H200


Way = str | Blocks | None  # a kernel, "sums", "apart", or just JAX's own product


class Stacked(NamedTuple):
    """The weights of one layer, where they lie among those of all layers."""

    stack: jax.Array  # (layers, ...)
    layer: jax.Array

    @property
    def shape(self) -> tuple[int, ...]:
        return self.stack.shape[1:]


def taken(weight: Any) -> jax.Array:
    """The weights of a layer as an array."""
    if isinstance(weight, Stacked):
        return jax.lax.dynamic_index_in_dim(*weight, keepdims=False)
    return weight


def product(x: jax.Array, weight: Any, contracted: int = 1, way: Way = None) -> Any:
    """The last axes of x with the first ones of the weights; so many are contracted.

    >>> product(jnp.ones((1, 5, 2, 3)), jnp.ones((2, 3, 7)), 2).shape
    (1, 5, 7)
    """
    kept, columns = x.shape[: x.ndim - contracted], weight.shape[contracted:]
    if contracted > 1:  # one product of matrices, whatever the order of the axes
        x = x.reshape(*kept, -1)
        weight = _flat(weight, contracted)
    if isinstance(weight, Stacked) and isinstance(way, Blocks):
        matrices = weight.stack.reshape(weight.stack.shape[0], x.shape[-1], -1)
        flat = in_place(x.reshape(-1, x.shape[-1]), matrices, weight.layer, way)
        return flat.astype(x.dtype).reshape(*kept, *columns)
    if way == "sums":
        matrix = taken(weight).reshape(x.shape[-1], -1).astype(jnp.float32)
        summed = (x.astype(jnp.float32)[..., None] * matrix).sum(axis=-2)
        return summed.astype(x.dtype).reshape(*kept, *columns)
    result = jnp.tensordot(x, taken(weight), 1)
    return jax.lax.optimization_barrier(result) if way == "apart" else result


def _flat(weight: Any, axes: int) -> Any:
    """The weights with their first axes as one."""
    shape = math.prod(weight.shape[:axes]), *weight.shape[axes:]
    if isinstance(weight, Stacked):
        return weight._replace(
            stack=weight.stack.reshape(weight.stack.shape[0], *shape)
        )
    return weight.reshape(shape)


def in_place(x: jax.Array, stack: jax.Array, layer: jax.Array, blocks: Blocks) -> Any:
    """x (M, K) times stack[layer] (K, N), in float32, by a kernel on the whole stack.

    The programs of the kernel divide the columns, and, where these are too few, also
    the rows; the parts of a sum are then added here.
    """
    from jax.experimental import pallas
    from jax.experimental.pallas import triton

    tokens, size = x.shape
    columns = math.gcd(blocks.columns, stack.shape[2])
    rows = math.gcd(blocks.rows, size)
    if min(rows, columns) < 16 or stack.size >= 2**31:  # too narrow, or too far
        return x @ taken(Stacked(stack, layer))
    parts = _parts(size // rows, stack.shape[2] // columns, blocks.programs)
    padded = max(16, 1 << (tokens - 1).bit_length())  # what tensor cores multiply
    x = jnp.pad(x, ((0, padded - tokens), (0, 0)))
    run = pallas.pallas_call(
        functools.partial(
            _kernel, rows=rows, columns=columns, steps=size // rows // parts
        ),
        grid=(stack.shape[2] // columns, parts),
        in_specs=[
            pallas.BlockSpec((), lambda i, j: ()),
            pallas.BlockSpec(x.shape, lambda i, j: (0, 0)),
            pallas.BlockSpec(stack.shape, lambda i, j: (0, 0, 0)),
        ],
        out_specs=pallas.BlockSpec((None, padded, columns), lambda i, j: (j, 0, i)),
        out_shape=jax.ShapeDtypeStruct((parts, padded, stack.shape[2]), jnp.float32),
        compiler_params=triton.CompilerParams(
            num_warps=blocks.warps, num_stages=blocks.stages
        ),
        interpret=jax.default_backend() == "cpu",
    )
    return run(layer, x, stack).sum(axis=0)[:tokens]


def _parts(row_blocks: int, column_blocks: int, programs: int) -> int:
    """Into how many parts the rows are divided, so that there are enough programs."""
    divisors = [n for n in range(1, min(row_blocks, 8) + 1) if row_blocks % n == 0]
    enough = [n for n in divisors if n * column_blocks >= programs]
    return enough[0] if enough else divisors[-1]


def _kernel(
    layer_ref: Any,
    x_ref: Any,
    stack_ref: Any,
    out_ref: Any,
    *,
    rows: int,
    columns: int,
    steps: int,
) -> None:
    from jax.experimental import pallas
    from jax.experimental.pallas import triton

    layer = layer_ref[()]
    across = pallas.ds(pallas.program_id(0) * columns, columns)
    first = pallas.program_id(1) * steps

    def add(step: Any, total: Any) -> Any:
        down = pallas.ds((first + step) * rows, rows)
        return total + triton.dot(x_ref[:, down], stack_ref[layer, down, across])

    zero = jnp.zeros(out_ref.shape, jnp.float32)
    out_ref[...] = jax.lax.fori_loop(0, steps, add, zero)
