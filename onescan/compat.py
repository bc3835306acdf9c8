"""Everything that depends on the JAX version or on JAX's private modules.

No other file imports `jax._src` or asks which JAX this is.
"""

from __future__ import annotations

import importlib
import linecache
import re
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jaxlib
import numpy as np
from jax._src import callback as _callback
from jax._src import config as _config
from jax._src import core as _core
from jax._src import debugging as _debugging
from jax._src import source_info_util, traceback_util
from jax._src.interpreters import batching as _batching
from jax._src.interpreters import mlir as _mlir
from jax._src.lax import lax as _lax
from jax._src.random import prng as _prng
from jax.experimental.xla_metadata import set_xla_metadata
from jax.extend.core import ClosedJaxpr, Jaxpr, Var
from jax.extend.core.primitives import scan_p, while_p
from jax.interpreters import mlir
from jaxlib.mlir import ir

from onescan.loop import Loop
from onescan.version import VERSION

flattree: Any
try:  # JAX 0.11 and later
    flattree = importlib.import_module("jax._src.flattree")
except ImportError:
    flattree = None

MARK = "onescan"
INNER = "inner"
SETTING = "onescan_"  # and the name of the setting: of a region in a traced function
LEFT = "left"

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


def hide_frames(folder: Path) -> None:
    """Leave our own frames out of tracebacks and source positions."""
    source_info_util.register_exclusion(str(folder))
    traceback_util.register_exclusion(str(folder))


def marked(init: Any = (), xs: Any = (), *, inner: bool = False) -> Any:
    """A context in which every scan is marked as ours, or as part of one of ours.

    Where `jax.vmap` has its batch in front of all xs, and so in front of time, the mark
    of a loop says how many dimensions its carry and its xs have without it.
    """
    if inner:
        return set_xla_metadata(**{MARK: INNER})
    inits, stacks = jax.tree.leaves(init), jax.tree.leaves(xs)
    deciding = [x for x in stacks if _batches(x)] or inits
    batches = [dim for x in deciding for dim in _batches(x)]
    ranks = [*map(np.ndim, inits), *(np.ndim(x) - 1 for x in stacks)]
    known = ranks if batches and not any(batches) else []
    return set_xla_metadata(**{MARK: ",".join(map(str, [1, *known]))})


def _batches(x: Any) -> list[Any]:
    """The dimensions of the batches that `jax.vmap` holds of a value, innermost first.

    None are told of numbers that are there already: outside of `jit`, what `jax.vmap`
    moves is moved before the loop is a program.
    """
    found = []
    while isinstance(x, _batching.BatchTracer):
        found += [x.batch_dim] if x.batch_dim is not None else []
        x = x.val
    return found if isinstance(x, _core.Tracer) else []


def unmarked() -> Any:
    """A context that takes the mark away again, for the body of a loop."""
    return set_xla_metadata(**{MARK: None})


def left() -> Any:
    """A context in which every scan is left to XLA: those around loops of ours."""
    return set_xla_metadata(**{MARK: LEFT})


def mark_of(ctx: Any) -> str | None:
    """The mark of the scan being lowered, if it is one of ours."""
    return _metadata(ctx).get(MARK)


def traced_in_region(settings: dict[str, str]) -> AbstractContextManager[Any]:
    """A context in which every scan is marked with settings, inside a trace.

    Outside of one nothing is marked: what is traced later is another region's.
    """
    if _core.trace_state_clean():
        return nullcontext()
    return set_xla_metadata(**{SETTING + name: text for name, text in settings.items()})


def region_of(ctx: Any) -> dict[str, str]:
    """The settings that the scan being lowered is marked with."""
    found = _metadata(ctx).items()
    return {k.removeprefix(SETTING): v for k, v in found if k.startswith(SETTING)}


def is_kept_from_us(eqn: Any) -> bool:
    """Whether an equation is a loop that was traced in a region of stock JAX's."""
    metadata = getattr(eqn.ctx, "xla_metadata", None) or {}
    is_loop = eqn.primitive in (scan_p, while_p)
    return is_loop and metadata.get(SETTING + "engine") == "xla"


def _metadata(ctx: Any) -> dict[str, Any]:
    return getattr(ctx.jaxpr_eqn_ctx, "xla_metadata", None) or {}


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


