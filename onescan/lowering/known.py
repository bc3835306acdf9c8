"""Numbers that the program around a loop knows: constants of a loop become literals.

JAX takes out of a body what no step changes, also what follows from literals alone: the
exponent of a power's derivative is ``-1.5 - 1``, computed in front of the loop.  XLA
folds it; here it is read, so that a kernel knows which power it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal

from onescan import program
from onescan.loop import Loop

#: bodies of which is kept what became of them, so that loops of the same stay the same
RECENT = 32

Value = Any  # of the program being lowered
Numbers = tuple[tuple[int, bytes], ...]  # place among the constants, bits: -0 is not 0


def with_known(loop: Loop, args: Sequence[Value]) -> Loop:
    """The loop with its known scalar constants as literals; arguments stay as they are.

    Those of a while loop belong to its condition as well, and are left.
    """
    if loop.is_while:
        return loop
    numbers = tuple(
        (place, number.tobytes())
        for place, aval in enumerate(loop.const_avals)
        if not aval.shape and (number := program.number_of(args[place])) is not None
    )
    return loop.replace(body=_replaced(loop.body, numbers)) if numbers else loop


@lru_cache(maxsize=RECENT)
def _replaced(body: ClosedJaxpr, numbers: Numbers) -> ClosedJaxpr:
    jaxpr: Jaxpr = body.jaxpr
    known: dict[Any, Any] = {}
    for place, bits in numbers:
        var: Any = jaxpr.invars[place]
        known[var] = Literal(np.frombuffer(bits, var.aval.dtype)[0], var.aval)

    def seen(atom: Any) -> Any:
        return atom if isinstance(atom, Literal) else known.get(atom, atom)

    eqns = [eqn.replace(invars=list(map(seen, eqn.invars))) for eqn in jaxpr.eqns]
    return ClosedJaxpr(jaxpr.replace(eqns=eqns), body.consts)
