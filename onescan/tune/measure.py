"""measure: both engines on this machine, in turns, on made-up values.

The values are numbers between 0 and 1 and zeros for integers, so a loop whose work
depends on its values is timed on other work than it will do; `choose` does not ask for
those with a `while` in them.  Weights are so small that what they are multiplied with,
step after step, stays finite: what is not takes some kernels longer.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import jax
import numpy as np

try:
    import resource
except ImportError:  # Windows
    resource = None

from onescan import switches
from onescan.loop import Aval
from onescan.tune.speed import Speed

#: seconds that the calls of one measurement may take, on a machine that is quiet and on
#: one where others take our turns, of which the least times still say something
SECONDS, SECONDS_BUSY = 0.06, 0.12
#: seconds of one call of each from which little of a time is by chance
LASTS = 0.1
#: times a second that others may take a turn of ours: a busy process for each of two
#: cores takes 100 to 130, on a quiet machine there are 0 to 15
INTERRUPTED = 40
#: calls of each engine, at least and at most
FEWEST, MOST = 3, 20
#: ratio of their times from which two calls are enough, where the kernel is ahead, and
#: where it is behind
CLEAR, CLEARLY_BEHIND = 1.5, 6.0
#: seconds that the first call of a program of XLA's may take beyond others (of GRUs in
#: a training step 0.1 of 0.15, of `dynamax/hmm em` 0.17 of 0.2)
COLD = 0.3
#: calls of a kernel that seems to lose before that is clear: the first ones, of those
#: with large results, are given memory that nobody has touched
LOSING = 6
#: different numbers that an array of them has
VARIETY = 4096


@dataclass(frozen=True)
class Trial:
    """A function that runs so many steps on arrays of these types."""

    function: Callable[..., Any]
    types: Sequence[Any]
    steps: int
    #: the largest numbers of some arrays, by their places; of others it is 1
    scales: Mapping[int, float] = field(default_factory=dict)


def measured(native: Trial, xla: Trial) -> Speed:
    """Seconds of a step of two functions, which are compiled at the same time."""
    with ThreadPoolExecutor(1) as beside:
        with switches.using(engine="xla"):  # as stock JAX has it, inner loops included
            waiting = beside.submit(_lowered(xla).compile)
        calls = [_lowered(native).compile(), waiting.result()]
    some = [_made_up_all(trial) for trial in (native, xla)]
    others = Others()
    ours, theirs = _in_turns(
        [partial(f, *args) for f, args in zip(calls, some, strict=True)],
        (native.steps, xla.steps),
        others,
    )
    return Speed(ours, theirs, measured=True, quiet=not others.disturb)


class Others:
    """Other processes, which took processors from this one since now."""

    def __init__(self) -> None:
        self._start, self._before = time.perf_counter(), _turns_taken()

    @property
    def disturb(self) -> bool:
        """Whether they take so many turns that times are theirs as much as ours."""
        taken = _turns_taken() - self._before
        return taken > 2 + INTERRUPTED * (time.perf_counter() - self._start)


def _turns_taken() -> int:
    """How often a thread of this process had to leave a processor before its end."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw if resource else 0


def _in_turns(
    calls: Sequence[Callable[[], Any]], steps: Sequence[int], others: Others
) -> list[float]:
    """The least time of a step of two calls, made in turns until it is clear."""
    start = time.perf_counter()
    first = _round(calls, steps)
    lasts = time.perf_counter() - start > LASTS
    if first[1] - COLD / steps[1] > CLEAR * first[0]:
        return first
    least, rounds, start = _round(calls, steps), 1, time.perf_counter()
    while rounds < MOST:
        enough = least[0] < least[1] or rounds >= LOSING
        limit = SECONDS_BUSY if others.disturb else SECONDS
        fewest = 2 if lasts else FEWEST
        late = rounds >= fewest and time.perf_counter() - start > limit
        if late or _ratio(least) >= (CLEAR if enough else CLEARLY_BEHIND):
            break
        least, rounds = list(map(min, least, _round(calls, steps))), rounds + 1
    return least


def _round(calls: Sequence[Callable[[], Any]], steps: Sequence[int]) -> list[float]:
    taken = []
    for call, count in zip(calls, steps, strict=True):
        start = time.perf_counter()
        jax.block_until_ready(call())
        taken.append((time.perf_counter() - start) / count)
    return taken


def _ratio(times: Sequence[float]) -> float:
    return max(times) / max(min(times), 1e-12)


def _lowered(trial: Trial) -> Any:
    return jax.jit(lambda *xs: trial.function(*xs)).lower(*trial.types)


def _made_up_all(trial: Trial) -> Sequence[Any]:
    return jax.device_put(
        [
            _made_up(aval, k, trial.scales.get(k, 1.0))
            for k, aval in enumerate(trial.types)
        ]
    )


def _made_up(aval: Aval, seed: int, scale: float) -> np.ndarray:
    shape, dtype = tuple(aval.shape), np.dtype(aval.dtype)
    if not jax.numpy.issubdtype(dtype, np.inexact):
        return np.zeros(shape, dtype)
    some = scale * np.random.default_rng(seed).random(VARIETY, np.float32)
    return np.resize(some.astype(dtype), shape)