def added_axes(mark: str | None, params: dict[str, Any]) -> int:
    """How many axes `jax.vmap` put in front of a loop's values, and in front of time.

    0 where that is not known, and in loops that are not just batches of the marked one,
    such as gradients: JAX keeps the names of the arguments in batches only.
    """
    if mark in (None, INNER) or params["jaxpr"].jaxpr.debug_info.arg_names is None:
        return 0
    loop, before = loop_of(params), [int(rank) for rank in mark.split(",")[1:]]
    now = [len(aval.shape) for aval in (*loop.carry_avals, *loop.x_avals)]
    if len(before) != len(now):
        return 0
    return max([0, *(n - b for n, b in zip(now, before, strict=True))])


def jit_disabled() -> bool:
    """Whether `jax.disable_jit` is in force here."""
    return bool(_config.disable_jit.value)


def versions() -> tuple[str, ...]:
    """Of what compiles and runs a program."""
    return jax.__version__, jaxlib.__version__, VERSION


def x64_enabled() -> bool:
    """Whether 64-bit types are in force here."""
    return bool(_config.enable_x64.value)


def weak(array: jax.Array) -> Any:
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


def with_fresh_caches(ctx: Any) -> Any:
    """The same context, in which nothing that was lowered before is reused."""
    fresh: dict[str, Any] = {"lowering_cache": {}, "cached_primitive_lowerings": {}}
    return ctx.replace(module_context=ctx.module_context.replace(**fresh))


def bind(eqn: Any, values: Sequence[Any]) -> Sequence[Any]:
    """Apply one equation to values."""
    params = eqn.primitive.get_bind_params(eqn.params)
    with eqn.ctx.manager:
        out = eqn.primitive.bind(*values, **params)
    return out if eqn.primitive.multiple_results else [out]


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
        differentiated=params["jaxpr"].jaxpr.debug_info.arg_names is None,
    )


def while_loop_of(params: dict[str, Any]) -> Loop:
    """JAX's parameters of a while equation as a `Loop` of one step that holds it."""
    cond, body = params["cond_jaxpr"], params["body_jaxpr"]
    nc, nb = params["cond_nconsts"], params["body_nconsts"]
    types = [*cond.in_avals[:nc], *body.in_avals]
    invars, outvars = list(map(Var, types)), list(map(Var, body.out_avals))
    effects = {*cond.effects, *body.effects}
    eqn = _core.new_jaxpr_eqn(invars, outvars, while_p, params, set())
    info = body.jaxpr.debug_info._replace(arg_names=None, result_paths=None)
    whole = Jaxpr([], invars, outvars, [eqn], effects, debug_info=info)
    name, source = _name_and_source(body.jaxpr.debug_info)
    return Loop(
        body=ClosedJaxpr(whole, []),
        num_consts=nc + nb,
        num_carry=len(body.out_avals),
        length=1,
        reverse=False,
        unroll=1,
        name=name,
        source=source,
        is_while=True,
    )


def _name_and_source(debug_info: Any) -> tuple[str, str]:
    found = re.fullmatch(r"(.*) at (.*:\d+)", debug_info.func_src_info or "")
    if found is None:
        return debug_info.func_src_info or "scan", "unknown"
    return found.group(1), found.group(2)


def argument_names(loop: Loop) -> list[str] | None:
    """What the user calls the arguments of a body, "carry[0]"; None if not known."""
    names = loop.body.jaxpr.debug_info.arg_names
    if names is None or len(names) != len(loop.body.in_avals):
        return None
    return [name or f"argument {i}" for i, name in enumerate(names)]


def keys_as_bits(eqn: Any) -> Callable[..., Any] | None:
    """A random-key primitive as a function of raw uint32 key data, if it is one."""
    name, params = eqn.primitive.name, eqn.params
    if name == "random_seed":
        return lambda seeds: _prng.random_seed_impl_base(seeds, impl=params["impl"])
    if name not in ("random_split", "random_fold_in", "random_bits"):
        return None
    aval = eqn.invars[0].aval
    impl = aval.dtype._impl
    if name == "random_split":
        split = _prng.random_split_impl_base
        return lambda keys: split(impl, keys, aval.ndim, shape=params["shape"])
    if name == "random_fold_in":
        fold_in = _prng.random_fold_in_impl_base
        return lambda keys, data: fold_in(impl, keys, data, aval.shape)
    bits = _prng.random_bits_impl_base
    return lambda keys: bits(impl, keys, aval.ndim, **params)


