"""Differences of values from the largest, or the smallest, of themselves.

``x - x.max()`` is 0 at least once, and never above, as `softmax` relies on: above, an
exponential would overflow.  Where x is a product, a fused multiply-add takes the
largest, which was rounded, from one that was not.
"""

from __future__ import annotations

from typing import Any

from jax.extend.core import Var

#: what hands on a largest number, perhaps another one where that is not finite
HANDED_ON = frozenset(
    "broadcast_in_dim convert_element_type copy copy_p max min reshape select_n"
    " squeeze stop_gradient transpose".split()
)


def differences(jaxpr: Any) -> set[int]:
    """The subtractions of this kind, by the identity of their equations."""
    of: dict[Any, set[Any]] = {}  # by value: those it is the largest or smallest of
    found = set()
    for eqn in jaxpr.eqns:
        read = [v for v in eqn.invars if isinstance(v, Var)]
        name = eqn.primitive.name
        if name in ("reduce_max", "reduce_min"):
            of[eqn.outvars[0]] = {*read}
        elif name in HANDED_ON and any(v in of for v in read):
            of[eqn.outvars[0]] = set().union(*(of.get(v, ()) for v in read))
        elif name == "sub" and len(read) == 2:
            x, y = read
            if x in of.get(y, ()) or y in of.get(x, ()):
                found.add(id(eqn))
    return found
