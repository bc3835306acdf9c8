"""`onescan.scan`."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import jax

from onescan import compat


def scan(
    f: Callable[[Any, Any], tuple[Any, Any]],
    init: Any,
    xs: Any = None,
    length: int | None = None,
    reverse: bool = False,
    unroll: int | bool = 1,
) -> tuple[Any, Any]:
    """`jax.lax.scan`, compiled into one native kernel where that is possible."""

    @wraps(f)
    def body(carry: Any, x: Any) -> tuple[Any, Any]:
        with compat.unmarked():
            return f(carry, x)

    with compat.marked():
        return jax.lax.scan(body, init, xs, length, reverse, unroll)
