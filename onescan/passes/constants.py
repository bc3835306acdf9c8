"""constants: large arrays that a body holds are given to it.

In goes a loop whose equations have arrays as literals: data that a function closes
over, as NumPyro's models do.  Out comes one that takes them as constants, so that a
kernel reads them where they are instead of carrying them in its code.
"""

from __future__ import annotations

from math import prod
from typing import Any

from jax.extend.core import Literal, Var

from onescan.loop import Loop
from onescan.passes.split import Split, Values, parts_of, rebuilt

#: elements of an array that a kernel carries in its code
LARGEST_LITERAL = 4096


def constants(loop: Loop) -> Split | None:
    """Take large literals out of a body."""
    parts = parts_of(loop)
    names: dict[int, Var] = {}
    values: list[Any] = []

    def taken(atom: Any) -> Any:
        if not is_large_literal(atom):
            return atom
        if id(atom.val) not in names:
            names[id(atom.val)] = Var(atom.aval)
            values.append(atom.val)
        return names[id(atom.val)]

    eqns = [eqn.replace(invars=list(map(taken, eqn.invars))) for eqn in parts.eqns]
    if not values:
        return None
    given = parts.replace(consts=(*parts.consts, *names.values()), eqns=tuple(eqns))

    def before(args: Values) -> Values:
        consts, carry, xs = parts.split(args)
        return [*consts, *values, *carry, *xs]

    return Split(
        name="constants",
        loop=rebuilt(loop, given),
        before=before,
        after=lambda args, results: results,
    )


def is_large_literal(atom: Any) -> bool:
    """Whether an operand is an array that is too large for a kernel's code."""
    aval: Any = atom.aval
    return isinstance(atom, Literal) and prod(aval.shape) > LARGEST_LITERAL
