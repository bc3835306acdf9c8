"""`onescan.explain`: what a loop does, step by step, with the user's own values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.core

from onescan import switches
from onescan.arguments import as_sequence
from onescan.explain.steps import shapes_of, steps_of
from onescan.explain.view import Explanation as Explanation
from onescan.naming import function_name


def explain(
    f: Callable[[Any, Any], tuple[Any, Any]],
    init: Any,
    xs: Any = None,
    length: int | None = None,
    reverse: bool = False,
) -> Explanation:
    """Show what `scan(f, init, xs, length, reverse)` does.

    The explanation holds the table of steps (carry in, x, carry out, y) with real
    values, and the shapes of carry, xs and ys as stacked and as the body sees them.
    Arguments of `jax.ShapeDtypeStruct` give the shapes alone, at any size.

    >>> import onescan
    >>> told = onescan.explain(lambda c, x: (c + x, x + 2), 0, [1, 2, 3])
    >>> [(row["carry_in"], row["x"], row["y"]) for row in told.to_dict()["steps"]]
    [(0, 1, 3), (1, 2, 4), (3, 3, 5)]
    """
    with switches.using(engine="xla"):  # looking at a loop leaves no row in the report
        xs = as_sequence(xs)
        known = _has_values((init, xs))
        shapes = shapes_of(f, init, xs, length, reverse, known)
        steps = steps_of(f, init, xs, reverse, shapes) if known else ()
        return Explanation(function_name(f), reverse, shapes, tuple(steps))


def _has_values(tree: Any) -> bool:
    unknown = (jax.ShapeDtypeStruct, jax.core.Tracer)
    return not any(isinstance(leaf, unknown) for leaf in jax.tree.leaves(tree))
