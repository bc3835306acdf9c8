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

from onescan.loop import Loop
from onescan.plan.work import equations, work_of
from onescan.primitives import CONTROL

#: steps at a time, the most first
CHOICES = (8, 4, 2)
#: equations of all steps at a time; on an H200, those of a GRU's or an LSTM's gradient
#: take 1.7 to 1.9 times as long one step at a time as eight
EQUATIONS = 176
#: multiply-adds of a step next to which its launches are nothing
LARGE = 1_000_000_000


def steps_together(loop: Loop) -> int:
    """The steps to run at a time: 1, or the user's own choice, where that is best."""
    found = list(equations(loop.body.jaxpr))
    if loop.unroll != 1 or any(eqn.primitive.name in CONTROL for eqn in found):
        return loop.unroll
    if sum(work.operations for work in work_of(loop.body.jaxpr)) >= LARGE:
        return 1
    # steps that are left over at the end are written out too
    fitting = (n for n in CHOICES if (n + loop.length % n) * len(found) <= EQUATIONS)
    return min(next(fitting, 1), loop.length)
