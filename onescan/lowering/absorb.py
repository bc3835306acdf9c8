"""Absorbing: light work on whole xs in front of a loop is done in the loop.

JAX's rule for scan is given values of the program around it, and what made them can be
read there.  An x that is computed from other arrays, element by element, is not taken
as it is: the loop reads those arrays, and computes it when it needs it.  XLA then
never writes it to memory, unless something else reads it.  The residuals that
`derive` leaves out of a forward loop end here, in the backward one.

Right, because work that is done element by element on stacked arrays is the same work
on each step's part of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import jax
from jax import lax
from jax.extend.core import JaxprEqn, Var

from onescan import compat, program
from onescan.loop import Aval, Loop, nbytes
from onescan.lowering.outcome import Native
from onescan.passes.split import parts_of, rebuilt
from onescan.passes.worth import FILLS_A_VECTOR

#: operations that cost less than writing and reading their result
LIGHT: dict[str, Callable[..., Any]] = {
    "stablehlo.add": lax.add,
    "stablehlo.subtract": lax.sub,
    "stablehlo.multiply": lax.mul,
    "stablehlo.negate": lax.neg,
    "stablehlo.maximum": lax.max,
    "stablehlo.minimum": lax.min,
}
#: how many of them one x may take
MOST = 6
#: how many xs a note names
NAMED = 2

Value = Any  # of the program being lowered
Step = Callable[[Mapping[Value, Any]], Any]  # from sources of one step to an array


@dataclass(frozen=True, eq=False)
class Recipe:
    """How an array is made from others, as work of one step."""

    step: Step
    name: Any  # tells it from others: strings, numbers and sources, in tuples
    stacked: tuple[Value, ...] = ()  # sources with time in front
    fixed: tuple[Value, ...] = ()  # and without
    work: int = 0


@dataclass(frozen=True, eq=False)
class Absorbed:
    """A loop that makes some of its xs itself, and what it takes from the program."""

    loop: Loop
    args: list[Value]
    types: list[Any]
    note: str

    def native(self, outcome: Native) -> Native:
        """What became of this loop as what became of the loop it was made from."""

        def lower(ctx: Any, *_: Value) -> Sequence[Value]:
            return outcome.lower(ctx.replace(avals_in=self.types), *self.args)

        notes, passes = (self.note, *outcome.notes), ("absorb", *outcome.passes)
        return replace(outcome, lower=lower, passes=passes, notes=notes)


def absorbed(loop: Loop, args: Sequence[Value]) -> Absorbed | None:
    """The loop with the light work in front of it, if there is any worth it."""
    first = loop.num_consts + loop.num_carry
    recipes = _worth_it(loop, args[first:])
    if not recipes or loop.body.consts:
        return None
    made = recipes.values()
    direct = _union([value] for i, value in enumerate(args[first:]) if i not in recipes)
    fixed = _union(recipe.fixed for recipe in made)
    stacked = [v for v in _union(recipe.stacked for recipe in made) if v not in direct]
    taken = _Taken(loop, fixed, stacked, direct)
    larger = _with_recipes(taken, args[first:], recipes)
    consts, carry = args[: loop.num_consts], args[loop.num_consts : first]
    return Absorbed(
        larger,
        [*consts, *fixed, *carry, *stacked, *direct],
        [
            *larger.const_avals,
            *larger.carry_avals,
            *(compat.stacked(aval, loop.length) for aval in larger.x_avals),
        ],
        _told(loop, list(recipes)),
    )


def _told(loop: Loop, made: list[int]) -> str:
    """What was done to which xs, and what it saves."""
    names = compat.argument_names(loop)
    first = loop.num_consts + loop.num_carry
    what = f"{len(made)} of the xs"
    if names and len(made) <= NAMED:
        what = " and ".join(names[first + i] for i in made)
    saved = nbytes([loop.x_avals[i] for i in made])
    return f"computed {what} in the loop, so {saved:,} bytes a step wait in no memory"


@dataclass(frozen=True, eq=False)
class _Taken:
    """A loop, and what it takes from the program."""

    loop: Loop
    fixed: list[Value]  # for all steps, besides its constants
    stacked: list[Value]  # instead of xs that it makes
    direct: list[Value]  # the other xs, each once

    @property
    def known(self) -> list[Value]:
        return [*self.fixed, *self.stacked, *self.direct]


def _with_recipes(
    taken: _Taken, xs: Sequence[Value], recipes: Mapping[int, Recipe]
) -> Loop:
    """The loop that makes some of its xs: one and the same for the same recipes."""
    number = {value: i for i, value in enumerate(taken.known)}
    plain = tuple(number[x] for i, x in enumerate(xs) if i not in recipes)
    named = tuple((i, _numbered(r.name, number)) for i, r in recipes.items())
    types = tuple(str(value.type) for value in taken.known)
    counts = len(taken.fixed), len(taken.stacked)
    same = taken.loop.body, counts, types, plain, named
    if same not in _found:
        if len(_found) >= RECENT:
            _found.pop(next(iter(_found)), None)
        _found[same] = _made(taken, xs, recipes)
    found = _found[same]
    return taken.loop.replace(body=found.body, num_consts=found.num_consts)


def _made(taken: _Taken, xs: Sequence[Value], recipes: Mapping[int, Recipe]) -> Loop:
    loop, parts = taken.loop, parts_of(taken.loop)
    renamed: dict[Var, Any] = {}
    direct: dict[Value, Var] = {}
    for i, (value, v) in enumerate(zip(xs, parts.xs, strict=True)):
        if i not in recipes:
            renamed[v] = direct.setdefault(value, v)
    types = [program.type_of(value) for value in taken.fixed]
    types += [_of_step(program.type_of(value)) for value in taken.stacked]
    types += [v.aval for v in direct.values()]

    def make(*values: Any) -> list[Any]:
        given = dict(zip(taken.known, values, strict=True))
        return [recipe.step(given) for recipe in recipes.values()]

    traced = jax.make_jaxpr(make)(*types).jaxpr
    fixed, rest = len(taken.fixed), len(taken.fixed) + len(taken.stacked)
    same: dict[Var, Any] = dict(zip(traced.invars[rest:], direct.values(), strict=True))
    made = _renamed(traced.outvars, same)
    renamed.update(zip((parts.xs[i] for i in recipes), made, strict=True))
    return rebuilt(
        loop,
        parts.replace(
            consts=(*parts.consts, *traced.invars[:fixed]),
            xs=(*traced.invars[fixed:rest], *direct.values()),
            eqns=(*_read(traced.eqns, same), *_read(parts.eqns, renamed)),
            new_carry=_renamed(parts.new_carry, renamed),
            ys=_renamed(parts.ys, renamed),
        ),
    )


#: loops that make some of their xs, by what they are made from: layers that are alike
#: have the same body, and should have it here too
_found: dict[Any, Loop] = {}
RECENT = 32


def _numbered(name: Any, number: Mapping[Value, int]) -> Any:
    """The name of a recipe, with the numbers of its sources in place of them."""
    if isinstance(name, tuple):
        return tuple(_numbered(part, number) for part in name)
    return name if isinstance(name, (str, int)) else number[name]


def _worth_it(loop: Loop, values: Sequence[Value]) -> dict[int, Recipe]:
    """The xs that the loop should make itself, by position.

    It reads no more than before; and where it does not read less, nothing else has
    asked for the x so far.
    """
    recipes: dict[int, Recipe] = {}
    for i, (value, aval) in enumerate(zip(values, loop.x_avals, strict=True)):
        if prod(aval.shape) >= FILLS_A_VECTOR and _is_plain(value, aval):
            recipe = _recipe(value, loop.length, MOST)
            if recipe is not None and (recipe.work or _is_smaller(recipe, value)):
                recipes[i] = recipe
    read = {value for i, value in enumerate(values) if i not in recipes}
    found: dict[int, Recipe] = {}
    for i, recipe in recipes.items():
        new = [value for value in recipe.stacked if value not in read]
        size = nbytes([program.type_of(value) for value in new])
        most = nbytes([loop.x_avals[i]], loop.length)
        if not new or (size <= most and not program.is_used(values[i])):
            found[i] = recipe
            read.update(new)
        else:
            read.add(values[i])
    return found


def _is_smaller(recipe: Recipe, value: Value) -> bool:
    """Whether an array is made from less than it is, such as one number for all."""
    sources = [program.type_of(source) for source in recipe.stacked]
    return nbytes(sources) < nbytes([program.type_of(value)])


def _is_plain(value: Value, aval: Aval) -> bool:
    """Whether a value of the program is what the body calls it: keys are not."""
    kind = program.type_of(value)
    return kind is not None and _of_step(kind) == compat.array_type(
        aval.shape, aval.dtype
    )


def _recipe(value: Value, length: int, most: int) -> Recipe | None:
    """How a stacked array is made by light work, or nothing but that it is there."""
    kind, op = program.type_of(value), program.maker_of(value)
    if kind is None or not kind.shape or kind.shape[0] != length:
        return None
    there = Recipe(lambda given: given[value], (value,), stacked=(value,))
    if op is None:
        return there
    made = None
    if op.name in LIGHT and most > 0 and kind.dtype != bool:
        made = _operation(op, length, most - 1)
    elif op.name == "stablehlo.constant":
        made = _constant(op, kind.shape[1:], kind.dtype)
    elif op.name == "stablehlo.broadcast_in_dim":
        made = _broadcast(op, kind, length, most)
    elif op.name == "stablehlo.reshape":
        made = _reshape(op, kind, length, most)
    return made or there


def _operation(op: Any, length: int, most: int) -> Recipe | None:
    apply, recipes = LIGHT[op.name], []
    for operand in op.operands:
        recipe = _recipe(operand, length, most)
        if recipe is None:
            return None
        recipes.append(recipe)
        most -= recipe.work
    return Recipe(
        lambda given: apply(*(recipe.step(given) for recipe in recipes)),
        (op.name, *(recipe.name for recipe in recipes)),
        tuple(_union(recipe.stacked for recipe in recipes)),
        tuple(_union(recipe.fixed for recipe in recipes)),
        1 + sum(recipe.work for recipe in recipes),
    )


def _constant(op: Any, shape: Sequence[int], dtype: Any) -> Recipe | None:
    number = program.splat_of(op)
    if number is None:
        return None
    name = ("constant", repr(number), str(dtype), *shape)
    return Recipe(lambda given: lax.full(shape, number, dtype), name)


def _broadcast(op: Any, kind: Any, length: int, most: int) -> Recipe | None:
    """An array in more dimensions: time is one of its own, or a new one."""
    (operand,) = op.operands
    dims, shape = program.broadcast_dims(op), kind.shape[1:]
    inner, before = [i - 1 for i in dims if i], program.type_of(operand)
    if before is None or (0 in dims and dims[0] != 0):
        return None
    if 0 in dims and before.shape[0] == length:
        recipe = _recipe(operand, length, most)
        if recipe is None:
            return None
        step = recipe.step
        return replace(
            recipe,
            step=lambda given: lax.broadcast_in_dim(step(given), shape, inner),
            name=("broadcast", recipe.name, tuple(inner), *shape),
        )
    maker = program.maker_of(operand)
    if maker is not None and maker.name == "stablehlo.constant":
        return _constant(maker, shape, kind.dtype)
    row = before.shape[1:] if 0 in dims else before.shape  # the same for every step
    return Recipe(
        lambda given: lax.broadcast_in_dim(given[operand].reshape(row), shape, inner),
        ("rows", operand, tuple(inner), tuple(row), *shape),
        fixed=(operand,),
    )


def _reshape(op: Any, kind: Any, length: int, most: int) -> Recipe | None:
    recipe = _recipe(op.operands[0], length, most)
    if recipe is None:
        return None
    step, shape = recipe.step, kind.shape[1:]
    return replace(
        recipe,
        step=lambda given: lax.reshape(step(given), shape),
        name=("reshape", recipe.name, *shape),
    )


def _of_step(aval: Aval) -> Any:
    return compat.array_type(aval.shape[1:], aval.dtype)


def _union(groups: Iterable[Sequence[Value]]) -> list[Value]:
    """Each once, in the same order in every process: programs are cached by text."""
    return list(dict.fromkeys(value for group in groups for value in group))


def _renamed(atoms: Iterable[Any], names: Mapping[Var, Any]) -> tuple[Any, ...]:
    return tuple(names.get(v, v) if isinstance(v, Var) else v for v in atoms)


def _read(eqns: Iterable[JaxprEqn], names: Mapping[Var, Any]) -> list[JaxprEqn]:
    """The equations, reading variables by other names."""
    return [eqn.replace(invars=list(_renamed(eqn.invars, names))) for eqn in eqns]
