"""Schedules of checkpointing: how a loop is cut into segments inside segments.

Reverse mode needs the values of all steps, last step first.  A *part* of a loop with
the sizes ``(k1, k2, ..., kd)`` has ``k1 * k2 * ... * kd`` steps: k1 segments, each of
k2 segments, and so on, down to kd steps.  The forward pass keeps the carry at the start
of the k1 segments and forgets the rest; the backward pass runs a segment again when it
needs it, keeping the carry at the start of its k2 segments, and so on.  So the part
holds ``k1 + ... + k(d-1)`` carries and the values of kd steps at a time, and runs each
step d - 1 times more than the plain gradient.  A schedule is a sequence of parts.

With d levels of equal size that is d * steps**(1/d) carries: two levels are the square
root, and with a fixed size the number of levels, and with it the memory, is the
logarithm of the length.  With a budget, the schedule has as few levels as fit, and
the last steps of the loop have one level less, as many of them as fit: no schedule of
nested equal segments in two parts runs fewer steps again.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, isqrt, log, prod

#: segments of a level and steps of an innermost segment in a logarithmic schedule;
#: shorter ones are more levels, that is more time, and kernels not worth their call
BRANCHES, INNERMOST = 16, 64
#: levels beyond which compiling takes longer than anybody waits
DEEPEST = 8
#: last steps that may be left out of a part so that the others divide well
SPARE = 64


@dataclass(frozen=True)
class Part:
    """Steps that are cut alike."""

    sizes: tuple[int, ...]

    @property
    def steps(self) -> int:
        return prod(self.sizes)

    @property
    def recomputed(self) -> int:
        return (len(self.sizes) - 1) * self.steps

    def kept(self, carry: int) -> int:
        """Bytes held from the forward pass on, before a segment runs again."""
        return self.sizes[0] * carry if len(self.sizes) > 1 else 0

    def needed(self, carry: int, step: int) -> int:
        """Bytes held on top of these while the part runs backwards."""
        return sum(self.sizes[1:-1]) * carry + self.sizes[-1] * step


Schedule = tuple[Part, ...]


def peak(schedule: Schedule, carry: int, step: int) -> int:
    """Bytes that the gradient of a loop holds at most.

    `carry` are the bytes of a carry, `step` those that a step leaves for its gradient.
    """
    most = kept = 0
    for part in schedule:
        kept += part.kept(carry)
        most = max(most, kept + part.needed(carry, step))
    return most


def recomputed(schedule: Schedule) -> int:
    """Steps that the gradient runs again."""
    return sum(part.recomputed for part in schedule)


def plain(steps: int) -> Schedule:
    """Every value is kept."""
    return (Part((steps,)),)


def segments(steps: int, count: int) -> Schedule:
    """So many segments, the last of which may be shorter."""
    length = ceil(steps / min(count, steps))
    whole, rest = divmod(steps, length)
    return (Part((whole, length)), *(plain(rest) if rest else ()))


def square_root(steps: int) -> Schedule:
    """As many segments as each has steps, about."""
    return _levels(steps, 2, isqrt(steps)) if steps > 3 else plain(steps)


def logarithmic(steps: int) -> Schedule:
    """Levels of a fixed size, as many as it takes; `square_root` of few steps."""
    if steps <= INNERMOST**2:
        return square_root(steps)
    count = steps / INNERMOST
    outer = ceil(log(count, BRANCHES))
    return _levels(steps, 1 + outer, max(2, round(count ** (1 / outer))))


def within(steps: int, budget: int, carry: int, step: int) -> Schedule | None:
    """The schedule with the fewest recomputed steps that holds at most `budget` bytes.

    None where no schedule fits.
    """
    if steps * step <= budget:
        return plain(steps)
    for levels in range(2, DEEPEST + 1):
        whole = _balanced(steps, levels, carry, step)
        if peak(whole, carry, step) <= budget:
            return _with_longest_tail(whole, steps, levels, budget, carry, step)
    return None


def least(steps: int, carry: int, step: int) -> int:
    """The fewest bytes that any schedule holds."""
    depths = range(1, DEEPEST + 1)
    return min(peak(_balanced(steps, d, carry, step), carry, step) for d in depths)


def _with_longest_tail(
    found: Schedule, steps: int, levels: int, budget: int, carry: int, step: int
) -> Schedule:
    """Give one level less to as many of the last steps as fit."""
    low, high = 0, steps  # a tail of `low` steps fits
    while high - low > max(1, steps // 1000):
        tail = (low + high) // 2
        head = _balanced(steps - tail, levels, carry, step)
        trial = _joined((*head, *_balanced(tail, levels - 1, carry, step)))
        if peak(trial, carry, step) <= budget:
            low = tail
            if recomputed(trial) < recomputed(found):
                found = trial
        else:
            high = tail
    return found


def _joined(schedule: Schedule) -> Schedule:
    """The same with plain parts that follow each other as one."""
    parts: list[Part] = []
    for part in schedule:
        if parts and len(parts[-1].sizes) == len(part.sizes) == 1:
            parts[-1] = Part((parts[-1].steps + part.steps,))
        else:
            parts.append(part)
    return tuple(parts)


def _balanced(steps: int, levels: int, carry: int, step: int) -> Schedule:
    """Levels that hold the same number of bytes each."""
    if levels == 1 or steps < 2**levels:
        return plain(steps)
    ratio = max(step, 1) / max(carry, 1)
    innermost = (steps / ratio ** (levels - 1)) ** (1 / levels)
    outer = (steps / min(max(innermost, 1), steps)) ** (1 / (levels - 1))
    return _levels(steps, levels, max(2, ceil(outer)))


def _levels(steps: int, levels: int, size: int) -> Schedule:
    """Parts of so many levels with about `size` segments in each but the last.

    One part where the length divides well, and a few last steps on their own where
    not: each part is compiled, and copies its share of xs.
    """
    innermost = max(1, round(steps / size ** (levels - 1)))
    for spare in range(1 if levels == 2 else min(innermost, SPARE)):
        if sizes := _divided(steps - spare, levels, size):
            return (Part(sizes), *(plain(spare) if spare else ()))
    inner = (size,) * (levels - 2) + (innermost,)
    first, rest = divmod(steps, prod(inner))
    head = (Part((first, *inner)),) if first else ()
    if not rest or rest <= max(innermost, size):
        return (*head, *(plain(rest) if rest else ()))
    outer = min(levels - 2, ceil(log(rest / innermost, size)))
    return (*head, *(_levels(rest, 1 + outer, size) if outer else plain(rest)))


def _divided(steps: int, levels: int, size: int) -> tuple[int, ...] | None:
    """`steps` as a product, each factor but the last between half and twice `size`."""
    if levels == 1:
        return (steps,)
    by_distance = sorted(
        range(max(2, (size + 1) // 2), 2 * size + 1), key=lambda k: abs(k - size)
    )
    wanted = steps / size ** (levels - 1)
    for factor in by_distance:
        if steps % factor == 0:
            rest = _divided(steps // factor, levels - 1, size)
            if rest and wanted / 2 <= rest[-1] <= 2 * wanted:
                return (factor, *rest)
    return None
