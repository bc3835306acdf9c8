"""`Split`: a loop as work before it, a smaller loop, and work after it.

What a pass takes out of a loop runs either before it, on what goes in, or after
it, on what comes out, where *per step* becomes *for all steps at once*.  A pass
never copies or renames: the smaller body keeps the variables of the larger one,
so a value that is now computed outside is simply one more input or result under
the same name.

    args of the loop  --before-->  args of the smaller loop
    args of the loop, results of the smaller loop  --after-->  results of the loop

`improved` makes a chain of them, and `run` is what such a chain means.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Literal, Var

from onescan.loop import Loop

Values = list[Any]


def unchanged(args: Values) -> Values:
    """The `before` of a pass that takes nothing out in front."""
    return args


@dataclass(frozen=True, eq=False)
class Split:
    """One pass applied to one loop."""

    name: str  # of the pass
    loop: Loop  # what is left
    before: Callable[[Values], Values]
    after: Callable[[Values, Values], Values]
    notes: tuple[str, ...] = ()  # what was done, in the user's terms
    extra: int = 0  # bytes that now wait in memory, for each step
    moved: tuple[JaxprEqn, ...] = ()  # the work that made it worth it


Pass = Callable[[Loop], Split | None]


def improved(loop: Loop, passes: Iterable[Pass]) -> list[Split]:
    """Apply passes one after the other; those that change nothing are left out.

    The last loop knows what it was before it was only rewritten, which is for kernels.
    """
    splits: list[Split] = []
    plain = loop
    for apply in passes:
        split = apply(loop)
        if split is not None:
            splits.append(split)
            loop = split.loop
            plain = loop if split.moved else plain
    if splits and plain is not loop:
        splits[-1] = replace(splits[-1], loop=loop.replace(plain=plain))
    return splits


def run(
    splits: Sequence[Split], core: Callable[..., Sequence[Any]], args: Values
) -> Values:
    """The results of the first loop, where `core` runs the last one."""
    stages = [args]
    for split in splits:
        stages.append(split.before(stages[-1]))
    results = list(core(*stages.pop()))
    for split, given in zip(reversed(splits), reversed(stages), strict=True):
        results = split.after(given, results)
    return results


@dataclass(frozen=True)
class Parts:
    """A body taken apart, to be put together differently."""

    consts: tuple[Var, ...]
    carry: tuple[Var, ...]
    xs: tuple[Var, ...]
    eqns: tuple[JaxprEqn, ...]
    new_carry: tuple[Any, ...]
    ys: tuple[Any, ...]

    @property
    def inputs(self) -> tuple[Var, ...]:
        return (*self.consts, *self.carry, *self.xs)

    @property
    def results(self) -> tuple[Any, ...]:
        return (*self.new_carry, *self.ys)

    def split(self, args: Values) -> tuple[Values, Values, Values]:
        """The loop's arguments as consts, carry and xs."""
        first, second = len(self.consts), len(self.consts) + len(self.carry)
        return args[:first], args[first:second], args[second:]

    def replace(self, **changes: Any) -> Parts:
        return replace(self, **changes)


def parts_of(loop: Loop) -> Parts:
    jaxpr = loop.body.jaxpr
    first, second = loop.num_consts, loop.num_consts + loop.num_carry
    return Parts(
        consts=tuple(jaxpr.invars[:first]),
        carry=tuple(jaxpr.invars[first:second]),
        xs=tuple(jaxpr.invars[second:]),
        eqns=tuple(jaxpr.eqns),
        new_carry=tuple(jaxpr.outvars[: loop.num_carry]),
        ys=tuple(jaxpr.outvars[loop.num_carry :]),
    )


def rebuilt(loop: Loop, parts: Parts) -> Loop:
    """The loop with this body; equations nobody reads are left out."""
    live = slice_of(parts.eqns, parts.results, parts.inputs)
    debug_info = loop.body.jaxpr.debug_info._replace(arg_names=None, result_paths=None)
    jaxpr = Jaxpr([], parts.inputs, parts.results, live, debug_info=debug_info)
    return loop.replace(
        body=ClosedJaxpr(jaxpr, []),
        num_consts=len(parts.consts),
        num_carry=len(parts.carry),
    )


def variables(atoms: Iterable[Any]) -> list[Var]:
    return [v for v in atoms if not isinstance(v, Literal)]


def slice_of(
    eqns: Sequence[JaxprEqn], wanted: Iterable[Any], known: Iterable[Any]
) -> list[JaxprEqn]:
    """The equations that lead from what is known to what is wanted."""
    known = set(variables(known))
    needed = set(variables(wanted)) - known
    found = []
    for eqn in reversed(eqns):
        if eqn.effects or not needed.isdisjoint(eqn.outvars):
            found.append(eqn)
            needed.update(v for v in variables(eqn.invars) if v not in known)
    return found[::-1]


def reads(eqns: Iterable[JaxprEqn], results: Iterable[Any]) -> set[Var]:
    """Every variable that these equations or results mention as an operand."""
    found = set(variables(results))
    for eqn in eqns:
        found.update(variables(eqn.invars))
    return found
