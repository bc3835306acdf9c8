"""invariants: what every round of a while loop computes alike is computed before it.

The same as `hoist` does for a loop whose steps are counted.  A while loop may run no
round at all, and what is computed for it then is computed for nothing; but nothing
can be seen of that, and XLA does it too.
"""

from __future__ import annotations

from jax.extend.core import ClosedJaxpr, Jaxpr, Var

from onescan.loop import Loop, nbytes
from onescan.passes.hoist import is_worth_keeping, numbers
from onescan.passes.overtime import evaluate
from onescan.passes.split import Split, Values, reads, slice_of, variables
from onescan.passes.surround import ALWAYS_ALLOWED
from onescan.passes.whiles import While, rebuilt
from onescan.passes.worth import described, operations


def invariants(loop: Loop) -> Split | None:
    """Take out what needs no carry, if it is worth it."""
    parts = While.of(loop)
    body, consts = parts.body, list(parts.body.invars[: parts.body_consts])
    fixed: set[Var] = set(consts)
    worth: set[Var] = set()
    for eqn in body.eqns:
        if fixed.issuperset(variables(eqn.invars)) and not eqn.effects:
            fixed.update(eqn.outvars)
            worth.update(eqn.outvars if is_worth_keeping(eqn) else ())
    worth -= numbers(body.eqns)
    kept = slice_of(body.eqns, body.outvars, {*body.invars, *worth})
    wanted = reads(kept, body.outvars)
    crossing = wanted & worth
    made = [v for eqn in body.eqns for v in eqn.outvars if v in crossing]
    if not made or nbytes([v.aval for v in made]) > ALWAYS_ALLOWED:
        return None
    read = [v for v in consts if v in wanted]

    def before(args: Values) -> Values:
        first, second, carry = parts.split(args)
        known = dict(zip(consts, second, strict=True))
        once = evaluate(body.eqns, known, made)
        return [*first, *(known[v] for v in read), *once, *carry]

    info = body.debug_info._replace(arg_names=None, result_paths=None)
    invars = [*read, *made, *parts.carry]
    smaller = Jaxpr([], invars, body.outvars, kept, debug_info=info)
    inside = set(map(id, kept))
    moved = [e for e in body.eqns if id(e) not in inside and operations(e)]
    return Split(
        name="hoist",
        loop=rebuilt(
            loop,
            ClosedJaxpr(parts.cond, []),
            ClosedJaxpr(smaller, []),
            parts.cond_consts,
            len(read) + len(made),
            [True] * len(parts.carry),
        ),
        before=before,
        after=lambda args, results: results,
        notes=tuple(described("computed", moved, "once instead of in every round")),
        moved=tuple(moved),
    )
