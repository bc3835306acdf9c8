"""The kernel of a loop: tiles, the time loop, and what goes in and out.

    for each tile of lanes:
        carry = init
        for each step:
            carry, ys[t] = body(consts, carry, xs[t])
        result = carry

The time loop runs inside the tile, so the carry stays in registers or in the
first cache.  A carry too large for the stack lives in its result buffer.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir

from onescan.emit import types as ty
from onescan.emit.arrays import Array, Index, Memory, add, scale
from onescan.emit.control import emit_body, renew
from onescan.emit.emitter import Emitter
from onescan.plan.plan import Plan

#: a carry of more bytes than this (in one tile) stays in its result buffer
RESIDENT = 1 << 16


def build(plan: Plan) -> ir.Module:
    """The LLVM module of a planned loop; it defines `kernel`."""
    module = ir.Module("onescan")
    loop = plan.loop
    count = len(loop.body.in_avals) + len(loop.body.out_avals)
    void = ir.VoidType()
    kind = ir.FunctionType(void, [*[ty.PTR] * count, ty.I64])
    tile = ir.Function(module, kind, "tile")
    tile.linkage = "internal"
    tile.attributes.add("noinline")
    for argument in tile.args[:-1]:
        argument.add_attribute("noalias")
    _emit_tile(plan, tile)

    kernel = ir.Function(
        module, ir.FunctionType(void, [ty.PTR, ty.I64, ty.I64]), "kernel"
    )
    buffers, first, last = kernel.args
    entry = kernel.append_basic_block("entry")
    b = ir.IRBuilder(entry)
    pointers = [
        b.load(b.gep(buffers, [ir.Constant(ty.I64, i)], source_etype=ty.PTR), typ=ty.PTR)
        for i in range(count)
    ]
    body, done = kernel.append_basic_block("body"), kernel.append_basic_block("done")
    b.cbranch(b.icmp_signed("<", first, last), body, done)
    b.position_at_end(body)
    number = b.phi(ty.I64)
    number.add_incoming(first, entry)
    b.call(tile, [*pointers, number])
    following = b.add(number, ir.Constant(ty.I64, 1))
    number.add_incoming(following, body)
    b.cbranch(b.icmp_signed("<", following, last), body, done)
    b.position_at_end(done)
    b.ret_void()
    return module


def _emit_tile(plan: Plan, function: ir.Function) -> None:
    e = Emitter(plan, function)
    loop, jaxpr = plan.loop, plan.loop.body.jaxpr
    *pointers, tile = function.args
    e.bases = _bases(e, tile)
    num_in = len(jaxpr.invars)
    fixed = loop.num_consts + loop.num_carry
    # the variable that says how each buffer lies along the lanes
    results = [*jaxpr.invars[loop.num_consts : fixed], *jaxpr.outvars[loop.num_carry :]]
    variables = [*jaxpr.invars, *results]
    stacked = [fixed <= i < num_in or i >= num_in + loop.num_carry for i in range(len(pointers))]
    memories = [
        _buffer(e, pointer, var, is_stacked, layout)
        for pointer, var, is_stacked, layout in zip(
            pointers, variables, stacked, plan.layouts, strict=True
        )
    ]
    whole = [
        e.stored(m, plan.local_shape(v), plan.local_lanes(v)) if not s else None
        for m, v, s in zip(memories, variables, stacked, strict=True)
    ]
    consts = whole[: loop.num_consts]
    finals = whole[num_in : num_in + loop.num_carry]
    cells = []
    for init, final in zip(whole[loop.num_consts : fixed], finals, strict=True):
        assert init is not None and final is not None
        cell = final if _is_resident(plan, init) else _cell(e, init)
        e.put(cell, init)
        cells.append(cell)

    with e.loop(loop.length, unroll=1) as step:
        t: ir.Value = step
        if loop.reverse:
            t = e.b.sub(ir.Constant(ty.I64, loop.length - 1), step)
        xs = [
            _slice(e, memory, var, t)
            for memory, var in zip(
                memories[fixed:num_in], jaxpr.invars[fixed:], strict=True
            )
        ]
        owned = {cell.memory for cell in cells}
        outs = emit_body(e, jaxpr, [*consts, *cells, *xs], owned)
        for memory, var, value in zip(
            memories[num_in + loop.num_carry :],
            jaxpr.outvars[loop.num_carry :],
            outs[loop.num_carry :],
            strict=True,
        ):
            with e.one_writer(value.lanes):
                e.put(_slice(e, memory, var, t), value)
        renew(e, cells, outs[: loop.num_carry])

    for cell, final in zip(cells, finals, strict=True):
        if cell is not final:
            with e.one_writer(cell.lanes):
                e.put(final, cell)
    e.b.ret_void()
    e.entry.branch(e.function.blocks[1])


def _is_resident(plan: Plan, carry: Array) -> bool:
    """Whether a carry lives in its result buffer, which no other tile writes."""
    size = int(np.prod(carry.shape)) * carry.dtype.itemsize
    mine = all(
        lane in carry.lanes and lane.size % lane.extent == 0
        for lane in plan.lanes
        if lane.tiles > 1
    )
    return size > RESIDENT and mine


def _cell(e: Emitter, like: Array) -> Array:
    memory = e.scratch(like.shape, like.lanes, like.dtype)
    return e.stored(memory, like.shape, like.lanes)


def _bases(e: Emitter, tile: ir.Value) -> dict[Any, ir.Value]:
    """Where this tile begins along each lane axis."""
    b, bases = e.b, {}
    for lane in reversed(e.plan.lanes):
        count = ir.Constant(ty.I64, lane.tiles)
        number = b.urem(tile, count) if lane.tiles > 1 else ir.Constant(ty.I64, 0)
        tile = b.udiv(tile, count) if lane.tiles > 1 else tile
        base = b.mul(number, ir.Constant(ty.I64, lane.extent))
        if lane.size % lane.extent:
            last = ir.Constant(ty.I64, lane.size - lane.extent)
            base = b.select(b.icmp_signed(">", base, last), last, base)
        bases[lane] = base
    return bases


def _buffer(
    e: Emitter, pointer: ir.Value, var: Any, stacked: bool, layout: tuple[int, ...]
) -> Memory:
    """An operand or result buffer, seen from this tile."""
    shape = tuple(var.aval.shape)
    lanes = e.plan.local_lanes(var)
    if stacked:
        shape, lanes = (e.plan.loop.length, *shape), (None, *lanes)
    strides, size = [0] * len(shape), 1
    for i in reversed(layout):
        strides[i] = size
        size *= shape[i]
    offset: Index = 0
    for lane, stride in zip(lanes, strides, strict=True):
        if lane is not None:
            offset = add(e.b, offset, scale(e.b, e.bases[lane], stride))
    assert not isinstance(offset, tuple)
    return Memory(pointer, np.dtype(var.aval.dtype), tuple(strides), offset)  # type: ignore[arg-type]


def _slice(e: Emitter, memory: Memory, var: Any, t: ir.Value) -> Array:
    """The part of a stacked buffer that belongs to step t."""
    first, *rest = memory.strides
    offset = add(e.b, memory.offset, scale(e.b, t, first))
    here = Memory(memory.pointer, memory.dtype, tuple(rest), offset)  # type: ignore[arg-type]
    plan = e.plan
    return e.stored(here, plan.local_shape(var), plan.local_lanes(var))
