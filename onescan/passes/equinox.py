"""Equinox's own primitives and Lineax's, as what they compute.

Equinox (and Diffrax, Lineax, Optimistix with it) marks values in its programs: not to
be batched, not to be differentiated, to be looked at across a batch.  When a program
is lowered, all of that has had its say, and what is left is what their own definitions
compute: nothing at all, or a reduction, or an update in place.

The loops and solvers of these libraries ask whether any of a batch goes on, or needs
an evaluation, to skip work that none needs.  What each of the batch gets does not
depend on the answer, so a kernel may ask fewer than all: those lanes that it runs
together.  Such questions stay as they are here, and the rest become reductions over the
whole batch.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import PurePath
from typing import Any

import jax

from onescan import compat

#: primitives that give back what they are given
MARKS = frozenset({"nonbatchable", "nondifferentiable_backward", "nontraceable"})
#: primitives that are functions of JAX's own; `vprim` is one of them under `jax.vmap`
FUNCTIONS = frozenset(
    {
        *("linear_solve", "maybe_set", "select_if_vmap"),
        *("unvmap_all", "unvmap_any", "unvmap_max", "vprim"),
    }
)
#: the scope of an update that puts back what is there where its flag is down
SETTER = "onescan_maybe_set"
#: those that may be asked of some lanes, and who asks only to skip work
QUESTIONS = frozenset({"unvmap_all", "unvmap_any"})
ASKING = (("equinox", "internal", "_loop"), ("diffrax",))


def definition(eqn: Any) -> Callable[..., Any] | None:
    """One of Equinox's primitives as the function of arrays that defines it."""
    if eqn.primitive.name not in FUNCTIONS or _skips_work(eqn):
        return None
    function = partial(eqn.primitive.impl, **eqn.params)
    if "maybe_set" not in (eqn.primitive.name, str(eqn.params.get("prim"))):
        return function
    return jax.named_scope(SETTER)(function)


def _skips_work(eqn: Any) -> bool:
    """Whether an equation asks a batch whether work is needed."""
    if eqn.primitive.name not in QUESTIONS or not eqn.invars[0].aval.shape:
        return False
    files = (PurePath(place.file) for place in compat.positions_of(eqn))
    asks = next((file for file in files if file.name != "_unvmap.py"), PurePath())
    folders = asks.parts[:-1]
    return any(
        folders[i : i + len(who)] == who for who in ASKING for i in range(len(folders))
    )
