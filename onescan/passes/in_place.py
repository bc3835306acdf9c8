"""in_place: a sum with a nearly empty array updates the few elements that are not.

In goes a loop; out comes one in which ``c + zeros.at[i].set(u)``, which is what the
gradient of ``c[i]`` adds to a carry, is ``c.at[i].add(u)``.  The sum touches every
element of the array in every step, the update only those of `u`, and a kernel does it
in the carry's own memory.

Right, because adding zero changes nothing (but the sign of a zero), and because the
update puts `u` where the array of zeros would have had it: the same operation with
the same positions, clamped or dropped alike.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any

import numpy as np
from jax import lax
from jax.extend.core import JaxprEqn, Literal, Var
from jax.extend.core.primitives import dynamic_slice_p

from onescan import compat
from onescan.loop import Atom, Equation, Loop
from onescan.passes.split import Split, parts_of, rebuilt, unchanged, variables
from onescan.passes.traced import traced

SUMS = ("add", "add_any")
#: the share of an array that is a few of its elements
FEW = 0.5


def in_place(loop: Loop) -> Split | None:
    """Turn sums with updates of zeros into updates."""
    parts = parts_of(loop)
    makers = {v: eqn for eqn in parts.eqns for v in eqn.outvars}
    uses = Counter(v for eqn in parts.eqns for v in variables(eqn.invars))
    uses.update(variables(parts.results))
    eqns: list[JaxprEqn] = []
    count = 0
    for eqn in parts.eqns:
        update = _update(eqn, makers, uses)
        changed = None if update is None else traced(*update, eqn)
        count += changed is not None
        eqns += changed or [eqn]
    if not count:
        return None
    what = "1 sum" if count == 1 else f"{count} sums"
    return Split(
        name="in place",
        loop=rebuilt(loop, parts.replace(eqns=tuple(eqns))),
        before=unchanged,
        after=lambda args, results: results,
        notes=(f"made {what} with a few elements of an array an update of these",),
    )


Update = tuple[Callable[..., Sequence[Any]], list[Any]]


def _update(
    eqn: Equation, makers: Mapping[Any, Equation], uses: Counter[Any]
) -> Update | None:
    """A sum as a function of the array it changes and what it changes it by."""
    if eqn.primitive.name not in SUMS:
        return None
    for whole, part in (eqn.invars, eqn.invars[::-1]):
        maker = makers.get(part) if isinstance(part, Var) else None
        if maker is None or uses[part] != 1 or isinstance(whole, Literal):
            continue
        if _type_of(whole) != _type_of(part):
            continue
        if (rule := RULES.get(maker.primitive.name)) is not None:
            change = rule(maker, makers)
            if change is not None:
                apply, operands = change
                return apply, [whole, *operands]
    return None


def _type_of(var: Atom) -> tuple[Any, ...]:
    return tuple(var.aval.shape), var.aval.dtype


def _is_zeros(atom: Atom, makers: Mapping[Any, Equation]) -> bool:
    """Whether a value is zero everywhere."""
    while isinstance(atom, Var) and (maker := makers.get(atom)) is not None:
        if maker.primitive.name != "broadcast_in_dim":
            return False
        atom = maker.invars[0]
    return isinstance(atom, Literal) and not np.any(atom.val)


def _slice_update(maker: Equation, makers: Mapping[Any, Equation]) -> Update | None:
    zeros, update, *starts = maker.invars
    if not _is_zeros(zeros, makers):
        return None
    sizes = tuple(update.aval.shape)

    def apply(whole: Any, update: Any, *starts: Any) -> Any:
        old = dynamic_slice_p.bind(whole, *starts, slice_sizes=sizes)
        return compat.bind(maker, [whole, lax.add(old, update), *starts])

    return apply, [update, *starts]


def _scatter_add(maker: Equation, makers: Mapping[Any, Equation]) -> Update | None:
    zeros, indices, updates = maker.invars
    if not _is_zeros(zeros, makers):
        return None

    def apply(whole: Any, indices: Any, updates: Any) -> Any:
        return compat.bind(maker, [whole, indices, updates])

    return apply, [indices, updates]


def _pad(maker: Equation, makers: Mapping[Any, Equation]) -> Update | None:
    part, filler = maker.invars
    config = maker.params["padding_config"]
    plain = all(low >= 0 and high >= 0 and inner == 0 for low, high, inner in config)
    sizes, shape = tuple(part.aval.shape), maker.outvars[0].aval.shape
    few = prod(sizes) <= FEW * prod(shape)
    if not plain or not few or not _is_zeros(filler, makers):
        return None
    starts = [low for low, _, _ in config]

    def apply(whole: Any, part: Any) -> Any:
        ends = [low + n for low, n in zip(starts, sizes, strict=True)]
        old = lax.slice(whole, starts, ends)
        places = [np.int32(low) for low in starts]
        return [lax.dynamic_update_slice(whole, lax.add(old, part), places)]

    return apply, [part]


RULES: dict[str, Callable[[Equation, Mapping[Any, Equation]], Update | None]] = {
    "dynamic_update_slice": _slice_update,
    "scatter-add": _scatter_add,
    "pad": _pad,
}
