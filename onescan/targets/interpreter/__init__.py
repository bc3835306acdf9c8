"""Plans run by NumPy, tile by tile: slow, plain, and so an oracle of the planner.

    with onescan.engine("interpreter"):
        ...

A loop is planned as for the CPU at hand.  Each tile of lanes then runs through all
steps by itself, on nothing but its own part of every array, so a plan that takes lanes
for independent which are not gives wrong numbers here, too.
"""

from __future__ import annotations

from onescan.targets.base import Target

PLATFORM = "interpreter"
ABSORBS = False
EVERYWHERE = True


def current() -> Target:
    """NumPy on the processor we are on."""
    from onescan.targets.cpu.machine import host
    from onescan.targets.interpreter.target import Interpreter

    return Interpreter(host())
