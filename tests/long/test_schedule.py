"""Schedules of checkpointing: whole loops, within their budgets, as deep as needed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onescan.long import schedule as s
from onescan.long.schedule import Part

STEPS = st.integers(1, 10**6)


def steps_of(schedule):
    assert all(size > 0 for part in schedule for size in part.sizes)
    return sum(part.steps for part in schedule)


@given(STEPS, st.integers(1, 2000))
def test_every_schedule_has_all_steps(steps, count):
    made = s.segments(steps, count), s.square_root(steps), s.logarithmic(steps)
    assert [steps_of(schedule) for schedule in made] == [steps] * 3
    assert made[0][0].sizes[0] <= count


@given(STEPS)
def test_memory_is_the_square_root_or_the_logarithm(steps):
    assert s.peak(s.square_root(steps), 1, 1) <= 3 * steps**0.5 + 3
    assert s.peak(s.logarithmic(steps), 1, 1) <= 400
    assert s.recomputed(s.square_root(steps)) <= steps


@given(STEPS, st.integers(1, 10**6), st.integers(0, 50), st.integers(0, 200))
def test_a_budget_is_kept(steps, budget, carry, more):
    step = max(1, carry + more)
    schedule = s.within(steps, budget, carry, step)
    if schedule is None:
        assert s.least(steps, carry, step) > budget
    else:
        assert steps_of(schedule) == steps
        assert s.peak(schedule, carry, step) <= budget


@given(st.integers(1, 10**5), st.integers(2, 20), st.integers(2, 20))
def test_more_memory_means_no_more_work(steps, carry, more):
    step = carry + more
    low = s.least(steps, carry, step)
    work = [
        s.recomputed(found)
        for budget in (low, 2 * low, 8 * low, steps * step)
        if (found := s.within(steps, budget, carry, step)) is not None
    ]
    assert work[-1] == 0
    assert all(more <= fewer * 1.01 + 2 for fewer, more in zip(work, work[1:]))  # noqa: B905, RUF007


def test_peak_counts_what_is_held_at_once():
    assert s.peak((Part((10,)),), 3, 5) == 50
    assert s.peak((Part((10, 20)),), 3, 5) == 30 + 100
    assert s.peak((Part((10, 4, 20)),), 3, 5) == 30 + 12 + 100
    # the last part runs backwards while the carries of the first are still held
    assert s.peak((Part((10, 2)), Part((30,))), 3, 5) == 30 + 150
    assert s.recomputed((Part((10, 4, 20)), Part((30,)))) == 1600


@pytest.mark.parametrize(
    ("schedule", "sizes"),
    [
        (s.segments(10, 3), [(2, 4), (2,)]),
        (s.segments(10, 100), [(10, 1)]),
        (s.square_root(1_000_000), [(1000, 1000)]),
        (s.logarithmic(1_000_000), [(10, 10, 10, 10, 100)]),
        (s.within(1000, 1000, 1, 1), [(1000,)]),
        (s.within(1000, 10, 1, 1), None),
    ],
)
def test_known_schedules(schedule, sizes):
    assert (schedule and [part.sizes for part in schedule]) == sizes


@pytest.mark.parametrize("steps", [5, 64, 200, 1000, 4096, 5000, 100_000])
def test_log_never_holds_more_than_sqrt(steps):
    ways = s.logarithmic, s.square_root
    log, sqrt = (s.peak(way(steps), 8, 16) for way in ways)
    assert log <= sqrt
