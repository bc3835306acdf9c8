"""How many steps are run before the loop looks up: at a signal, a bar, an exit."""

from __future__ import annotations

from typing import Any

import jax

from onescan.api import reference
from onescan.long.options import Options
from onescan.plan.work import work_of

#: seconds of a step, and of one of its operations: between what a kernel takes and what
#: XLA takes, so that a chunk is neither too short for its call nor too long to wait
STEP, OPERATION = 20e-9, 0.25e-9
#: seconds that a chunk should take: where Python is called now and then, and where not
CALLED, ALONE = 10e-3, 1e-3


def chunk_length(f: Any, types: Any, xs: Any, options: Options) -> int:
    """Steps between two looks at how far the loop is."""
    seconds = ALONE if options.progress is None and options.check is None else CALLED
    kinds = types.carry, jax.tree.map(reference.type_of_entry, xs)
    body = jax.make_jaxpr(f)(*kinds).jaxpr
    operations = sum(work.operations for work in work_of(body))
    return max(1, int(seconds / (STEP + OPERATION * operations)))
