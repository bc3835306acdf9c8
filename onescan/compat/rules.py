"""How loops come to us: JAX's lowering rules, replaced."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from jax._src import source_info_util, traceback_util
from jax._src.interpreters import mlir as _mlir
from jax.extend.core import Jaxpr
from jax.extend.core.primitives import scan_p, while_p
from jax.interpreters import mlir

Rule = Callable[..., Sequence[Any]]


_scan_rule: Rule = _mlir._lowerings[scan_p].rule


stock_while_rule: Rule = _mlir._lowerings[while_p].rule


class _Scans(threading.local):
    """Whether JAX is making a while loop of a scan, in this thread."""

    are_lowered = False


_scans = _Scans()


def stock_rule(ctx: Any, *args: Any, **params: Any) -> Sequence[Any]:
    """JAX's own rule for a scan, which makes a while loop of it."""
    before, _scans.are_lowered = _scans.are_lowered, True
    try:
        return _scan_rule(ctx, *args, **params)
    finally:
        _scans.are_lowered = before


def is_of_a_scan() -> bool:
    """Whether the while loop being lowered is a scan's: the first one that comes."""
    found, _scans.are_lowered = _scans.are_lowered, False
    return found


def register_rules(scan: Rule, while_: Rule) -> None:
    """Hand every loop that JAX lowers, on any platform, to rules of ours."""
    register_seeing(scan_p, scan)
    register_seeing(while_p, while_)


def register_seeing(primitive: Any, rule: Rule) -> None:
    """Register a rule that is given the program's own values, and sees what made them.

    JAX would otherwise lower an equation as a function of its own, once for all that
    are alike, and inline that.
    """
    mlir.register_lowering(primitive, rule, cacheable=False)


def register_programs(around: Callable[[Callable[[], Any], Jaxpr | None], Any]) -> None:
    """Have `around` call what lowers a whole program, and is given that."""
    lower = getattr(_mlir, "lower_jaxpr_to_module", None)
    if lower is None:
        return

    @functools.wraps(lower)
    def lowered(*args: Any, **kwargs: Any) -> Any:
        parts = (getattr(x, "jaxpr", x) for x in (*args, *kwargs.values()))
        program = next((x for x in parts if isinstance(x, Jaxpr)), None)
        return around(functools.partial(lower, *args, **kwargs), program)

    _mlir.lower_jaxpr_to_module = lowered


def hide_frames(folder: Path) -> None:
    """Leave our own frames out of tracebacks and source positions."""
    source_info_util.register_exclusion(str(folder))
    traceback_util.register_exclusion(str(folder))
