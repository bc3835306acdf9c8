"""simplify: nothing twice, nothing unused, nothing carried that does not change.

In goes a loop; out comes one in which

* equal equations are one (`common`);
* a carry that every step hands on unchanged is a constant;
* a y that is an x, made of constants alone, or another y is not stacked: after the
  loop it is that x, the same value for every step, or that other y;
* constants and xs that the body does not read are not passed.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jax.extend.core import Literal, Var

from onescan.loop import Aval, Loop
from onescan.passes.common import merged
from onescan.passes.overtime import evaluate
from onescan.passes.split import (
    Parts,
    Split,
    Values,
    parts_of,
    reads,
    rebuilt,
    slice_of,
    variables,
)


def simplify(loop: Loop) -> Split | None:
    """Make a loop smaller without moving work."""
    parts = parts_of(loop)
    whole = _merged(parts)
    steady = [old is new for old, new in zip(whole.carry, whole.new_carry, strict=True)]
    consts = (*whole.consts, *_masked(whole.carry, steady))
    fixed = _fixed(whole, consts)
    origin = [_origin(whole, i, fixed) for i in range(len(whole.ys))]
    kept = whole.replace(
        consts=consts,
        carry=_masked(whole.carry, [not s for s in steady]),
        new_carry=_masked(whole.new_carry, [not s for s in steady]),
        ys=_masked(whole.ys, [o is None for o in origin]),
    )
    live = slice_of(kept.eqns, kept.results, kept.inputs)
    read = reads(live, kept.results)
    smaller = kept.replace(
        consts=tuple(v for v in kept.consts if v in read),
        xs=tuple(v for v in kept.xs if v in read),
        eqns=tuple(live),
    )
    if _size(smaller) == _size(parts):
        return None

    def before(args: Values) -> Values:
        given = dict(zip(parts.inputs, args, strict=True))
        return [given[v] for v in smaller.inputs]

    def after(args: Values, results: Values) -> Values:
        given = dict(zip(parts.inputs, args, strict=True))
        rest = iter(results)
        finals = [
            given[v] if same else next(rest)
            for v, same in zip(parts.carry, steady, strict=True)
        ]
        stacks = dict(zip(map(id, smaller.ys), rest, strict=True))
        constants = {v: given[v] for v in consts}
        ys = []
        for y, source in zip(whole.ys, origin, strict=True):
            if source is None or source == "y":
                ys.append(stacks[id(y)])
            elif source == "x":
                ys.append(given[y])
            else:
                (value,) = evaluate(whole.eqns, constants, [y])
                ys.append(_every_step(value, y.aval, loop.length))
        return [*finals, *ys]

    return Split(
        "simplify", rebuilt(loop, smaller), before, after, _notes(steady, origin)
    )


def _notes(steady: list[bool], origin: list[str | None]) -> tuple[str, ...]:
    notes = []
    if count := sum(steady):
        what = "1 carry" if count == 1 else f"{count} carries"
        notes.append(f"made {what} that no step changes constant")
    if count := sum(o is not None for o in origin):
        what = "1 y that is" if count == 1 else f"{count} ys that are"
        notes.append(f"did not stack {what} there already")
    return tuple(notes)


def _every_step(value: Any, aval: Aval, length: int) -> Any:
    return jnp.broadcast_to(jnp.asarray(value, aval.dtype), (length, *aval.shape))


def _size(parts: Parts) -> tuple[int, int, int]:
    return len(parts.inputs), len(parts.results), len(parts.eqns)


def _masked(values: tuple[Any, ...], mask: list[bool]) -> tuple[Any, ...]:
    return tuple(v for v, keep in zip(values, mask, strict=True) if keep)


def _fixed(parts: Parts, consts: tuple[Var, ...]) -> set[Var]:
    """The values that are the same in every step."""
    fixed = set(consts)
    for eqn in parts.eqns:
        if fixed.issuperset(variables(eqn.invars)) and not eqn.effects:
            fixed.update(eqn.outvars)
    return fixed


def _origin(parts: Parts, i: int, fixed: set[Var]) -> str | None:
    """Where a y comes from, if not from the work of the step."""
    y = parts.ys[i]
    if isinstance(y, Literal) or y in fixed:
        return "const"
    if y in parts.xs:
        return "x"
    return "y" if any(y is other for other in parts.ys[:i]) else None


def _merged(parts: Parts) -> Parts:
    """The body with equal equations made one."""
    eqns, results = merged(parts.eqns, parts.results)
    carries = len(parts.new_carry)
    return parts.replace(
        eqns=tuple(eqns),
        new_carry=tuple(results[:carries]),
        ys=tuple(results[carries:]),
    )
