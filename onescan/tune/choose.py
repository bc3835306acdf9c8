"""choose: which engine runs a loop, by prediction and, where that is not sure, a trial.

A kernel is the default.  XLA keeps a loop that it runs several times as fast by
prediction, or clearly faster by measurement.  Only loops are measured that run long
enough to be worth it, and never in a program of several processes, which must all
choose alike.  A choice is never changed within a process.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import jax

from onescan.loop import Loop
from onescan.plan.work import equations
from onescan.tune import store
from onescan.tune.speed import Speed

#: predicted ratio up to which XLA keeps a while loop with others inside, which cannot
#: be measured, and a scan with some (mctx's search by Gumbel's policy is predicted at
#: 0.61 and runs at 0.74, that by MuZero's at 0.86 and 1.46)
NEVER_MEASURED, NEVER_MEASURED_INSIDE = 1.0, 0.65
#: predicted seconds of a call, by the slower engine, from which a loop is worth what
#: measuring costs: a compilation by XLA and a few calls, once on a machine
WORTH = 0.005
#: how much slower than XLA a kernel may be measured, and stay
CLOSE = 1.05


@dataclass(frozen=True)
class Border:
    """How far predictions of a target can be trusted."""

    #: predicted ratios from which on, and up to which, nothing is measured
    sure: float = 2.0
    hopeless: float = 0.1
    #: predicted ratio up to which XLA keeps a loop that is not worth measuring
    slower: float = 0.25


USUAL = Border()


@dataclass(frozen=True)
class Choice:
    """An engine, and how long a step takes by each, predicted or measured."""

    native: bool
    speed: Speed
    #: the name of what is to be measured before it holds, where nobody has
    unmeasured: str | None = None

    @property
    def reason(self) -> str:
        """Why XLA runs a loop."""
        if self.speed.measured:
            return f"XLA is faster, measured on this machine ({self.speed})"
        if (self.speed.ratio or 0.0) > 1.0:  # by less than a border asks for
            return f"a kernel is not expected to be clearly faster ({self.speed})"
        return f"XLA is expected to be faster ({self.speed})"


def choose(
    loop: Loop,
    predicted: Speed,
    may_measure: bool,
    name: Callable[[], str],
    may_try: bool,
    border: Border = USUAL,
) -> Choice:
    """Decide about a loop; `name` says what a measurement would measure.

    Without a trial, by what is known: measured before, or predicted.
    """
    ratio = predicted.ratio or 1.0
    sure = not border.hopeless < ratio < border.sure
    if sure or not (may_measure and _is_worth_it(loop, predicted)):
        least = border.slower
        if _has_whiles(loop):
            unknown = NEVER_MEASURED if loop.is_while else NEVER_MEASURED_INSIDE
            least = max(least, unknown)
        return Choice(ratio > least, predicted)
    key = name()
    measured = _known(key)
    if measured is None:
        return Choice(True, predicted, unmeasured=key if may_try else None)
    return _by(measured)


def settled(choice: Choice, trial: Callable[[], Speed]) -> Choice:
    """A choice that holds, after a trial if nobody made one."""
    key = choice.unmeasured
    if key is None:
        return choice
    measured = _known(key)
    if measured is None:
        measured = _choices[key] = trial()
        if measured.quiet:  # else the next process measures again
            store.write(key, measured)
    return _by(measured)


def _known(key: str) -> Speed | None:
    """What was measured before, in this process or another."""
    if key not in _choices and (times := store.read(key)) is not None:
        _choices[key] = times
    return _choices.get(key)


def _by(measured: Speed) -> Choice:
    assert measured.native is not None
    assert measured.xla is not None
    return Choice(measured.native <= CLOSE * measured.xla, measured)


def _is_worth_it(loop: Loop, predicted: Speed) -> bool:
    """Whether a loop runs long, on work that does not depend on its values."""
    slower = max(predicted.native or 0.0, predicted.xla or 0.0)
    long = slower * loop.about >= WORTH
    return long and not _has_whiles(loop) and jax.process_count() == 1


def _has_whiles(loop: Loop) -> bool:
    """Whether while loops are inside, whose rounds nobody knows."""
    inside = (eqn for jaxpr in loop.rounds for eqn in equations(jaxpr))
    return any(eqn.primitive.name == "while" for eqn in inside)


_choices: dict[str, Speed] = {}
