"""Equations of a body, evaluated outside of it: once, or for all steps at once.

A value of the body is *fixed* when it is computed from constants alone, *free*
when it needs this step's x too, and *bound* when it needs the carry, or when one
step at a time is less work than all together (`is_movable`).  Free values of all
steps can be computed together; so can whatever is computed from bound
values, once the loop has left those of all steps behind.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import inf, prod
from typing import Any, Literal

import jax
import jax.numpy as jnp
from jax import lax
from jax.extend.core import JaxprEqn, Var
from jax.extend.core import Literal as Constant

from onescan import compat
from onescan.loop import Atom, Aval, Loop
from onescan.passes.products import product
from onescan.passes.split import Parts, Values, slice_of, variables
from onescan.passes.windows import is_small
from onescan.passes.worth import (
    PER_RESULT,
    Draws,
    is_heavy,
    is_movable,
    operations,
)
from onescan.primitives import record_of

#: dimensions of what is convolved along one: a batch, features and rows
ROWS_RANK = 3
#: steps of a loop that does the work of all steps of another
ROWS = 4

Kind = Literal["fixed", "free", "bound"]
KINDS: tuple[Kind, ...] = ("fixed", "free", "bound")  # by what they may need


def kinds_of(parts: Parts) -> dict[Var, Kind]:
    """What every value of a body depends on."""
    kinds: dict[Var, Kind] = dict.fromkeys(parts.consts, "fixed")
    kinds.update(dict.fromkeys(parts.carry, "bound"))
    kinds.update(dict.fromkeys(parts.xs, "free"))
    for eqn in parts.eqns:
        needs = (KINDS.index(kinds[v]) for v in variables(eqn.invars))
        kind = KINDS[max(needs, default=0)]
        if kind == "free" and not is_movable(eqn):
            kind = "bound"
        kinds.update(dict.fromkeys(eqn.outvars, kind))
    return kinds


def leaves(
    eqn: JaxprEqn,
    kinds: Mapping[Var, Kind],
    draws: Draws,
    least: float | None = None,
    largest: float = inf,
) -> bool:
    """Whether an equation does better for all steps at once than in the loop.

    A product on a CPU, whose kernels leave few draws to others, only if all steps share
    an operand, since one product is then made of them, and if it saves at least so many
    operations for each element of its result (`PER_RESULT`).  Others become a batch of
    products, those that are no larger than `largest`.  Convolutions of rows and small
    ones stay: XLA took 20 times as long on a CPU for all steps as for one by one.
    """
    if (draws == "few" or largest < inf) and _is_of_rows(eqn):
        return False
    if record_of(eqn).kind != "product" or (draws != "few" and largest == inf):
        return is_heavy(eqn)
    given = variables(eqn.invars)
    shared = len(given) < len(eqn.invars) or any(kinds[v] == "fixed" for v in given)
    if draws == "few":
        return shared and is_heavy(eqn, PER_RESULT if least is None else least)
    return is_heavy(eqn) and (shared or operations(eqn) < largest)


def _is_of_rows(eqn: JaxprEqn) -> bool:
    """Whether an equation is a convolution of rows, or one that is written out."""
    if eqn.primitive.name != "conv_general_dilated":
        return False
    operand: Any = eqn.invars[0]
    return operand.aval.ndim <= ROWS_RANK or is_small(eqn)


def evaluate(
    eqns: Sequence[JaxprEqn], env: Mapping[Var, Any], wanted: Sequence[Any]
) -> list[Any]:
    """The wanted values, by the equations among `eqns` that lead to them."""
    env = dict(env)

    def read(atom: Any) -> Any:
        return atom.val if isinstance(atom, Constant) else env[atom]

    for eqn in slice_of(eqns, wanted, env):
        values = compat.bind(eqn, [read(v) for v in eqn.invars])
        env.update(zip(eqn.outvars, values, strict=True))
    return [read(v) for v in wanted]


def over_time(
    eqns: Sequence[JaxprEqn],
    fixed: Mapping[Var, Any],
    stacked: Mapping[Var, Any],
    wanted: Sequence[Any],
    length: int,
) -> list[Any]:
    """The wanted values of all steps, stacked.

    `jax.vmap` of each equation is the meaning.
    """
    env: dict[Var, Any] = {**fixed, **stacked}
    rows = set(stacked)  # what has time as its first dimension

    def read(atom: Any) -> Any:
        return atom.val if isinstance(atom, Constant) else env[atom]

    def axis_of(atom: Atom) -> int | None:
        return 0 if isinstance(atom, Var) and atom in rows else None

    for eqn in slice_of(eqns, wanted, env):
        axes = tuple(map(axis_of, eqn.invars))
        values = [read(v) for v in eqn.invars]
        if 0 not in axes:
            results = compat.bind(eqn, values)
        elif _is_row_product(eqn, axes):
            results = [_row_product(eqn, *values)]
        else:
            bind = partial(_bound, eqn)
            results = jax.vmap(bind, axes, axis_size=length)(*values)
        env.update(zip(eqn.outvars, results, strict=True))
        if 0 in axes:
            rows.update(eqn.outvars)
    return [_every_step(read(v), v.aval, axis_of(v), length) for v in wanted]


def computed_after(
    loop: Loop, parts: Parts, left: Sequence[Any], goes: Sequence[bool]
) -> Callable[[Values, Values], Values]:
    """The `after` of a pass whose loop stacks `left`, and not the ys that `goes` marks.

    Those are computed from what is stacked, for all steps at once.
    """
    wanted = [y for y, gone in zip(parts.ys, goes, strict=True) if gone]

    def after(args: Values, results: Values) -> Values:
        consts, _, xs = parts.split(args)
        finals, stacks = results[: loop.num_carry], results[loop.num_carry :]
        fixed = dict(zip(parts.consts, consts, strict=True))
        stacked = dict(zip(parts.xs, xs, strict=True))
        by_place = zip(left, stacks, strict=True)
        stacked.update((v, stack) for v, stack in by_place if isinstance(v, Var))
        rows = iter(over_time(parts.eqns, fixed, stacked, wanted, loop.length))
        rest = iter(stacks)
        return [*finals, *(next(rows if gone else rest) for gone in goes)]

    return after


def in_rows(
    eqns: Sequence[JaxprEqn],
    fixed: Mapping[Var, Any],
    stacked: Mapping[Var, Any],
    wanted: Sequence[Any],
    length: int,
) -> list[Any]:
    """The same by a loop of `ROWS` steps, in which all other steps are lanes."""
    if not wanted:
        return []
    used = used_inputs(eqns, wanted, [*fixed, *stacked])
    rows = {v: stack for v, stack in stacked.items() if v in used}
    lanes = -(-length // ROWS)

    def folded(stack: Any) -> Any:
        missing = [(0, ROWS * lanes - length)] + [(0, 0)] * (stack.ndim - 1)
        return jnp.pad(stack, missing).reshape(ROWS, lanes, *stack.shape[1:])

    def step(_: None, row: list[Any]) -> tuple[None, list[Any]]:
        here = dict(zip(rows, row, strict=True))
        return None, over_time(eqns, fixed, here, wanted, lanes)

    with compat.marked(inner=True):
        _, stacks = lax.scan(step, None, list(map(folded, rows.values())))
    return [s.reshape(ROWS * lanes, *s.shape[2:])[:length] for s in stacks]


def _every_step(value: Any, aval: Aval, axis: int | None, length: int) -> Any:
    if axis == 0:
        return value
    return jnp.broadcast_to(jnp.asarray(value, aval.dtype), (length, *aval.shape))


def _bound(eqn: JaxprEqn, *values: Any) -> list[Any]:
    return list(compat.bind(eqn, values))


def _is_row_product(eqn: JaxprEqn, axes: tuple[int | None, ...]) -> bool:
    """Whether an equation multiplies rows of this step by a matrix of all steps."""
    if record_of(eqn).kind != "product" or axes != (0, None):
        return False
    (contracted, _), batch = eqn.params["dimension_numbers"]
    operand: Any = eqn.invars[0]
    rank = len(operand.aval.shape)
    last = tuple(range(rank - len(contracted), rank))
    plain = not any(batch) and eqn.params.get("out_sharding") is None
    return plain and tuple(contracted) == last


def _row_product(eqn: JaxprEqn, rows: Any, matrix: Any) -> Any:
    """All rows of all steps, times the matrix.

    `jax.vmap` would keep time a dimension of its own, and where a step has one row,
    XLA then lays it out in an order that a kernel must have changed, by a copy.
    """
    (contracted, others), none = eqn.params["dimension_numbers"]
    free = rows.ndim - len(contracted)
    flat = rows.reshape(prod(rows.shape[:free]), *rows.shape[free:])
    how = {k: eqn.params[k] for k in ("precision", "preferred_element_type")}
    if flat.ndim == matrix.ndim == 2:
        result = product(flat, matrix, (1, others[0]), how)
    else:
        numbers = (tuple(range(1, flat.ndim)), others), none
        result = lax.dot_general(flat, matrix, numbers, **how)
    return result.reshape(*rows.shape[:free], *result.shape[1:])


def used_inputs(
    eqns: Sequence[JaxprEqn], wanted: Sequence[Any], known: Sequence[Var]
) -> set[Var]:
    """Which of the known variables lead to the wanted ones."""
    found = set(variables(wanted))
    for eqn in slice_of(eqns, wanted, known):
        found.update(variables(eqn.invars))
    return found.intersection(known)
