"""Everything that depends on the JAX version or on JAX's private modules.

No other file imports `jax._src` or asks which JAX this is.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
from jax._src import source_info_util, traceback_util
from jax._src.interpreters import mlir as _mlir
from jax._src.lax import lax as _lax
from jax.experimental.xla_metadata import set_xla_metadata
from jax.extend.core.primitives import scan_p
from jax.interpreters import mlir

from onescan.loop import Loop

MARK = "onescan"

Rule = Callable[..., Sequence[Any]]
stock_rule: Rule = _mlir._lowerings[scan_p].rule


def register_scan_rule(rule: Rule) -> None:
    """Hand every scan that JAX lowers, on any platform, to `rule`."""
    mlir.register_lowering(scan_p, rule)


def hide_frames(folder: Path) -> None:
    """Leave our own frames out of tracebacks and source positions."""
    source_info_util.register_exclusion(str(folder))
    traceback_util.register_exclusion(str(folder))


def marked() -> Any:
    """A context in which every scan is marked as ours."""
    return set_xla_metadata(**{MARK: "1"})


def unmarked() -> Any:
    """A context that takes the mark away again, for the body of a loop."""
    return set_xla_metadata(**{MARK: None})


def is_marked(ctx: Any) -> bool:
    """Whether the scan being lowered was called through `onescan.scan`."""
    metadata = getattr(ctx.jaxpr_eqn_ctx, "xla_metadata", None) or {}
    return MARK in metadata


def weak(array: jax.Array) -> jax.Array:
    """The same array with the weak type that Python numbers have."""
    return _lax._convert_element_type(array, array.dtype, weak_type=True)


def platform(ctx: Any) -> str | None:
    """The one platform being lowered for, or None when there are several."""
    platforms = ctx.platforms or ctx.module_context.platforms
    if len(platforms) != 1 or tuple(platforms) != tuple(ctx.module_context.platforms):
        return None
    return platforms[0]


def is_export(ctx: Any) -> bool:
    """Whether the program is lowered to be run in another process."""
    return bool(ctx.module_context.lowering_parameters.for_export)


def num_devices(ctx: Any) -> int:
    """Devices the values of this scan are spread over (1 where they are local)."""
    axis_context = ctx.module_context.axis_context
    mesh = getattr(axis_context, "mesh", None)
    if mesh is not None:  # inside shard_map
        manual = getattr(axis_context, "manual_axes", frozenset())
        if frozenset(mesh.axis_names) <= frozenset(manual):
            return 1
        return mesh.size
    return getattr(axis_context, "num_devices", None) or 1


def loop_of(params: dict[str, Any]) -> Loop:
    """JAX's parameters of a scan equation as our `Loop`."""
    if "ft_in" in params:  # JAX 0.11 and later
        consts, carry, _ = params["ft_in"].unpack()
        num_consts, num_carry = len(consts), len(carry)
    else:
        num_consts, num_carry = params["num_consts"], params["num_carry"]
    name, source = _name_and_source(params["jaxpr"].jaxpr.debug_info)
    return Loop(
        body=params["jaxpr"],
        num_consts=num_consts,
        num_carry=num_carry,
        length=params["length"],
        reverse=params["reverse"],
        unroll=params["unroll"],
        name=name,
        source=source,
    )


def _name_and_source(debug_info: Any) -> tuple[str, str]:
    found = re.fullmatch(r"(.*) at (.*:\d+)", debug_info.func_src_info or "")
    if found is None:
        return debug_info.func_src_info or "scan", "unknown"
    return found.group(1), found.group(2)
