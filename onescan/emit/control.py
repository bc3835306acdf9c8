"""Control flow inside a body: nested scans, while loops, conditionals.

Each inner body is emitted once, with its own carries in scratch memory.  A
conditional branches: its predicate is the same for every lane of a tile (where
it is not, JAX has turned the conditional into a select).  A while loop whose
condition differs from lane to lane runs until no lane of the tile goes on; lanes
that are done keep their values, so each lane sees just its own rounds.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import jax.numpy as jnp
from jax.extend.core import Var
from llvmlite import ir

from onescan import compat
from onescan.emit import types as ty
from onescan.emit.across import any_of
from onescan.emit.arrays import Array, Index
from onescan.emit.body import Body
from onescan.emit.counted import Counted, counted
from onescan.emit.emitter import Emitter
from onescan.emit.states import argument_of, carried
from onescan.loop import Atom, Equation, Loop
from onescan.plan.patience import operations_in
from onescan.plan.work import ROUNDS, work_of

#: steps of an inner loop that are written one after the other, if they are short
MOST = 4


def emit_body(
    e: Emitter,
    jaxpr: Any,
    args: list[Array],
    owned: set,
    homes: dict[Any, Array] | None = None,
    wanted_twice: Iterable[Any] = (),
) -> list[Array]:
    """The results of a body.

    `homes` are the carries that some of them renew, `wanted_twice` those that are
    read in several places.
    """
    return Body(e, jaxpr, args, owned, homes or {}, wanted_twice).run()


def _carries(
    e: Emitter, eqn: Equation, operands: list[Array], variables: Any
) -> tuple[list[Array], list[Array]]:
    """Memory for the carries of a loop, holding their first values, and its constants
    and xs, which read none of it.

    Their own, where nobody else needs it: a table that is filled by loops inside a loop
    is not copied for each of its rows.
    """
    first, end = carried(eqn)
    cells: list[Array | None] = []
    for k, var in enumerate(variables, start=first):
        others = (*operands[:k], *operands[k + 1 :])
        cells.append(e.body.taken_over(eqn.invars[k], var, others))
    taken = {cell.memory for cell in cells if cell is not None}
    fixed = [_apart(e, a, taken) for a in (*operands[:first], *operands[end:])]
    fresh = {k: e.fresh(v) for k, v in enumerate(variables) if cells[k] is None}
    for k, cell in fresh.items():
        e.put(cell, operands[first + k])
    found = [cell or fresh[k] for k, cell in enumerate(cells)]
    e.body.owned.update(cell.memory for cell in found)
    return found, fixed


def _apart(e: Emitter, array: Array, written: set[Any]) -> Array:
    """The same values, cheap to pull, and not read from memory that is written to."""
    return e.materialise(array) if array.reads & written else e.once(array)


def renew(e: Emitter, cells: list[Array], values: list[Array]) -> None:
    """Put the next values into the carries; all are read before any is written.

    A value that reads its carry only where it is written goes there at once, as soon
    as no other value waits for the old one.
    """
    pending = [
        (cell, value)
        for cell, value in zip(cells, values, strict=True)
        if value.memory is None or value.memory is not cell.memory
    ]
    while e.renews_in_place and (free := _free(pending)) is not None:
        e.put(*pending.pop(free))
    memories = {cell.memory for cell, _ in pending}
    copies = [
        (cell, e.copied(value) if value.reads & memories else value)
        for cell, value in pending
    ]
    for cell, value in copies:
        e.put(cell, value)


def _homes(outvars: Any, cells: list[Array]) -> dict[Any, Array]:
    """By result of a body: the carry that it renews."""
    pairs = zip(outvars, cells, strict=False)
    return {var: cell for var, cell in pairs if isinstance(var, Var)}


def _free(pending: list[tuple[Array, Array]]) -> int | None:
    """Which carry may be written without reading anything too late."""
    for k, (cell, value) in enumerate(pending):
        others = (other for i, (_, other) in enumerate(pending) if i != k)
        wanted = value.elsewhere.union(*(other.reads for other in others))
        if cell.memory not in wanted:
            return k
    return None


def scan(e: Emitter, eqn: Equation, operands: list[Array]) -> list[Array]:
    inner = compat.loop_of(eqn.params)
    jaxpr, fixed = inner.body.jaxpr, inner.num_consts + inner.num_carry
    inits = jaxpr.invars[inner.num_consts : fixed]
    cells, given = _carries(e, eqn, operands, inits)
    consts, xs = given[: inner.num_consts], given[inner.num_consts :]
    ys = [e.fresh(v) for v in eqn.outvars[inner.num_carry :]]
    new = jaxpr.invars[fixed:]

    def step(index: tuple[Index, ...]) -> None:
        (k,) = index
        if inner.reverse:
            last = inner.length - 1
            k = last - k if isinstance(k, int) else e.b.sub(_i64(last), k)
        slices = [_at_step(e, x, v, k) for x, v in zip(xs, new, strict=True)]
        owned = {c.memory for c in cells}
        homes = _homes(jaxpr.outvars, cells)
        outs = emit_body(e, jaxpr, [*consts, *cells, *slices], owned, homes)
        for y, value in zip(ys, outs[inner.num_carry :], strict=True):
            memory: Any = y.memory
            e.nest(
                value.shape,
                y.lanes[1:],
                lambda i: memory.store(e.b, (k, *i), value.at(i)),
            )
        renew(e, cells, outs[: inner.num_carry])

    work = max(1, sum(w.operations for w in work_of(jaxpr)))
    short = inner.length <= min(MOST, max(1, e.unrolled_inside // work))
    if short and not _is_nest_of_alike(inner):
        for k in range(inner.length):
            step((k,))
    else:
        with e.patient_loop(inner.length, operations_in(e.plan, jaxpr)) as k:
            step((k,))
    return [*cells, *ys]


def _is_nest_of_alike(inner: Loop) -> bool:
    """Whether a loop holds others, and no number tells its steps apart.

    Steps that are written one after the other gain by addresses that are constants.
    Here there are none to gain, and each level would multiply the code.
    """
    numbered = any(
        jnp.issubdtype(aval.dtype, jnp.integer) for aval in inner.carry_avals
    )
    if numbered or inner.x_avals or inner.y_avals:
        return False
    names = {eqn.primitive.name for eqn in inner.body.jaxpr.eqns}
    return not names.isdisjoint({"scan", "while"})


def _at_step(e: Emitter, x: Array, var: Atom, k: Index) -> Array:
    return e.lazy(var, lambda index: x.at((k, *index)), [x], moving=True)


def _i64(value: int) -> ty.Value:
    return ir.Constant(ty.I64, value)


def while_(e: Emitter, eqn: Equation, operands: list[Array]) -> list[Array]:
    params = eqn.params
    cond, body = params["cond_jaxpr"].jaxpr, params["body_jaxpr"].jaxpr
    nc, nb = params["cond_nconsts"], params["body_nconsts"]
    cells, given = _carries(e, eqn, operands, body.invars[nb:])
    cond_consts, body_consts = given[:nc], given[nc:]
    if (count := _written_out(e, eqn)) is not None:
        _rounds(e, eqn, count, cond_consts, body_consts, cells)
        return cells
    head, inside, done = (
        e.function.append_basic_block(name) for name in ("while", "do", "after")
    )
    e.b.branch(head)
    e.begin_at(head)
    (test,) = emit_body(e, cond, [*cond_consts, *cells], set())
    if test.shape:
        test = e.materialise(test)
    e.sync()
    again = any_of(e, test)
    if e.since is not None:
        again = e.b.and_(again, e.goes_on())
    e.b.cbranch(again, inside, done)
    rounds = e.b.trips
    e.b.trips = rounds * ROUNDS
    e.begin_at(inside)
    # what is done keeps its values, so a body may not overwrite them
    owned = set() if test.shape else {c.memory for c in cells}
    homes = _homes(body.outvars, cells)
    values = emit_body(e, body, [*body_consts, *cells], owned, homes)
    if test.shape:
        pairs = zip(body.invars[nb:], cells, values, strict=True)
        values = [_where(e, var, test, value, cell) for var, cell, value in pairs]
    renew(e, cells, values)
    e.b.branch(head)
    e.b.trips = rounds
    e.begin_at(done)
    return cells


def _written_out(e: Emitter, eqn: Equation) -> Counted | None:
    """The counter of a loop whose rounds are written one after the other."""
    if not e.unrolls_whiles or (count := counted(e.body.jaxpr, eqn)) is None:
        return None
    work = operations_in(e.plan, eqn.params["body_jaxpr"].jaxpr)
    fits = count.end * work <= e.unrolled_inside
    return count if fits else None


def _rounds(
    e: Emitter,
    eqn: Equation,
    count: Counted,
    cond_consts: list[Array],
    body_consts: list[Array],
    cells: list[Array],
) -> None:
    """A few rounds, each with its own number; the first one is entered by number."""
    cond, body = eqn.params["cond_jaxpr"].jaxpr, eqn.params["body_jaxpr"].jaxpr
    new = e.function.append_basic_block
    enter, done = [new("round") for _ in range(count.end)], new("after")
    counter = cells[count.carry]
    first: Any = counter.at(())
    switch = e.b.switch(first, done)
    for k, block in enumerate(enter):
        switch.add_case(ir.Constant(first.type, k), block)
    for k, block in enumerate(enter):
        e.begin_at(block)
        number = ir.Constant(first.type, k)
        known = Array((), counter.dtype, lambda index, number=number: number)
        carry = [*cells[: count.carry], known, *cells[count.carry + 1 :]]
        (test,) = emit_body(e, cond, [*cond_consts, *carry], set())
        inside = new("do")
        e.b.cbranch(test.at(()), inside, done)
        e.begin_at(inside)
        owned = {c.memory for c in cells}
        homes = _homes(body.outvars, cells)
        renew(e, cells, emit_body(e, body, [*body_consts, *carry], owned, homes))
        e.b.branch(enter[k + 1] if k + 1 < len(enter) else done)
    e.begin_at(done)


def _where(e: Emitter, var: Atom, test: Array, new: Array, old: Array) -> Array:
    """`new` where the condition of these (leading) positions holds, else `old`."""
    if new.memory is old.memory is not None:
        return old

    def at(index: tuple[Index, ...]) -> ty.Value:
        place = index[: len(test.shape)]
        values = (test.at(place), new.at(index), old.at(index))
        return e.b.select(*ty.match(e.b, *values))

    return e.lazy(var, at, [test, new, old], 1)


def cond(e: Emitter, eqn: Equation, operands: list[Array]) -> list[Array]:
    which, *args = operands
    branches = eqn.params["branches"]
    taken = _taken_over(e, eqn, args)
    written = {result.memory for result in taken.values()}
    args = [_apart(e, a, written) for a in args]
    e.sync()
    number: Any = which.at(())
    if ty.is_bool(which.dtype):
        number = e.b.zext(number, ty.I32)
    kind: Any = number.type
    last = len(branches) - 1
    if last:  # out of range means the nearest branch
        low = e.b.icmp_signed("<", number, ir.Constant(kind, 0))
        number = e.b.select(low, ir.Constant(kind, 0), number)
    results = [taken.get(k) or e.fresh(v) for k, v in enumerate(eqn.outvars)]
    e.body.owned.update(result.memory for result in results)
    blocks = [e.function.append_basic_block("branch") for _ in branches]
    done = e.function.append_basic_block("chosen")
    switch = e.b.switch(number, blocks[-1])
    for k in range(last):
        switch.add_case(ir.Constant(kind, k), blocks[k])
    for block, branch in zip(blocks, branches, strict=True):
        e.begin_at(block)
        homes = _homes(branch.jaxpr.outvars, results)
        renew(e, results, emit_body(e, branch.jaxpr, args, set(written), homes))
        e.b.branch(done)
    e.begin_at(done)
    return results


def _taken_over(e: Emitter, eqn: Equation, args: list[Array]) -> dict[int, Array]:
    """By result of a conditional: the memory of an argument that branches change."""
    found: dict[int, Array] = {}
    for k, var in enumerate(eqn.outvars):
        if (place := argument_of(eqn, k)) is not None:
            others = (*args[:place], *args[place + 1 :], *found.values())
            memory = e.body.taken_over(eqn.invars[1 + place], var, others)
            found.update({} if memory is None else {k: memory})
    return found


RULES = {"cond": cond, "scan": scan, "while": while_}
