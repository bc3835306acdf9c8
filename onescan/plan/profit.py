"""profit: loops that XLA runs better than a kernel of ours would.

What decides was measured (`make bench`): XLA's matrix library catches up with our
products where they are large, and a loop of one step is no loop.
"""

from __future__ import annotations

from collections.abc import Callable

from onescan.loop import Equation, LeaveToXla, Loop
from onescan.plan.work import work_of

#: multiply-adds of one product in one step from which XLA's library is as good
LARGE_PRODUCT = 30_000_000


def require_profit(
    loop: Loop,
    platform: str,
    is_faster: Callable[[Equation], bool] = lambda eqn: False,
) -> None:
    """Raise `LeaveToXla`, with the reason, for a loop that gains nothing with us.

    `is_faster` tells of products that are faster here however large they are.
    """
    if loop.length == 1:
        raise LeaveToXla("a loop of one step needs no loop")
    if platform != "cpu":
        return
    large = [
        work.operations
        for work in work_of(loop.body.jaxpr)
        if work.eqn.primitive.name == "dot_general"
        and work.operations >= LARGE_PRODUCT
        and not is_faster(work.eqn)
    ]
    if large:
        raise LeaveToXla(
            f"each step has a matrix product of {max(large) / 1e6:.0f} million "
            "multiply-adds, which XLA's matrix library does as well"
        )
