"""`onescan.explain`: what a loop does, step by step, with the user's own values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.core

from onescan import compat, switches
from onescan.api.arguments import as_sequence
from onescan.api.scan import scan
from onescan.errors import ScanValueError
from onescan.explain.decide import decide, here
from onescan.explain.measure import Times, measured
from onescan.explain.steps import shapes_in, shapes_of, steps_in, steps_of
from onescan.explain.view import Explanation as Explanation
from onescan.loop import Loop
from onescan.lowering.hook import our_settings
from onescan.naming import function_name
from onescan.passes.overtime import evaluate

FIRST_CALL = "These are the values of the loop's first call."
NO_VALUES = "The values of this loop were not kept"
HOW_TO_KEEP = (
    "`onescan explain script.py` keeps those of a program's loops; onescan.explain "
    "computes them from a function and its arguments."
)


def explain(
    f: Callable[[Any, Any], tuple[Any, Any]],
    init: Any,
    xs: Any = None,
    length: int | None = None,
    reverse: bool = False,
    *,
    measure: bool = False,
) -> Explanation:
    """Show what `scan(f, init, xs, length, reverse)` does, and how it will run.

    The explanation holds four parts: the walk (carry in, x, carry out and y of each
    step, with real values), the shapes (of carry, xs and ys, as stacked and as the
    body sees them), the run (which engine on which platform and why, what a step
    costs, how much memory) and the source, each line with where it runs.  It prints;
    ``save("loop.html")`` writes a page.  Arguments of `jax.ShapeDtypeStruct` give all
    but the values, at any size.

    With `measure`, the loop is also run on this machine, by XLA, as one kernel and as
    it will run, and the run tells how long a step takes each way.

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
        loop, arguments = _traced(f, init, xs, length, reverse, known)
        times = _measured(loop, arguments) if measure else None
        name, code = function_name(f)
        return Explanation(
            name=name,
            source=code and f"{code.co_filename}:{code.co_firstlineno}",
            reverse=reverse,
            shapes=shapes,
            steps=tuple(steps),
            loop=loop,
            times=times,
        )


def explain_loop(
    loop: Loop, values: Sequence[Any] | str | None = None, left: str | None = None
) -> Explanation:
    """The same of a loop of which the program is known, and perhaps what it was given.

    The values are those of its first call, flat; or text that says why there are none.
    `left` is why XLA ran the loop, if it did.
    """
    if values is None:
        about, values = f"{NO_VALUES}. {HOW_TO_KEEP}", ""
    elif isinstance(values, str):
        about = f"{NO_VALUES}: {values}."
    else:
        about = FIRST_CALL if loop.length else None
    with our_settings(loop), switches.using(engine="xla"):
        shapes = shapes_in(loop)
        steps = () if isinstance(values, str) else tuple(steps_in(loop, values))
    return Explanation(
        name=loop.name,
        source=None if loop.source == "unknown" else loop.source,
        reverse=loop.reverse,
        shapes=shapes,
        steps=steps,
        loop=loop,
        about_values=about,
        left=left,
    )


def _measured(loop: Loop | None, arguments: Sequence[Any] | None) -> Times:
    if loop is None or arguments is None:
        raise ScanValueError(
            "onescan.explain: measure=True runs the loop, so init and xs have to be "
            "arrays, not types, and jax.jit must not be disabled."
        )
    return measured(decide(loop, here()), arguments)


def _traced(
    f: Any, init: Any, xs: Any, length: int | None, reverse: bool, known: bool
) -> tuple[Loop | None, Sequence[Any] | None]:
    """The loop as the compiler gets it, if JAX makes one, and its arguments."""

    def traced(init: Any, xs: Any) -> Any:
        return scan(f, init, xs, length, reverse)

    if known:
        jaxpr = jax.make_jaxpr(lambda: traced(init, xs))()
    else:
        jaxpr = jax.make_jaxpr(traced)(init, xs)
    loops = (eqn for eqn in jaxpr.eqns if eqn.primitive.name == "scan")
    eqn = next(loops, None)
    if eqn is None:
        return None, None
    given = dict(zip(jaxpr.jaxpr.constvars, jaxpr.consts, strict=True))
    values = evaluate(jaxpr.eqns, given, eqn.invars) if known else None
    return compat.loop_of(eqn.params), values


def _has_values(tree: Any) -> bool:
    unknown = (jax.ShapeDtypeStruct, jax.core.Tracer)
    return not any(isinstance(leaf, unknown) for leaf in jax.tree.leaves(tree))
