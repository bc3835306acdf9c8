"""What a user can do to make a loop faster, where something can be done."""

from __future__ import annotations

import re
from math import prod

from onescan import compat
from onescan.explain.decide import Decision, machine
from onescan.plan.work import work_of

#: operations of a step from which one lane keeps a core busy
BUSY = 2_000
#: operations of one line that are worth naming
LARGEST_SHARE = 0.5


def advice_for(decision: Decision) -> list[str]:
    """Sentences, the most useful first; none where nothing is to be gained."""
    if decision.reason is not None:
        return _on_xla(decision)
    found: list[str] = []
    plan = decision.plan
    if plan is None:
        return found
    lanes = prod(lane.size for lane in plan.lanes)
    work = sum(w.operations for w in work_of(decision.core.body.jaxpr))
    host = machine()
    wide = host.vector_bytes // 4 if host else 1
    if lanes == 1 and work < BUSY:
        what = "the threads of a GPU" if plan.grid else f"vectors of {wide} numbers"
        found.append(
            "A step does little and has no independent lanes, so it waits for "
            "itself. If you have many such loops, run them together with `jax.vmap`: "
            f"they fill {what} and cost little more than one."
        )
    heaviest = max(
        work_of(decision.core.body.jaxpr), key=lambda w: w.operations, default=None
    )
    if heaviest and work > BUSY and heaviest.operations > LARGEST_SHARE * work:
        name = compat.expression_of(heaviest.eqn)
        code, _, place = name.rpartition(", ")
        found.append(
            f"{f'`{code}` at {place}' if code else place} is "
            f"{heaviest.operations / work:.0%} of what each step still computes: "
            "speed it up first."
        )
    return found


def _on_xla(decision: Decision) -> list[str]:
    """What the user can do about the reason, if anything."""
    for pattern, text in REMEDIES:
        if found := re.search(pattern, decision.reason or ""):
            return [text.format(*found.groups())]
    return []


#: what a reason to leave a loop to XLA says, and what a user can do then
REMEDIES = (
    (
        r"(`[^`]+` at \S+) reads a large constant",
        "{0} reads an array that was made with NumPy inside the body. Make it before "
        "the loop with `jnp`, so that it is an argument of the program.",
    ),
    (
        r"(`[^`]+` at \S+)",
        "{0} keeps this loop on XLA. Move it out of the loop, or write it with other "
        "operations, and the rest becomes one kernel.",
    ),
    (
        r"side effects",
        "Printing, callbacks and the like keep this loop on XLA. Return what you want "
        "to see as y instead, and look at it after the loop.",
    ),
    (
        r"matrix product of \S+ million|million operations for a block",
        "A step is so large that XLA keeps the machine busy with it; there is nothing "
        "to gain from one kernel, and nothing to do.",
    ),
    (
        r"holds \S+ KiB of values|weights do not fit",
        "A step works on more numbers than fit beside the processor. Smaller batches "
        "for each loop, with `jax.vmap` or `jax.lax.map` over them, may fit.",
    ),
    (
        r"(\S+) values have no native rule",
        "There is no kernel for numbers of the type {0}. If another type will do, "
        "convert init and xs before the loop.",
    ),
    (
        r"llvmlite|LLVM makes no code",
        "Without a compiler every loop is left to XLA: `pip install llvmlite`.",
    ),
)
