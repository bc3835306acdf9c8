"""A loop on its way into JAX: marked as ours, and JAX's refusals in the user's terms.

The arguments have been checked, and carry nothing that JAX does not know.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax

from onescan import compat
from onescan.api import reference
from onescan.api.body import Call, body_of, forget
from onescan.errors import ScanTypeError


def scan(
    f: Callable[[Any, Any], tuple[Any, Any]],
    init: Any,
    xs: Any,
    steps: int,
    reverse: bool = False,
    unroll: int | bool = 1,
) -> tuple[Any, Any]:
    """`jax.lax.scan`, marked as ours."""
    if steps == 0 and compat.jit_disabled():
        return reference.scan(f, init, xs, steps)  # JAX refuses this one combination
    call = Call(f)
    try:
        with call, compat.marked(init, xs):
            return jax.lax.scan(body_of(f), init, xs, steps, reverse, unroll)
    except (TypeError, ValueError):
        forget(f)
        if call.trouble is None:
            raise
        raise ScanTypeError(call.trouble) from None
