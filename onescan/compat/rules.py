"""How loops come to us: JAX's lowering rules, replaced."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from jax._src import source_info_util, traceback_util
from jax._src.interpreters import mlir as _mlir
from jax._src.interpreters import pxla as _pxla
from jax.extend.core import Jaxpr
from jax.extend.core.primitives import scan_p, while_p
from jax.interpreters import mlir

Rule = Callable[..., Sequence[Any]]
#: what compilation is given of a lowering's results, besides the module
_OF_LOWERING = ("keepalive", "host_callbacks", "shape_poly_state")


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


def register_programs(
    lowering: Callable[[Callable[[], Any], Jaxpr | None], Any],
    compilation: Callable[[Callable[[Any], Any], Any], Any],
) -> bool:
    """Have functions of ours call what lowers a whole program, and what compiles it.

    What compiles is given what lowering gave.  Whether this JAX has the places.
    """
    lower = getattr(_mlir, "lower_jaxpr_to_module", None)
    executable = getattr(_pxla, "UnloadedMeshExecutable", None)
    compile = getattr(executable, "from_hlo", None)
    if lower is None or executable is None or compile is None:
        return False

    @functools.wraps(lower)
    def lowered(*args: Any, **kwargs: Any) -> Any:
        parts = (getattr(x, "jaxpr", x) for x in (*args, *kwargs.values()))
        program = next((x for x in parts if isinstance(x, Jaxpr)), None)
        return lowering(functools.partial(lower, *args, **kwargs), program)

    @functools.wraps(compile)
    def compiled(name: str, module: Any, **kwargs: Any) -> Any:
        names = [key for key in _OF_LOWERING if key in kwargs]

        def program(lowered: Any) -> Any:
            made = {key: getattr(lowered, key) for key in names}
            return compile(name, lowered.module, **kwargs | made)

        given = {key: kwargs[key] for key in names}
        return compilation(program, SimpleNamespace(module=module, **given))

    _mlir.lower_jaxpr_to_module = lowered
    executable.from_hlo = staticmethod(compiled)
    return True


def hide_frames(folder: Path) -> None:
    """Leave our own frames out of tracebacks and source positions."""
    source_info_util.register_exclusion(str(folder))
    traceback_util.register_exclusion(str(folder))
