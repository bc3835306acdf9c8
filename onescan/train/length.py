"""How many steps a chunk has.

Long enough that starting it costs nothing, short enough that the bar moves and Ctrl-C
is answered. The choice rests on a count of what a step computes, and not on a clock:
a run that begins again after a crash cuts itself into the same chunks, which makes its
results the same to the last bit.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any

import jax
import numpy as np

CHUNK_S = 0.2  # what a chunk should take
# Guesses within a factor of ten for one core of a CPU and for a GPU alike; a chunk may
# take that much more or less.
FLOPS_PER_S = 2e10
ELEMENTS_PER_S = 1e9
OPERATION_S = 0.5e-6
WHILE_STEPS = 10  # a while loop's number of steps is not known

MOST_STEPS = 1 << 14
MOST_BYTES = 64 << 20  # of host batches on their way


def chunk_length(jaxpr: Any, total: int | None, batch_bytes: int = 0) -> int:
    """The number of steps of a chunk, from the jaxpr of one.

    >>> step = jax.make_jaxpr(lambda state, batch: state + batch)(1.0, 2.0)
    >>> chunk_length(step.jaxpr, total=500)
    500
    """
    seconds = estimated_seconds(jaxpr)
    length = max(1, min(int(CHUNK_S / seconds), MOST_STEPS))
    if batch_bytes:
        length = max(1, min(length, MOST_BYTES // batch_bytes))
    return length if total is None else _fitting(length, max(total, 1))


def _fitting(length: int, total: int) -> int:
    """A length near this one that divides the total, so that there is no shorter last
    chunk, which would be compiled for itself."""
    if length >= total:
        return total
    for candidate in range(length, length // 2, -1):
        if total % candidate == 0:
            return candidate
    return length


def estimated_seconds(jaxpr: Any) -> float:
    """A rough time for running a jaxpr once."""
    total = 0.0
    for eqn in jaxpr.eqns:
        inner = sum(map(estimated_seconds, _inner(eqn.params)))
        if eqn.primitive.name == "scan":
            total += inner * eqn.params["length"]
        elif eqn.primitive.name == "while":
            total += inner * WHILE_STEPS
        elif inner:
            total += inner
        else:
            total += OPERATION_S + _arithmetic(eqn)
    return max(total, OPERATION_S)


def _arithmetic(eqn: Any) -> float:
    sizes = [prod(getattr(out.aval, "shape", ())) for out in eqn.outvars]
    if eqn.primitive.name == "dot_general":
        contracted, _ = eqn.params["dimension_numbers"][0]
        shape = eqn.invars[0].aval.shape
        return 2 * sizes[0] * prod(shape[i] for i in contracted) / FLOPS_PER_S
    if eqn.primitive.name == "conv_general_dilated":
        kernel = eqn.invars[1].aval.shape
        features = kernel[eqn.params["dimension_numbers"].rhs_spec[0]]
        return 2 * sizes[0] * prod(kernel) / max(features, 1) / FLOPS_PER_S
    return sum(sizes) / ELEMENTS_PER_S


def _inner(params: dict[str, Any]) -> Iterator[Any]:
    for value in params.values():
        for item in value if isinstance(value, tuple | list) else (value,):
            item = getattr(item, "jaxpr", item)  # of a ClosedJaxpr
            if hasattr(item, "eqns"):
                yield item


def size_in_bytes(specs: Any) -> int:
    leaves = jax.tree.leaves(specs)
    return sum(prod(leaf.shape) * np.dtype(leaf.dtype).itemsize for leaf in leaves)
