"""The program being lowered: where it runs, and what can be put into it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from jax._src import callback as _callback
from jax._src import debugging as _debugging
from jax.interpreters import mlir
from jaxlib.mlir import ir


def undo_point(ctx: Any) -> Callable[[], None]:
    """A function that takes the program under construction back to what it is now.

    What was built of a rule that failed may be half a function, which no compiler
    accepts, and JAX's caches may point to it.
    """
    module = ctx.module_context
    caches = module.lowering_cache, module.cached_primitive_lowerings
    before = [dict(cache) for cache in caches]
    point: Any = ir.InsertionPoint.current
    block = point.block
    here, functions = len(block.operations), len(module.module.body.operations)

    def undo() -> None:
        for op in reversed(list(block.operations)[here:]):
            op.operation.erase()
        for op in list(module.module.body.operations)[functions:]:
            module.symbol_table.erase(op)
        for cache, kept in zip(caches, before, strict=True):
            cache.clear()
            cache.update(kept)

    return undo


def keep_alive(ctx: Any, value: Any) -> None:
    """Keep a value as long as the program being lowered may be compiled."""
    ctx.module_context.add_keepalive(value)


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


def with_fresh_caches(ctx: Any) -> Any:
    """The same context, in which nothing that was lowered before is reused."""
    fresh: dict[str, Any] = {"lowering_cache": {}, "cached_primitive_lowerings": {}}
    return ctx.replace(module_context=ctx.module_context.replace(**fresh))


#: the effect of what is done once wherever a program does it, in every transformation
DEBUG_EFFECT: Any = _debugging.debug_effect


def emit_host_call(ctx: Any, function: Callable[..., Any], args: Any) -> Sequence[Any]:
    """A call of Python, with arrays as arguments and results, in a lowered program."""
    around = ctx.module_context.axis_context
    sharding = _callback._callback_op_sharding(around, None, ctx.avals_out)
    results, _, _ = mlir.emit_python_callback(
        ctx,
        function,
        None,
        list(args),
        ctx.avals_in,
        ctx.avals_out,
        has_side_effect=True,
        returns_token=False,
        sharding=sharding,
    )
    return results
