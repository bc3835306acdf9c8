"""How many steps of a loop XLA should run at a time, where it runs the loop on a GPU.

XLA launches several kernels a step, about two microseconds each however little they
compute.  With a body written out for several steps it launches fewer: the counter and
the test are done once for all of these, and what ends one step becomes one kernel with
what begins the next.  `jax.lax.scan` writes a body out by its `unroll`, which changes
no result but by rounding.

It also takes longer to compile.  So it is done for small bodies, of which the launches
are the larger part, and where the user asked for nothing else.
"""

from __future__ import annotations

from onescan.loop import Equation, Loop
from onescan.plan.work import equations, work_of
from onescan.primitives import CONTROL, record_of

#: steps at a time; on an H200, eight steps of a GRU or an LSTM, or of their gradients,
#: take half to two thirds of the time that they take one by one
MOST = 8
#: equations of all these steps
EQUATIONS = 176
#: multiply-adds of a step next to which its launches are nothing, and other operations
#: (on an H200, loops of two to fifty million took up to twice as long when unrolled)
LARGE, MANY = 1_000_000_000, 1_000_000
#: numbers that a running sum may have in a body that is written out: XLA does all that
#: comes before it once for each number, in every step after it (on an H200 loops with
#: 64 took a third of the time, one with 128 took four times as long)
RUNNING = 64
#: what XLA launches a kernel for; all the rest it does with what comes before or after
LAUNCHED = ("product", "reduction", "cumulative", "sort", "gather", "update", "matrix")
#: kernels of a step from which on XLA makes a graph of them, which it launches as one
GRAPH = 5


def unrolled_steps(loop: Loop) -> int:
    """The steps to run at a time: 1, or the user's own choice, where that is best."""
    found = list(equations(loop.body.jaxpr))
    if loop.unroll != 1 or any(eqn.primitive.name in CONTROL for eqn in found):
        return loop.unroll
    if any(map(_is_long_sum, found)):
        return 1
    products = others = 0.0
    for work in work_of(loop.body.jaxpr):
        if record_of(work.eqn).kind == "product":
            products += work.operations
        else:
            others += work.operations
    if products >= LARGE or others >= MANY:
        return 1
    # steps that are left over at the end are written out too
    sizes = ((n, n + loop.length % n) for n in range(min(MOST, loop.length), 1, -1))
    fitting = (n for n, bodies in sizes if bodies * len(found) <= EQUATIONS)
    return next(fitting, 1)


def makes_a_graph(loop: Loop) -> bool:
    """Whether XLA launches the kernels of a step as one.

    Guessed: a kernel for each operation that others wait for, and for each shape of a
    result.
    """
    found = equations(loop.body.jaxpr)
    waited_for = sum(record_of(eqn).kind in LAUNCHED for eqn in found)
    shapes = {aval.shape for aval in loop.carry_avals + loop.y_avals}
    return waited_for + len(shapes) >= GRAPH


def _is_long_sum(eqn: Equation) -> bool:
    if record_of(eqn).kind != "cumulative":
        return False
    return eqn.invars[0].aval.shape[eqn.params["axis"]] > RUNNING
