"""Marks on equations: which loops are ours, and what was asked for around them."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import jax
import numpy as np
from jax._src import core as _core
from jax._src.interpreters import batching as _batching
from jax.experimental.xla_metadata import set_xla_metadata
from jax.extend.core.primitives import scan_p, while_p

from onescan.compat.equations import loop_of

MARK = "onescan"


INNER = "inner"


SETTING = "onescan_"  # and the name of the setting: of a region in a traced function


LEFT = "left"


def marked(init: Any = (), xs: Any = (), *, inner: bool = False) -> Any:
    """A context in which every scan is marked as ours, or as part of one of ours.

    Where `jax.vmap` has its batch in front of all xs, and so in front of time, the mark
    of a loop says how many dimensions its carry and its xs have without it.
    """
    if inner:
        return set_xla_metadata(**{MARK: INNER})
    inits, stacks = jax.tree.leaves(init), jax.tree.leaves(xs)
    deciding = [x for x in stacks if _batches(x)] or inits
    batches = [dim for x in deciding for dim in _batches(x)]
    ranks = [*map(np.ndim, inits), *(np.ndim(x) - 1 for x in stacks)]
    known = ranks if batches and not any(batches) else []
    return set_xla_metadata(**{MARK: ",".join(map(str, [1, *known]))})


def _batches(x: Any) -> list[Any]:
    """The dimensions of the batches that `jax.vmap` holds of a value, innermost first.

    None are told of numbers that are there already: outside of `jit`, what `jax.vmap`
    moves is moved before the loop is a program.
    """
    found = []
    while isinstance(x, _batching.BatchTracer):
        found += [x.batch_dim] if x.batch_dim is not None else []
        x = x.val
    return found if isinstance(x, _core.Tracer) else []


def unmarked() -> Any:
    """A context that takes the mark away again, for the body of a loop."""
    return set_xla_metadata(**{MARK: None})


def left() -> Any:
    """A context in which every scan is left to XLA: those around loops of ours."""
    return set_xla_metadata(**{MARK: LEFT})


def mark_of(ctx: Any) -> str | None:
    """The mark of the scan being lowered, if it is one of ours."""
    return _metadata(ctx).get(MARK)


def traced_in_region(settings: dict[str, str]) -> AbstractContextManager[Any]:
    """A context in which every scan is marked with settings, inside a trace.

    Outside of one nothing is marked: what is traced later is another region's.
    """
    if _core.trace_state_clean():
        return nullcontext()
    return set_xla_metadata(**{SETTING + name: text for name, text in settings.items()})


def region_of(ctx: Any) -> dict[str, str]:
    """The settings that the scan being lowered is marked with."""
    found = _metadata(ctx).items()
    return {k.removeprefix(SETTING): v for k, v in found if k.startswith(SETTING)}


def is_kept_from_us(eqn: Any) -> bool:
    """Whether an equation is a loop that was traced in a region of stock JAX's."""
    metadata = getattr(eqn.ctx, "xla_metadata", None) or {}
    is_loop = eqn.primitive in (scan_p, while_p)
    return is_loop and metadata.get(SETTING + "engine") == "xla"


def _metadata(ctx: Any) -> dict[str, Any]:
    return getattr(ctx.jaxpr_eqn_ctx, "xla_metadata", None) or {}


def added_axes(mark: str | None, params: dict[str, Any]) -> int:
    """How many axes `jax.vmap` put in front of a loop's values, and in front of time.

    0 where that is not known, and in loops that are not just batches of the marked one,
    such as gradients: JAX keeps the names of the arguments in batches only.
    """
    if mark in (None, INNER) or params["jaxpr"].jaxpr.debug_info.arg_names is None:
        return 0
    loop, before = loop_of(params), [int(rank) for rank in mark.split(",")[1:]]
    now = [len(aval.shape) for aval in (*loop.carry_avals, *loop.x_avals)]
    if len(before) != len(now):
        return 0
    return max([0, *(n - b for n, b in zip(now, before, strict=True))])
