"""Which operation of a step made the first NaN or infinity.

`watch` runs a body equation by equation and notes of every value whether it is finite.
`Trail.record` walks back from the leaf that is not, from each value that is not finite
to one it was made from, until all that a value was made from is finite: the operation
there is the one to blame.  An infinity that is meant, such as a mask's, is passed by
unless it reached the leaf.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import jax.numpy as jnp
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal

from onescan import compat
from onescan.passes.inline import CALLS

#: in place of a line, where the replay of a step was finite
LOST = "The same step, replayed by operations of JAX, gives finite numbers."


@dataclass(frozen=True)
class NonFinite:
    """The first value of a loop that is NaN or infinite, and what made it.

    Prints as a sentence.
    """

    step: int  # counted from 0, in the order in which the loop runs
    index: int  # where the step's x stands in xs
    leaf: str  # "carry['speed']", "y[0]"
    lane: tuple[int, ...]  # of the batch of `jax.vmap`, () if there is none
    operation: str | None  # "log"; None where nothing but an input is to blame
    source: str  # "jnp.log(x), model.py:57"; or the input, "x['rate']"
    function: str  # "step (model.py:50)"

    def __str__(self) -> str:
        lane = f" in lane {list(self.lane)} of the batch" if self.lane else ""
        where = f"step {self.step}{lane} of {self.function}"
        found = f"{self.leaf} is not finite after {where}."
        if self.source == LOST:
            return f"{found} {LOST}"
        if self.operation is None:
            return f"{found} {self.source} was not finite when the step began."
        return (
            f"{found} The operation that made the first NaN or infinity from finite "
            f"numbers is {self.operation}, in {self.source}."
        )


@dataclass
class Trail:
    """What was made from what, in one step; values are numbers of the list of flags."""

    inputs: list[str]  # the names of the first values
    leaves: dict[str, int] = field(default_factory=dict)  # by name: its value
    makers: dict[int, tuple[Any, list[int]]] = field(default_factory=dict)

    def record(self, bad: Sequence[bool], **where: Any) -> NonFinite:
        """Who is to blame, given which values were not finite."""
        wrong = [leaf for leaf, value in self.leaves.items() if bad[value]]
        if not wrong:  # rounding did not repeat
            return NonFinite(leaf="a leaf", operation=None, source=LOST, **where)
        operation, source = self._origin(self.leaves[wrong[0]], bad)
        return NonFinite(leaf=wrong[0], operation=operation, source=source, **where)

    def _origin(self, value: int, bad: Sequence[bool]) -> tuple[str | None, str]:
        while value in self.makers:
            eqn, parents = self.makers[value]
            wrong = [parent for parent in parents if bad[parent]]
            if not wrong:
                return eqn.primitive.name, compat.expression_of(eqn)
            value = wrong[0]
        return None, self.inputs[value]


def watch(
    closed: ClosedJaxpr, args: Sequence[Any], inputs: list[str], leaves: list[str]
) -> tuple[Trail, Any]:
    """Run a body on values; give what was made from what, and a flag for each value.

    `inputs` are the names of the constants and arguments, `leaves` those of results.
    """
    trail, flags = Trail(inputs), []

    def note(value: Any) -> int:
        flags.append(_not_finite(value))
        return len(flags) - 1

    def run(jaxpr: Jaxpr, given: list[tuple[Any, int]], call: Any) -> list[Any]:
        env = dict(zip([*jaxpr.constvars, *jaxpr.invars], given, strict=True))

        def read(atom: Any) -> tuple[Any, int]:
            if isinstance(atom, Literal):
                return atom.val, NEVER
            return env[atom]

        for eqn in jaxpr.eqns:
            values = [read(v) for v in eqn.invars]
            eqn = compat.placed(eqn, call) if call is not None else eqn
            called = eqn.params.get(CALLS.get(eqn.primitive.name, ""))
            if called is not None:
                consts = getattr(called, "consts", ())
                first = [(c, NEVER) for c in consts]
                results = run(getattr(called, "jaxpr", called), [*first, *values], eqn)
            else:
                results = [
                    (v, note(v)) for v in compat.bind(eqn, [v for v, _ in values])
                ]
                parents = [i for _, i in values if i != NEVER]
                trail.makers.update((i, (eqn, parents)) for _, i in results)
            env.update(zip(eqn.outvars, results, strict=True))
        return [read(v) for v in jaxpr.outvars]

    given = [(value, note(value)) for value in (*closed.consts, *args)]
    results = run(closed.jaxpr, given, None)
    for name, (value, number) in zip(leaves, results, strict=True):
        trail.leaves[name] = note(value) if number == NEVER else number
    return trail, jnp.stack(flags)


NEVER = -1  # the number of a literal, which nobody made


def _not_finite(value: Any) -> Any:
    if not jnp.issubdtype(jnp.result_type(value), jnp.inexact):
        return jnp.array(False)
    return ~jnp.all(jnp.isfinite(value))
