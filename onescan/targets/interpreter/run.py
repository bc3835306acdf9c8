"""A plan, run: each tile of lanes goes through all steps by itself."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from math import prod
from typing import Any

import numpy as np
from jax.extend.core import Literal

from onescan.loop import Atom
from onescan.plan.plan import Lane, Plan
from onescan.targets.interpreter.operations import OPERATIONS, Local

#: for each lane, where the tile at hand begins
Bases = dict[Lane, int]


def run(plan: Plan, args: list[np.ndarray]) -> list[np.ndarray]:
    """The results of a loop: its last carry, and the ys of all steps."""
    loop, jaxpr = plan.loop, plan.loop.body.jaxpr
    fixed = loop.num_consts + loop.num_carry
    for i in range(fixed, len(jaxpr.invars)):
        args[i] = _x(plan, i, args[i])
    kinds = [*loop.carry_avals, *loop.y_avals]
    stacks = [()] * loop.num_carry + [(loop.length,)] * len(loop.y_avals)
    outs = [
        np.zeros((*stack, *aval.shape), aval.dtype)
        for stack, aval in zip(stacks, kinds, strict=True)
    ]
    carries = jaxpr.invars[loop.num_consts : fixed]
    for bases in _tiles(plan):
        given = [
            _part(plan, var, arg, bases)
            for var, arg in zip(jaxpr.invars[:fixed], args, strict=False)
        ]
        consts, carry = given[: loop.num_consts], given[loop.num_consts :]
        steps = range(loop.length)
        for t in reversed(steps) if loop.reverse else steps:
            xs = [
                _part(plan, var, arg[t], bases)
                for var, arg in zip(jaxpr.invars[fixed:], args[fixed:], strict=False)
            ]
            results = evaluate(plan, jaxpr, [*consts, *carry, *xs], bases)
            carry, ys = results[: loop.num_carry], results[loop.num_carry :]
            for var, out, y in zip(
                jaxpr.outvars[loop.num_carry :], outs[loop.num_carry :], ys, strict=True
            ):
                _put(plan, var, out[t, ...], y, bases)
        for var, out, last in zip(carries, outs, carry, strict=False):
            _put(plan, var, out, last, bases)
    return outs


def evaluate(plan: Plan, jaxpr: Any, args: list[Any], bases: Bases) -> list[Any]:
    """The results of a body, or of one inside it, on the parts of a tile."""
    known = dict(zip(jaxpr.invars, args, strict=True))
    read = lambda v: np.asarray(v.val) if isinstance(v, Literal) else known[v]
    inside = lambda body, values: evaluate(plan, body, values, bases)
    for eqn in jaxpr.eqns:
        local = Local(
            params=eqn.params,
            shapes=[plan.local_shape(v) for v in eqn.outvars],
            dtypes=[v.aval.dtype for v in eqn.outvars],
            whole=[tuple(v.aval.shape) for v in eqn.invars],
            starts=[_start(plan, v, bases) for v in eqn.outvars],
            inside=inside,
        )
        results = OPERATIONS[eqn.primitive.name](local, *map(read, eqn.invars))
        found = results if isinstance(results, list) else [results]
        for v, shape, value in zip(eqn.outvars, local.shapes, found, strict=True):
            value = np.asarray(value, v.aval.dtype)
            assert value.shape == shape, (eqn, value.shape, shape)
            known[v] = value
    return [read(v) for v in jaxpr.outvars]


def _x(plan: Plan, i: int, arg: np.ndarray) -> np.ndarray:
    """The steps of an x, which may be a part of a larger array or none at all."""
    if i in plan.counters:
        kind: Any = plan.loop.body.jaxpr.invars[i].aval
        return np.arange(plan.loop.length).astype(kind.dtype)
    start = plan.starts.get(i, 0)
    return arg[start : start + plan.loop.length]


def _tiles(plan: Plan) -> Iterator[Bases]:
    """Where each tile begins; one that would leave its axis is moved back."""
    starts = [
        [min(k, lane.size - lane.extent) for k in range(0, lane.size, lane.extent)]
        for lane in plan.lanes
    ]
    for begin in product(*starts):
        yield dict(zip(plan.lanes, begin, strict=True))


def _start(plan: Plan, var: Atom, bases: Bases) -> tuple[int, ...]:
    """Where the part of a tile begins along each dimension of a value."""
    lanes = plan.local_lanes(var)
    return tuple(0 if lane is None else bases[lane] for lane in lanes)


def _part(plan: Plan, var: Atom, array: np.ndarray, bases: Bases) -> np.ndarray:
    """What a tile has of an array."""
    flat, index = _view(plan, var, array, bases)
    return flat[index].reshape(plan.local_shape(var))


def _put(plan: Plan, var: Atom, out: np.ndarray, value: Any, bases: Bases) -> None:
    """Write what a tile has made of an array."""
    if isinstance(var, Literal):
        out[...] = value
        return
    flat, index = _view(plan, var, out, bases)
    assert np.shares_memory(flat, out) or not out.size
    flat[index] = np.asarray(value).reshape(flat[index].shape)


def _view(plan: Plan, var: Atom, array: np.ndarray, bases: Bases) -> tuple[Any, Any]:
    """An array with dimensions that are one lane axis as one, and where a tile is."""
    shape, index, held = [], [], 1
    for n, lane in zip(array.shape, plan.local_lanes(var), strict=True):
        if lane is not None and lane.size == 1:  # folded into the next
            held *= n
            continue
        shape.append(held * n)
        base = 0 if lane is None else bases[lane]
        size = held * n if lane is None else lane.extent
        index.append(slice(base, base + size))
        held = 1
    assert prod(shape) == array.size
    return array.reshape(shape), tuple(index)
