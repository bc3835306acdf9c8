"""Equinox's own primitives, as what they compute.

Equinox (and Diffrax, Lineax, Optimistix with it) marks values in its programs: not to
be batched, not to be differentiated, to be looked at across a batch.  When a program
is lowered, all of that has had its say, and what is left is what their own definitions
compute: nothing at all, or a reduction, or an update in place.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

#: primitives that give back what they are given
MARKS = frozenset({"nonbatchable", "nondifferentiable_backward", "nontraceable"})
#: primitives that are functions of JAX's own; `vprim` is one of them under `jax.vmap`
FUNCTIONS = frozenset(
    {"maybe_set", "select_if_vmap", "unvmap_all", "unvmap_any", "unvmap_max", "vprim"}
)


def definition(eqn: Any) -> Callable[..., Any] | None:
    """One of Equinox's primitives as the function of arrays that defines it."""
    if eqn.primitive.name not in FUNCTIONS:
        return None
    return partial(eqn.primitive.impl, **eqn.params)
