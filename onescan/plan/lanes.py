"""Lanes: the axes along which a body's work is independent.

Every dimension of every value is a node; an equation joins the nodes that walk
together (the dimensions of an elementwise operation, the batch dimensions of a
product, a carry going in and coming out) and strikes those it mixes (what a
reduction, contraction, slice, sort or gather touches).  A joined set that was
never struck is a lane axis: position i along it depends on nothing but position
i along it, at every step, so each position can run through the whole loop by
itself.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

from jax.extend.core import Jaxpr

from onescan import compat
from onescan.loop import Equation, Loop, Variable
from onescan.plan.axes import Axes, Node, reshape_groups
from onescan.primitives import CUMULATIVE, ELEMENTWISE, IDENTITIES, REDUCTIONS


def lane_axes(loop: Loop) -> list[dict[Any, tuple[int, ...]]]:
    """The lane axes of a loop, each as the dimensions that lie along it.

    Axes of size 1 are left out, and those of values with no elements. A value may
    have two dimensions along one axis (an outer sum of a vector with itself, before
    its diagonal is taken); such an axis is no lane axis.
    """
    axes = Axes()
    jaxpr = loop.body.jaxpr
    _visit(jaxpr, axes)
    carry_in = jaxpr.invars[loop.num_consts : loop.num_consts + loop.num_carry]
    for before, after in zip(carry_in, jaxpr.outvars[: loop.num_carry], strict=True):
        axes.join_all(before, after)
    found: dict[Node, dict[Any, list[int]]] = defaultdict(lambda: defaultdict(list))
    for var, dim in list(axes.parent):
        root = axes.find((var, dim))
        if var.aval.shape[dim] > 1:
            found[root][var].append(dim)
    struck = {axes.find(node) for node in axes.struck}
    return [
        {var: tuple(dims) for var, dims in members.items()}
        for root, members in found.items()
        if root not in struck
        and all(len(dims) == 1 for dims in members.values())
        and any(0 not in var.aval.shape for var in members)
    ]


def _visit(jaxpr: Jaxpr, axes: Axes) -> None:
    for var in jaxpr.invars:
        _touch(var, axes)
    for eqn in jaxpr.eqns:
        for var in eqn.outvars:
            _touch(var, axes)
        name = eqn.primitive.name
        if name in ELEMENTWISE:
            _elementwise(eqn, axes)
        elif name in IDENTITIES:
            for x, y in zip(eqn.invars, eqn.outvars, strict=True):
                axes.join_all(x, y)
        elif name in REDUCTIONS:
            _reduction(eqn, axes)
        elif name in CUMULATIVE:
            _along(eqn, axes, {eqn.params["axis"]})
        elif name in RULES:
            RULES[name](eqn, axes)
        else:
            for var in [*eqn.invars, *eqn.outvars]:
                for i in range(len(var.aval.shape)):
                    axes.strike(var, i)


def _touch(var: Variable, axes: Axes) -> None:
    for i in range(len(var.aval.shape)):
        axes.find((var, i))


def _elementwise(eqn: Equation, axes: Axes) -> None:
    for out in eqn.outvars:
        for x in eqn.invars:
            if len(x.aval.shape) != len(out.aval.shape):
                continue
            for i, (n, m) in enumerate(zip(x.aval.shape, out.aval.shape, strict=True)):
                if n == m:
                    axes.join(x, i, out, i)


def _reduction(eqn: Equation, axes: Axes) -> None:
    (x,), (out,) = eqn.invars, eqn.outvars
    place = 0
    for i in range(len(x.aval.shape)):
        if i in eqn.params["axes"]:
            axes.strike(x, i)
        else:
            axes.join(x, i, out, place)
            place += 1


def _along(eqn: Equation, axes: Axes, mixed: set[int]) -> None:
    """Same shape in and out, with some dimensions mixed."""
    for x in eqn.invars:
        for out in eqn.outvars:
            axes.join_all(x, out)
            for i in mixed:
                axes.strike(out, i)


def _broadcast(eqn: Equation, axes: Axes) -> None:
    x, (out,) = eqn.invars[0], eqn.outvars
    for i, j in enumerate(eqn.params["broadcast_dimensions"]):
        if x.aval.shape[i] == out.aval.shape[j]:
            axes.join(x, i, out, j)


def _reshape(eqn: Equation, axes: Axes) -> None:
    x, (out,) = eqn.invars[0], eqn.outvars
    if eqn.params.get("dimensions") is not None or 0 in x.aval.shape:
        return _strike_all(eqn, axes)
    for left, right in reshape_groups(x.aval.shape, out.aval.shape):
        if len(left) == len(right) == 1:
            axes.join(x, left[0], out, right[0])
            continue
        for i in left:
            axes.strike(x, i)
        for j in right:
            axes.strike(out, j)
    return None


def _strike_all(eqn: Equation, axes: Axes) -> None:
    for var in [*eqn.invars, *eqn.outvars]:
        for i in range(len(var.aval.shape)):
            axes.strike(var, i)


def _transpose(eqn: Equation, axes: Axes) -> None:
    (x,), (out,) = eqn.invars, eqn.outvars
    for j, i in enumerate(eqn.params["permutation"]):
        axes.join(x, i, out, j)


def _squeeze(eqn: Equation, axes: Axes) -> None:
    (x,), (out,) = eqn.invars, eqn.outvars
    rank = len(x.aval.shape)
    gone = {d % rank for d in eqn.params["dimensions"]}
    for j, i in enumerate(i for i in range(rank) if i not in gone):
        axes.join(x, i, out, j)


def _expand_dims(eqn: Equation, axes: Axes) -> None:
    (x,), (out,) = eqn.invars, eqn.outvars
    rank = len(out.aval.shape)
    new = {d % rank for d in eqn.params["dimensions"]}
    for i, j in enumerate(j for j in range(rank) if j not in new):
        axes.join(x, i, out, j)


def _same_size(eqn: Equation, axes: Axes, operands: Sequence[Any]) -> None:
    """Dimensions taken whole walk together; those that change size are mixed."""
    (out,) = eqn.outvars
    for x in operands:
        for i, (n, m) in enumerate(zip(x.aval.shape, out.aval.shape, strict=True)):
            if n == m:
                axes.join(x, i, out, i)
            else:
                axes.strike(x, i)
                axes.strike(out, i)


def _slice(eqn: Equation, axes: Axes) -> None:
    _same_size(eqn, axes, eqn.invars[:1])


def _update(eqn: Equation, axes: Axes) -> None:
    _same_size(eqn, axes, eqn.invars[:2])


def _concatenate(eqn: Equation, axes: Axes) -> None:
    _same_size(eqn, axes, eqn.invars)
    axes.strike(eqn.outvars[0], eqn.params["dimension"])


def _pad(eqn: Equation, axes: Axes) -> None:
    x, (out,) = eqn.invars[0], eqn.outvars
    for i, config in enumerate(eqn.params["padding_config"]):
        if tuple(config) == (0, 0, 0):
            axes.join(x, i, out, i)
        else:
            axes.strike(x, i)
            axes.strike(out, i)


def _rev(eqn: Equation, axes: Axes) -> None:
    _along(eqn, axes, set(eqn.params["dimensions"]))


def _sort(eqn: Equation, axes: Axes) -> None:
    _along(eqn, axes, {eqn.params["dimension"]})


def _split(eqn: Equation, axes: Axes) -> None:
    (x,) = eqn.invars
    for out in eqn.outvars:
        axes.join_all(x, out)
        axes.strike(out, eqn.params["axis"])


def _unstack(eqn: Equation, axes: Axes) -> None:
    (x,) = eqn.invars
    gone = eqn.params["axis"] % len(x.aval.shape)
    axes.strike(x, gone)
    for out in eqn.outvars:
        for j in range(len(out.aval.shape)):
            axes.join(x, j + (j >= gone), out, j)


def _stack(eqn: Equation, axes: Axes) -> None:
    (out,) = eqn.outvars
    new = eqn.params["axis"] % len(out.aval.shape)
    axes.strike(out, new)
    for x in eqn.invars:
        for i in range(len(x.aval.shape)):
            axes.join(x, i, out, i + (i >= new))


def _dot_general(eqn: Equation, axes: Axes) -> None:
    (x, y), (out,) = eqn.invars, eqn.outvars
    (cx, cy), (bx, by) = eqn.params["dimension_numbers"]
    for d in cx:
        axes.strike(x, d)
    for d in cy:
        axes.strike(y, d)
    place = 0
    for i, j in zip(bx, by, strict=True):
        axes.join(x, i, out, place)
        axes.join(y, j, out, place)
        place += 1
    for v, used in ((x, {*cx, *bx}), (y, {*cy, *by})):
        for i in range(len(v.aval.shape)):
            if i not in used:
                axes.join(v, i, out, place)
                place += 1


def _gather(eqn: Equation, axes: Axes) -> None:
    (x, indices), (out,) = eqn.invars, eqn.outvars
    numbers, sizes = eqn.params["dimension_numbers"], eqn.params["slice_sizes"]
    batching = tuple(numbers.operand_batching_dims)
    hidden = {*numbers.collapsed_slice_dims, *batching}
    window = [i for i in range(len(x.aval.shape)) if i not in hidden]
    for i, j in zip(window, numbers.offset_dims, strict=True):
        if sizes[i] == x.aval.shape[i]:
            axes.join(x, i, out, j)
        else:
            axes.strike(x, i)
            axes.strike(out, j)
    for i in numbers.collapsed_slice_dims:
        axes.strike(x, i)
    rank = len(out.aval.shape)
    batch = [j for j in range(rank) if j not in numbers.offset_dims]
    for i, j in enumerate(batch):
        axes.join(indices, i, out, j)
    for i, k in zip(batching, numbers.start_indices_batching_dims, strict=True):
        axes.join(x, i, indices, k)
    axes.strike(indices, len(indices.aval.shape) - 1)


def _scatter(eqn: Equation, axes: Axes) -> None:
    (x, indices, updates), (out,) = eqn.invars, eqn.outvars
    numbers = eqn.params["dimension_numbers"]
    batching = tuple(numbers.operand_batching_dims)
    axes.join_all(x, out)
    hidden = {*numbers.inserted_window_dims, *batching}
    window = [i for i in range(len(x.aval.shape)) if i not in hidden]
    for i, j in zip(window, numbers.update_window_dims, strict=True):
        if updates.aval.shape[j] == x.aval.shape[i]:
            axes.join(x, i, updates, j)
        else:
            axes.strike(x, i)
            axes.strike(updates, j)
    for i in numbers.inserted_window_dims:
        axes.strike(x, i)
    rank = len(updates.aval.shape)
    batch = [j for j in range(rank) if j not in numbers.update_window_dims]
    matched = dict(zip(numbers.scatter_indices_batching_dims, batching, strict=True))
    for k, j in enumerate(batch):
        axes.join(indices, k, updates, j)
        if k in matched:
            axes.join(x, matched[k], indices, k)
        else:  # several updates may land on one element
            axes.strike(updates, j)
    axes.strike(indices, len(indices.aval.shape) - 1)


def _nothing(eqn: Equation, axes: Axes) -> None:
    """Dimensions that stand alone."""


def _scan(eqn: Equation, axes: Axes) -> None:
    inner = compat.loop_of(eqn.params)
    jaxpr: Any = inner.body.jaxpr
    _visit(jaxpr, axes)
    fixed = inner.num_consts + inner.num_carry
    for x, v in zip(eqn.invars[:fixed], jaxpr.invars[:fixed], strict=True):
        axes.join_all(v, x)
    for x, v in zip(eqn.invars[fixed:], jaxpr.invars[fixed:], strict=True):
        axes.strike(x, 0)
        for i in range(len(v.aval.shape)):
            axes.join(x, i + 1, v, i)
    carry = jaxpr.invars[inner.num_consts : fixed]
    for k, (v, out) in enumerate(zip(jaxpr.outvars, eqn.outvars, strict=True)):
        if k < inner.num_carry:
            axes.join_all(carry[k], v)
            axes.join_all(out, carry[k])
            continue
        axes.strike(out, 0)
        for i in range(len(v.aval.shape)):
            axes.join(v, i, out, i + 1)


def _while(eqn: Equation, axes: Axes) -> None:
    """The dimensions of a condition lead those of every carry, position by position.

    Each position stops when its own condition says so, and keeps its values from
    then on; that the loop goes on for others is not seen by it.
    """
    params = eqn.params
    cond, body = params["cond_jaxpr"].jaxpr, params["body_jaxpr"].jaxpr
    nc, nb = params["cond_nconsts"], params["body_nconsts"]
    _visit(cond, axes)
    _visit(body, axes)
    carry = eqn.invars[nc + nb :]
    for x, v in zip([*eqn.invars[:nc], *carry], cond.invars, strict=True):
        axes.join_all(v, x)
    for x, v in zip([*eqn.invars[nc : nc + nb], *carry], body.invars, strict=True):
        axes.join_all(v, x)
    (test,) = cond.outvars
    for v, w, out in zip(body.invars[nb:], body.outvars, eqn.outvars, strict=True):
        axes.join_all(v, w)
        axes.join_all(out, v)
        for i in range(len(test.aval.shape)):
            axes.join(test, i, v, i)


def _cond(eqn: Equation, axes: Axes) -> None:
    for branch in eqn.params["branches"]:
        _visit(branch.jaxpr, axes)
        for x, v in zip(eqn.invars[1:], branch.jaxpr.invars, strict=True):
            axes.join_all(v, x)
        for v, out in zip(branch.jaxpr.outvars, eqn.outvars, strict=True):
            axes.join_all(out, v)


RULES: dict[str, Callable[[Equation, Axes], None]] = {
    "broadcast_in_dim": _broadcast,
    "concatenate": _concatenate,
    "cond": _cond,
    "dot_general": _dot_general,
    "dynamic_slice": _slice,
    "dynamic_update_slice": _update,
    "empty": _nothing,
    "empty2": _nothing,
    "expand_dims": _expand_dims,
    "gather": _gather,
    "iota": _nothing,
    "iota_2x32_shape": _nothing,
    "pad": _pad,
    "reshape": _reshape,
    "rev": _rev,
    "scan": _scan,
    "scatter": _scatter,
    "scatter-add": _scatter,
    "scatter-max": _scatter,
    "scatter-min": _scatter,
    "scatter-mul": _scatter,
    "scatter-sub": _scatter,
    "slice": _slice,
    "sort": _sort,
    "split": _split,
    "squeeze": _squeeze,
    "stack": _stack,
    "tile": _slice,
    "transpose": _transpose,
    "unstack": _unstack,
    "while": _while,
}