def physical(aval: Any) -> Any:
    """The type a value has in memory: keys are arrays of uint32."""
    return _core.physical_aval(aval)


def stacked(aval: Any, length: int) -> Any:
    """The type of `length` values of this type, with time as first dimension."""
    return _core.unmapped_aval(length, 0, aval)


def array_type(shape: Sequence[int], dtype: Any) -> Any:
    """The type of an array."""
    return _core.ShapedArray(tuple(shape), dtype)


def scalar_aval(dtype: Any) -> Any:
    """The type of one number."""
    return _core.ShapedArray((), dtype)


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


def source_of(eqn: Any) -> str:
    """The user's line that made an equation: "model.py:57"."""
    frame = source_info_util.user_frame(eqn.source_info.traceback)
    if frame is None:
        return "an unknown line"
    return f"{Path(frame.file_name).name}:{frame.start_line}"


def scope_of(eqn: Any) -> str:
    """The `jax.named_scope`s that an equation was traced in."""
    return str(eqn.source_info.name_stack)


class Position(NamedTuple):
    """A place in a Python file that an equation was traced at."""

    file: str
    function: str
    line: int


def positions_of(eqn: Any) -> list[Position]:
    """The user's lines that led to an equation, innermost first."""
    frames = source_info_util.user_frames(eqn.source_info.traceback)
    return [Position(f.file_name, f.function_name, f.start_line) for f in frames]


def placed(eqn: Any, call: Any) -> Any:
    """An equation, with the line of the call it came by if it has none of its own."""
    if source_info_util.user_frame(eqn.source_info.traceback) is not None:
        return eqn
    return eqn.replace(source_info=call.source_info)


def expression_of(eqn: Any) -> str:
    """The user's expression that made an equation: "x @ W, rnn.py:31"."""
    frame = source_info_util.user_frame(eqn.source_info.traceback)
    where = source_of(eqn)
    if frame is None or frame.start_line != frame.end_line:
        return where
    line = linecache.getline(frame.file_name, frame.start_line)
    text = line[frame.start_column : frame.end_column]
    return f"{text}, {where}" if text else where


def scan_params(loop: Loop) -> dict[str, Any]:
    """Our `Loop` as JAX's parameters of a scan equation."""
    params: dict[str, Any] = {
        "jaxpr": loop.body,
        "length": loop.length,
        "reverse": loop.reverse,
        "unroll": loop.unroll,
    }
    if flattree is None:
        return params | {"num_consts": loop.num_consts, "num_carry": loop.num_carry}
    nones, pack = flattree.nones, flattree.pack
    carry = nones(loop.num_carry)
    ft_in = pack((nones(loop.num_consts), carry, nones(len(loop.x_avals))))
    ft_out = pack((carry, nones(len(loop.y_avals))))
    return params | {"ft_in": ft_in, "ft_out": ft_out}


def scan_of(loop: Loop, values: Sequence[Any]) -> Sequence[Any]:
    """The results of a loop, called with its constants, carries and xs."""
    return scan_p.bind(*values, **scan_params(loop))


#: the custom call by which JAX launches a kernel that is given as PTX
GPU_TARGET = "triton_kernel_call_ffi"


def gpu_kernel_call(
    name: str,
    code: str,
    capability: int,
    *,
    blocks: int,
    warps: int,
    team: int,
    shared: int,
    buffers: int,
) -> bytes:
    """The launch of a kernel, as JAX's launcher wants it described."""
    launcher = importlib.import_module("jaxlib.gpu_triton")
    kernel = launcher.TritonKernel(name, warps, team, shared, code, "", capability)
    parameters = [launcher.create_array_parameter(0, 0)] * buffers
    call = launcher.TritonKernelCall(kernel, blocks, 1, 1, parameters)
    return call.to_proto(name, b"")


def strings(**values: str | bytes) -> dict[str, Any]:
    """Attributes of a custom call."""
    return {name: ir.StringAttr.get(value) for name, value in values.items()}


def gpu() -> tuple[int, int]:
    """The compute capability (90 for 9.0) and the multiprocessors of the GPU here."""
    device: Any = jax.local_devices(backend="cuda")[0]
    return int(str(device.compute_capability).replace(".", "")), device.core_count
