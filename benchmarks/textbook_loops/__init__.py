"""Loops as textbooks have them, and as a new user writes them: small, and plain.

None of them was chosen for an engine.  Each is ``(step, carry, xs, length)``.
"""

from textbook_loops import (
    algorithms,
    fields,
    learning,
    models,
    physics,
    signals,
    tables,
)
from textbook_loops.parts import Loop

FAMILIES = (physics, fields, signals, algorithms, tables, learning, models)
LOOPS: dict[str, Loop] = {
    name: loop for family in FAMILIES for name, loop in family.LOOPS.items()
}
