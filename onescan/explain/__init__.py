"""`onescan.explain`: what a loop does, step by step, with the user's own values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.core

from onescan import compat, switches
from onescan.api import scan
from onescan.arguments import as_sequence
from onescan.explain.steps import shapes_in, shapes_of, steps_of
from onescan.explain.view import Explanation as Explanation
from onescan.loop import Loop
from onescan.naming import function_name


def explain(
    f: Callable[[Any, Any], tuple[Any, Any]],
    init: Any,
    xs: Any = None,
    length: int | None = None,
    reverse: bool = False,
) -> Explanation:
    """Show what `scan(f, init, xs, length, reverse)` does, and how it will run.

    The explanation holds four parts: the walk (carry in, x, carry out and y of each
    step, with real values), the shapes (of carry, xs and ys, as stacked and as the
    body sees them), the run (which engine on which platform and why, what a step
    costs, how much memory) and the source, each line with where it runs.  It prints;
    ``save("loop.html")`` writes a page.  Arguments of `jax.ShapeDtypeStruct` give all
    but the values, at any size.

    >>> import onescan
    >>> told = onescan.explain(lambda c, x: (c + x, x + 2), 0, [1, 2, 3])
    >>> [(row["carry_in"], row["x"], row["y"]) for row in told.to_dict()["steps"]]
    [(0, 1, 3), (1, 2, 4), (3, 3, 5)]
    >>> print(told.run.platforms[0].verdict)
    The whole loop becomes one native kernel.
    """
    with switches.using(engine="xla"):  # looking at a loop leaves no row in the report
        xs = as_sequence(xs)
        known = _has_values((init, xs))
        shapes = shapes_of(f, init, xs, length, reverse, known)
        steps = steps_of(f, init, xs, reverse, shapes) if known else ()
        name, code = function_name(f)
        return Explanation(
            name=name,
            source=code and f"{code.co_filename}:{code.co_firstlineno}",
            reverse=reverse,
            shapes=shapes,
            steps=tuple(steps),
            loop=_traced(f, init, xs, length, reverse, known),
        )


def explain_loop(loop: Loop) -> Explanation:
    """The same of a loop of which the program is known, but no values."""
    return Explanation(
        name=loop.name,
        source=None if loop.source == "unknown" else loop.source,
        reverse=loop.reverse,
        shapes=shapes_in(loop),
        steps=(),
        loop=loop,
    )


def _traced(
    f: Any, init: Any, xs: Any, length: int | None, reverse: bool, known: bool
) -> Loop | None:
    """The loop as the compiler gets it; None where JAX was told not to make one."""

    def traced(init: Any, xs: Any) -> Any:
        return scan(f, init, xs, length, reverse)

    if known:
        jaxpr = jax.make_jaxpr(lambda: traced(init, xs))()
    else:
        jaxpr = jax.make_jaxpr(traced)(init, xs)
    loops = (eqn for eqn in jaxpr.eqns if eqn.primitive.name == "scan")
    return next((compat.loop_of(eqn.params) for eqn in loops), None)


def _has_values(tree: Any) -> bool:
    unknown = (jax.ShapeDtypeStruct, jax.core.Tracer)
    return not any(isinstance(leaf, unknown) for leaf in jax.tree.leaves(tree))
