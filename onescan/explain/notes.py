"""What the passes did to the user's lines, in sentences for people.

Each sentence names the user's own expressions and lines, says what was done with
them and why that is allowed, which part of a step's work it is, and what it is worth.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from jax.extend.core import JaxprEqn

from onescan import compat
from onescan.explain.decide import Decision
from onescan.explain.gains import Prices
from onescan.explain.words import duration, percent
from onescan.loop import Loop, nbytes
from onescan.passes.overtime import kinds_of
from onescan.passes.split import Split, parts_of
from onescan.passes.worth import operations

#: expressions that one sentence names
NAMED = 3
#: of a step's operations, what is too little to be told of beside the rest
SMALL = 0.005
#: seconds of a step below which a saving is none
NOTICED = 1e-10
#: what stands for an operation that no line of the user's led to
UNKNOWN = "an unknown line"


@dataclass(frozen=True)
class Note:
    """Something that was done to a loop."""

    name: str  # of the pass
    text: str
    share: float = 0.0  # of a step's operations
    of_work: bool = False  # whether it moved work, which has a share
    saved: float | None = None  # seconds of a step, about; None where not known

    def __str__(self) -> str:
        part = f"This is {percent(self.share)} of a step's work" if self.share else ""
        worth = "" if self.saved is None else _worth(self.saved)
        told = f"{part}; {worth}" if part and worth else part or _capital(worth)
        return f"{self.text} {told}." if told else self.text


def _worth(saved: float) -> str:
    """What is won, which is less than nothing where memory is slower than computing."""
    if saved < NOTICED:
        return "it is worth little time"
    return f"it saves about {duration(saved)} a step"


def notes_of(decision: Decision) -> list[Note]:
    """What was done, in the order in which it was done."""
    total = sum(map(operations, decision.loop.body.jaxpr.eqns)) or 1.0
    prices = Prices.of(decision)
    found: list[Note] = []
    pairs = zip(decision.splits, decision.bodies, strict=False)
    for split, before in pairs:
        found += _of_split(split, before, total, prices)
    if decision.together > 1:
        text = f"XLA runs {decision.together} steps at a time: fewer, larger launches."
        found.append(Note("together", text))
    large = [note for note in found if note.share >= SMALL or not note.of_work]
    return list(dict.fromkeys(large or found))


def _of_split(
    split: Split, before: Loop, total: float, prices: Prices | None
) -> list[Note]:
    steps = f"all {before.length:,} steps"

    def told(
        eqns: Sequence[JaxprEqn], text: str, verbs: tuple[str, str], once: bool = False
    ) -> list[Note]:
        saved = None
        if prices is not None:
            outside = 0.0 if once else prices.outside(eqns, split.extra)
            saved = prices.inside(eqns) - outside
        return _note(split.name, eqns, text, total, *verbs, saved)

    if split.name == "hoist":
        kinds = kinds_of(parts_of(before))
        fixed = [e for e in split.moved if kinds[e.outvars[0]] == "fixed"]
        free = [e for e in split.moved if kinds[e.outvars[0]] != "fixed"]
        batched = (
            f"{{they}} no carry, so {{are}} computed for {steps} at once, "
            "before the loop."
        )
        only_once = (
            "{they} the same in every step, so computed once, before the loop, "
            f"instead of {before.length:,} times."
        )
        return [
            *told(free, batched, ("needs", "need")),
            *told(fixed, only_once, ("is", "are"), once=True),
        ]
    moved = split.moved
    if split.name == "sink":
        text = f"{{they}} only y, so {{are}} computed for {steps} at once, at the end."
        return told(moved, text, ("feeds", "feed"))
    if split.name == "accumulate" and moved:
        text = (
            "{they} only added up over the steps, so the loop leaves that to one "
            f"large product over {steps}, at the end."
        )
        return told(moved, text, ("is", "are"))
    if split.name == "ahead":
        text = (
            "{they} carries that need no other carry. Those run first, in a small "
            f"loop of their own, so that {{this}} can be done for {steps} at once."
        )
        return _note("ahead", moved, text, 0.0, "needs", "need")
    if split.name == "simplify":
        return _simplified(before, split.loop, prices)
    if split.name == "derive":
        count = len(before.y_avals) - len(split.loop.y_avals)
        what = "1 value follows" if count == 1 else f"{count} values follow"
        text = (
            f"Of what a gradient needs of each step, {what} from the others by a few "
            "operations, and so need not be stored."
        )
        return [Note("derive", text, saved=_unstored(before, split.loop, prices))]
    return [Note(split.name, _sentence(note)) for note in split.notes]


def _unstored(before: Loop, after: Loop, prices: Prices | None) -> float | None:
    """Seconds of a step whose results are fewer bytes than before."""
    fewer = nbytes(before.y_avals) - nbytes(after.y_avals)
    return None if prices is None else prices.streamed(fewer)


def _simplified(before: Loop, after: Loop, prices: Prices | None) -> list[Note]:
    found: list[Note] = []
    if carries := before.num_carry - after.num_carry:
        one = "No step changes one part of the carry, so it is a constant of the loop."
        many = f"No step changes {carries} carries, so they are constants of the loop."
        found.append(Note("simplify", one if carries == 1 else many))
    if ys := len(before.y_avals) - len(after.y_avals):
        what = "One output is" if ys == 1 else f"{ys} outputs are"
        text = f"{what} there already, as an x, a constant or another output."
        found.append(Note("simplify", text, saved=_unstored(before, after, prices)))
    return found


def _note(
    name: str,
    eqns: Sequence[JaxprEqn],
    text: str,
    total: float,
    one: str,
    many: str,
    saved: float | None = None,
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
    return [Note(name, told, share, of_work=total > 0, saved=saved)]


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
    return f"{_capital(note)}."


def _capital(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}"
