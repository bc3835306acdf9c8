"""The kernel of a loop on a GPU: the same tiles as on a CPU, launched as a grid.

A tile belongs to one thread, or to all threads of a block together.
"""

from __future__ import annotations

from functools import partial
from math import prod
from typing import Any

import numpy as np
from jax.extend.core import Var
from llvmlite import ir

from onescan.emit import types as ty
from onescan.emit.builder import Asked
from onescan.emit.math.features import GPU, allow
from onescan.emit.math.nvvm import BLOCK, TID, given
from onescan.emit.random import threefry2x32
from onescan.plan.plan import Plan
from onescan.plan.profile import Profile
from onescan.plan.work import equations
from onescan.targets.base import TooLarge
from onescan.targets.nvidia import hash_chain
from onescan.targets.nvidia.barriers import WARP
from onescan.targets.nvidia.block_emitter import BlockEmitter
from onescan.targets.nvidia.block_tile import BlockTile
from onescan.targets.nvidia.emitter import GpuEmitter
from onescan.targets.nvidia.rows import RowsEmitter, RowsTile
from onescan.targets.nvidia.thread_tile import ThreadTile

#: instructions to round one 16-bit float
HALVES = 20
#: bytes of values that one thread may hold
LARGEST = 4096
#: numbers that one hash gives
WORDS = 2


class ThreadEmitter(GpuEmitter):
    """Code of one thread.  What a loop indexes lies in slow memory: unroll."""

    builder = Asked
    unroll, unrolled_operations, unrolled_in_all = 128, 1024, 8000
    unrolled_inside = 4096
    renews_in_place = False  # registers, mostly, where a copy costs nothing
    unrolls_whiles = True

    def __init__(self, plan: Plan, function: ir.Function) -> None:
        super().__init__(plan, function)
        self.dear = HALVES if _has_halves(plan.loop.body.jaxpr) else 1
        # blocks are larger where lanes are enough for more than one warp of each
        few = plan.grid is not None and plan.grid.threads == WARP
        if few and _made(plan) <= WORDS:  # one chain, and nothing else to do
            self.rules = {
                **self.rules,
                "threefry2x32": partial(threefry2x32, hashes=hash_chain.hashed),
            }


def _made(plan: Plan) -> int:
    """Numbers that a step of a lane makes for the next one, or to leave behind."""
    jaxpr = plan.loop.body.jaxpr
    given = set(jaxpr.invars)
    made = [v for v in jaxpr.outvars if isinstance(v, Var) and v not in given]
    return sum(prod(plan.local_shape(v)) for v in made)


def _has_halves(jaxpr: Any) -> bool:
    """Whether a body works on 16-bit floats, which take many instructions to round."""
    made = [v for eqn in equations(jaxpr) for v in eqn.outvars]
    values = [*jaxpr.invars, *made]
    return any(np.dtype(v.aval.dtype) in ty.HALVES for v in values)


def build(plan: Plan, shared: int) -> tuple[ir.Module, int, Profile]:
    """The LLVM module of a loop planned for a GPU, which defines `kernel`.

    A block may use `shared` bytes of its own memory; how many it does use is
    given back, and what one of its threads does.
    """
    assert plan.grid is not None
    module = ir.Module("onescan")
    allow(module, [GPU])
    body = plan.loop.body
    buffers = [ty.PTR] * (len(body.in_avals) + len(body.out_avals))
    void = ir.VoidType()
    tile = ir.Function(module, ir.FunctionType(void, [*buffers, ty.I64]), "tile")
    tile.linkage = "internal"
    tile.attributes.add("alwaysinline")
    kernel = ir.Function(module, ir.FunctionType(void, buffers), "kernel")
    kernel.calling_convention = "ptx_kernel"
    for argument in [*tile.args[:-1], *kernel.args]:
        argument.add_attribute("noalias")
    if plan.grid.together:
        used, profile = _together(plan, tile, shared)
    else:
        used, profile = 0, _alone(plan, tile)
    _launched(kernel, tile, plan)
    limit = ir.Constant(ty.I32, plan.grid.threads)
    module.add_named_metadata("nvvm.annotations", [kernel, "maxntidx", limit])
    return module, used, profile


def _alone(plan: Plan, tile: ir.Function) -> Profile:
    """Each thread has a tile."""
    e = ThreadEmitter(plan, tile)
    ThreadTile(e).emit()
    if e.stack_bytes > LARGEST:
        raise TooLarge(
            f"one step holds {e.stack_bytes // 1024} KiB of values for each lane, more "
            "than the threads of a GPU can keep"
        )
    return Profile(e.b.runs, e.elements, plan.tiles)


def _together(plan: Plan, tile: ir.Function, shared: int) -> tuple[int, Profile]:
    """Each block has a tile."""
    if plan.rows:
        e = RowsEmitter(plan, tile)
        RowsTile(e).emit()
    else:
        e = BlockEmitter(plan, tile)
        BlockTile(e).emit()
    if e.shared_bytes > shared or e.stack_bytes > LARGEST:
        raise TooLarge(
            f"one step holds {e.shared_bytes // 1024} KiB of values, more than the "
            f"{shared // 1024} KiB that a block of GPU threads can keep"
        )
    return e.shared_bytes, Profile(e.b.runs, e.elements, plan.tiles)


def _launched(kernel: ir.Function, tile: ir.Function, plan: Plan) -> None:
    """The kernel: each thread (or block) does the tile of its number."""
    grid, tiles = plan.grid, plan.tiles
    assert grid is not None
    b = ir.IRBuilder(kernel.append_basic_block("entry"))
    number = given(b, BLOCK)
    if not grid.together:
        first = b.mul(number, ir.Constant(ty.I32, grid.threads))
        number = b.add(first, given(b, TID))
    if grid.team > 1 and plan.parallel is None:
        number = b.udiv(number, ir.Constant(ty.I32, grid.team))
    number = b.zext(number, ty.I64)
    work, done = kernel.append_basic_block("work"), kernel.append_basic_block("done")
    b.cbranch(b.icmp_unsigned("<", number, ir.Constant(ty.I64, tiles)), work, done)
    b.position_at_end(work)
    b.call(tile, [*kernel.args, number])
    b.branch(done)
    b.position_at_end(done)
    b.ret_void()
