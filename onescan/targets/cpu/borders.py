"""How far predictions for a CPU can be trusted, by the kind of loop.

Of 336 random loops that were tried, 23 were slower as kernels, at any predicted ratio
up to 2, and all 23 were alike: one thread walks through values of thousands of numbers,
which XLA divides among the cores, or multiplies large matrices, or a step holds more
than a cache.  None of the other 163 was slower, the least of them 1.08 times as fast as
XLA's loop.

Of 407 others, with predictions as they are now, on x86 and aarch64: of 161 that walk
through memory 21 were slower, at ratios up to 4; of 246 that do not, three that were
predicted to be faster: two go through wide values (at 1.3, where 26 MB are carried, and
1.6), and one multiplies large matrices and factors them (0.88 times as fast, at 2.0).
`benchmarks/borders.py` tries others, and counts them by kind.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

import jax.numpy as jnp
import numpy as np

from onescan.loop import nbytes
from onescan.plan.plan import Plan
from onescan.plan.profile import Profile
from onescan.plan.work import Work, step_of
from onescan.primitives import record_of
from onescan.targets.cpu.emitter import ON_STACK
from onescan.tune.choose import Border

#: for loops of a kind in which no kernel was slower, at all or where it should not be
KNOWN = Border(sure=0.9)
OTHERS = Border(sure=1.25)
#: for those in which one thread walks through wide values that are not far
WALKS = Border(sure=1.8)
#: XLA keeps a loop whose values lie in memory if it was not measured and is not clearly
#: faster: what memory costs is not predicted, and XLA has all cores for each operation
FROM_MEMORY = Border(sure=3.0, slower=1.3)
#: predicted ratio up to which XLA keeps a loop inside of one that it runs: it calls the
#: kernel again and again, and such calls are too short to be measured (mctx's search by
#: Gumbel's policy ran at 0.77 of stock by a loop that was predicted at 0.29)
IN_XLA = 1.0
#: seconds that its call takes there, each time, and the end of the kernel that XLA may
#: else have made of all around it; a while loop is called in vain if it ends after few
#: rounds (a root by Newton's rule in 2,000 steps of XLA's: 0.2 and 1.7 ms)
CALLED, FEW_ROUNDS = 5e-7, 8
#: instructions of a kernel that takes LLVM seconds, and what it must promise for them
#: (`ppo/16` and `ppo/64` of `benchmarks/programs.py`)
LONG, LONG_IS_WORTH = 12_000, 1.0
#: numbers of a value from which XLA may be ahead of one thread
WIDE = 4096
#: multiply-adds of a product from which its library may be ahead
PRODUCT = 5e5
#: bytes that a step may hold, or carry in memory
HELD = 1 << 20
#: what those loops were made of
KINDS = {"view", "source", "identity", "elementwise", "reduction", "cumulative"}
KINDS |= {"product", "joined", "gather", "update"}
#: of these, what touches but a part of what it is given
PARTIAL = {"gather", "update"}


def border(plan: Plan, profile: Profile, size: int) -> Border:
    """How far the prediction for a kernel of so many instructions can be trusted."""
    if _is_known(plan, profile):
        return KNOWN
    alone = profile.tiles == 1
    if _is_in_memory(plan, profile, alone):
        found = FROM_MEMORY
    elif alone and any(map(_is_wide, step_of(plan.loop))):
        found = WALKS
    else:
        found = OTHERS
    return replace(found, hopeless=LONG_IS_WORTH) if size >= LONG else found


def _is_in_memory(plan: Plan, profile: Profile, alone: bool) -> bool:
    """Whether a step walks through memory that is far from the processor."""
    carried = nbytes(plan.loop.carry_avals) if alone else 0
    return not plan.stencil and (profile.held > ON_STACK or carried > HELD)


def _is_known(plan: Plan, profile: Profile) -> bool:
    """Whether it is of a kind in which no kernel was slower."""
    if plan.loop.is_while or plan.stencil or plan.batch_major or profile.held > HELD:
        return False
    alone = profile.tiles == 1
    return all(_is_known_work(work, alone) for work in step_of(plan.loop))


def _is_known_work(work: Work, alone: bool) -> bool:
    eqn = work.eqn
    kind = record_of(eqn).kind
    if kind not in KINDS or (kind == "product" and work.elements * work.each > PRODUCT):
        return False
    types = [v.aval for v in (*eqn.invars, *eqn.outvars)]
    if any(_is_half(aval.dtype) for aval in types):
        return False
    return not alone or not _is_wide(work)


def _is_wide(work: Work) -> bool:
    """Whether it goes through all of a value of many numbers."""
    if record_of(work.eqn).kind in PARTIAL:
        return False
    types = [v.aval for v in (*work.eqn.invars, *work.eqn.outvars)]
    return any(prod(aval.shape) >= WIDE for aval in types)


def _is_half(dtype: np.dtype) -> bool:
    return jnp.issubdtype(dtype, jnp.floating) and dtype.itemsize < 4
