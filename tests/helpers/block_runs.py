"""Loops whose matrices the threads of a block share, run by threads of the CPU."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from gpu_lowering import H200
from gpu_threads import by_a_warp
from jax import lax
from passing import loop_of

from onescan.targets.nvidia.target import Nvidia


def by_both(step: Any, carry: Any, xs: Any, threads: int = 32) -> tuple[Any, Any]:
    """The results of a kernel of one block, and of stock JAX."""
    loop, args = loop_of(step, carry, xs)
    ours = by_a_warp(Nvidia(H200), loop, args, threads)
    return ours, [np.asarray(x) for x in jax.tree.leaves(lax.scan(step, carry, xs))]
