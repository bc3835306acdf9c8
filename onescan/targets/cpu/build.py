"""The kernel of a loop on a CPU: tiles one after the other."""

from __future__ import annotations

from llvmlite import ir

from onescan.emit import types as ty
from onescan.emit.math.features import allow
from onescan.plan.patience import looks
from onescan.plan.plan import Plan
from onescan.plan.profile import Profile
from onescan.targets.base import TooLarge
from onescan.targets.cpu.emitter import CpuEmitter, CpuTile
from onescan.targets.cpu.stencil import StencilEmitter, StencilTile

#: bytes of values that one tile may hold, wherever they lie
LARGEST = 1 << 26


def build(plan: Plan) -> tuple[ir.Module, Profile]:
    """The LLVM module of a planned loop, which defines `kernel`, and what it does."""
    module = ir.Module("onescan")
    allow(module, plan.features)
    operands, results = plan.buffers
    count = len(operands) + len(plan.tails) + len(results)
    void = ir.VoidType()
    patient = looks(plan)
    extra = [ty.I64] if patient else []
    kind = ir.FunctionType(void, [*[ty.PTR] * count, ty.I64, *extra])
    tile = ir.Function(module, kind, "tile")
    tile.linkage = "internal"
    tile.attributes.add("noinline")
    for argument in tile.args[:count]:
        argument.add_attribute("noalias")
    e = StencilEmitter(plan, tile) if plan.stencil else CpuEmitter(plan, tile)
    e.since = tile.args[-1] if patient else None
    (StencilTile(e) if plan.stencil else CpuTile(e)).emit()
    held = e.stack_bytes + e.heap_bytes - e.weight_bytes
    if held > LARGEST:
        raise TooLarge(
            f"one step holds {held >> 20} MiB of values, more than the engine keeps"
        )

    kernel = ir.Function(
        module, ir.FunctionType(void, [ty.PTR, ty.I64, ty.I64]), "kernel"
    )
    buffers, first, last = kernel.args
    entry = kernel.append_basic_block("entry")
    b = ir.IRBuilder(entry)
    pointers = [
        b.load(_element(b, buffers, ir.Constant(ty.I64, i)), typ=ty.PTR)
        for i in range(count)
    ]
    behind = _element(b, buffers, ir.Constant(ty.I64, count))
    since = [b.load(behind, typ=ty.I64)] if patient else []
    body, done = kernel.append_basic_block("body"), kernel.append_basic_block("done")
    b.cbranch(b.icmp_signed("<", first, last), body, done)
    b.position_at_end(body)
    number = b.phi(ty.I64)
    number.add_incoming(first, entry)
    b.call(tile, [*pointers, number, *since])
    following = b.add(number, ir.Constant(ty.I64, 1))
    number.add_incoming(following, body)
    b.cbranch(b.icmp_signed("<", following, last), body, done)
    b.position_at_end(done)
    b.ret_void()
    return module, Profile(
        runs=e.b.runs,
        elements=e.elements,
        tiles=plan.tiles,
        threads=plan.threads,
        held=held,
        heap=e.heap_bytes,
    )


def _element(b: ty.Builder, buffers: ty.Value, i: ty.Value) -> ty.Value:
    return b.gep(buffers, [i], source_etype=ty.PTR)
