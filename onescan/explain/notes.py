"""What the passes did to the user's lines, in sentences for people.

Each sentence names the user's own expressions and lines, says what was done with
them and why that is allowed, and which part of a step's work it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from jax.extend.core import JaxprEqn

from onescan import compat
from onescan.explain.decide import Decision
from onescan.explain.words import percent
from onescan.loop import Loop
from onescan.passes.overtime import kinds_of
from onescan.passes.split import Split, parts_of
from onescan.passes.worth import operations

#: expressions that one sentence names
NAMED = 3
#: of a step's operations, what is too little to be told of beside the rest
SMALL = 0.005
#: what stands for an operation that no line of the user's led to
UNKNOWN = "an unknown line"


@dataclass(frozen=True)
class Note:
    """Something that was done to a loop."""

    name: str  # of the pass
    text: str
    share: float = 0.0  # of a step's operations
    of_work: bool = False  # whether it moved work, which has a share

    def __str__(self) -> str:
        part = f" This is {percent(self.share)} of a step's work." if self.share else ""
        return self.text + part


def notes_of(decision: Decision) -> list[Note]:
    """What was done, in the order in which it was done."""
    total = sum(map(operations, decision.loop.body.jaxpr.eqns)) or 1.0
    found: list[Note] = []
    pairs = zip(decision.splits, decision.bodies, strict=False)
    for split, before in pairs:
        found += _of_split(split, before, total)
    if decision.together > 1:
        text = f"XLA runs {decision.together} steps at a time: fewer, larger launches."
        found.append(Note("together", text))
    large = [note for note in found if note.share >= SMALL or not note.of_work]
    return list(dict.fromkeys(large or found))


def _of_split(split: Split, before: Loop, total: float) -> list[Note]:
    steps = f"all {before.length:,} steps"
    if split.name == "hoist":
        kinds = kinds_of(parts_of(before))
        fixed = [e for e in split.moved if kinds[e.outvars[0]] == "fixed"]
        free = [e for e in split.moved if kinds[e.outvars[0]] != "fixed"]
        return [
            *_note(
                "hoist",
                free,
                f"{{they}} no carry, so {{are}} computed for {steps} at once, "
                "before the loop.",
                total,
                "needs",
                "need",
            ),
            *_note(
                "hoist",
                fixed,
                "{they} the same in every step, so computed once, before the loop, "
                f"instead of {before.length:,} times.",
                total,
                "is",
                "are",
            ),
        ]
    moved = split.moved
    if split.name == "sink":
        text = f"{{they}} only y, so {{are}} computed for {steps} at once, at the end."
        return _note("sink", moved, text, total, "feeds", "feed")
    if split.name == "accumulate" and moved:
        text = (
            "{they} only added up over the steps, so the loop leaves that to one "
            f"large product over {steps}, at the end."
        )
        return _note("accumulate", moved, text, total, "is", "are")
    if split.name == "ahead":
        text = (
            "{they} carries that need no other carry. Those run first, in a small "
            f"loop of their own, so that {{this}} can be done for {steps} at once."
        )
        return _note("ahead", moved, text, 0.0, "needs", "need")
    if split.name == "simplify":
        return _simplified(before, split.loop)
    if split.name == "derive":
        count = len(before.y_avals) - len(split.loop.y_avals)
        what = "1 value follows" if count == 1 else f"{count} values follow"
        text = (
            f"Of what a gradient needs of each step, {what} from the others by a few "
            "operations, and so need not be stored."
        )
        return [Note("derive", text)]
    return [Note(split.name, _sentence(note)) for note in split.notes]


def _simplified(before: Loop, after: Loop) -> list[Note]:
    found = []
    if carries := before.num_carry - after.num_carry:
        one = "No step changes one part of the carry, so it is a constant of the loop."
        many = f"No step changes {carries} carries, so they are constants of the loop."
        found.append(one if carries == 1 else many)
    if ys := len(before.y_avals) - len(after.y_avals):
        what = "One output is" if ys == 1 else f"{ys} outputs are"
        found.append(f"{what} there already, as an x, a constant or another output.")
    return [Note("simplify", text) for text in found]


def _note(
    name: str, eqns: Sequence[JaxprEqn], text: str, total: float, one: str, many: str
) -> list[Note]:
    if not eqns:
        return []
    expressions = dict.fromkeys(map(compat.expression_of, eqns))
    known = [text for text in expressions if text != UNKNOWN] or list(expressions)
    places = _outermost(known)
    single = len(places) == 1
    words = {
        "they": one if single else many,
        "are": "is" if single else "are",
        "this": "it" if single else "they",
    }
    share = sum(map(operations, eqns)) / total if total else 0.0
    told = f"{_listed(places)} {text.format(**words)}"
    return [Note(name, told, share, of_work=total > 0)]


def _outermost(expressions: Iterable[str]) -> list[str]:
    """Those that are no part of another one on the same line."""

    def is_inside(one: str, other: str) -> bool:
        (code, _, place), (more, _, there) = (
            text.rpartition(", ") for text in (one, other)
        )
        return one != other and place == there and code in more

    found = list(expressions)
    return [one for one in found if not any(is_inside(one, other) for other in found)]


def _listed(expressions: list[str]) -> str:
    """ "`x @ W` (rnn.py:31)", and so on for a few of them."""
    named = [_quoted(text) for text in expressions[:NAMED]]
    if (more := len(expressions) - NAMED) > 0:
        named.append(f"{more} more")
    if len(named) == 1:
        return named[0]
    return f"{', '.join(named[:-1])} and {named[-1]}"


def _quoted(expression: str) -> str:
    code, _, place = expression.rpartition(", ")
    if code:
        return f"`{code}` ({place})"
    return "what JAX itself adds" if place == UNKNOWN else f"what {place} computes"


def _sentence(note: str) -> str:
    return f"{note[:1].upper()}{note[1:]}."
