"""One record for each primitive: all that passes, plans and emission ask about it.

To add a primitive, enter a record in the file of its family here, and its rule in
`onescan/emit`; nothing else has to know.
"""

from __future__ import annotations

from onescan.loop import Equation
from onescan.primitives import (
    across,
    control,
    elementwise,
    indexing,
    linalg,
    products,
    reductions,
    transforms,
    views,
)
from onescan.primitives.record import Kind, Primitive

FAMILIES = (
    elementwise,
    views,
    indexing,
    reductions,
    products,
    linalg,
    transforms,
    across,
    control,
)
PRIMITIVES: dict[str, Primitive] = {
    record.name: record for family in FAMILIES for record in family.RECORDS
}


def named(name: str) -> Primitive:
    """The record of a primitive; of one that nobody knows, nothing is known."""
    return PRIMITIVES.get(name) or Primitive(name=name, kind="unknown")


def record_of(eqn: Equation) -> Primitive:
    """The record of an equation's primitive."""
    return named(eqn.primitive.name)


def is_refused(eqn: Equation) -> bool:
    """Whether this form of a primitive is one that no kernel has."""
    refuses = record_of(eqn).refuses
    return refuses is not None and refuses(eqn) is not None


def of_kind(*kinds: Kind) -> frozenset[str]:
    """The names of all primitives of these kinds."""
    return frozenset(name for name, r in PRIMITIVES.items() if r.kind in kinds)


ELEMENTWISE = of_kind("elementwise")
IDENTITIES = of_kind("identity")
CONTROL = of_kind("control")
UPDATES = of_kind("update")
#: what costs nothing: its readers read its operand
FREE = frozenset(name for name, r in PRIMITIVES.items() if r.moves and r.work is None)
