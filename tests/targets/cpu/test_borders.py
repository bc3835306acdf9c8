"""For which loops predictions are trusted, and which are tried."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import lax
from kernels import kernel_of, loop_in, plan_of

from onescan import switches
from onescan.targets.cpu import borders, current
from onescan.targets.cpu.borders import FROM_MEMORY, KNOWN, OTHERS, WALKS
from onescan.tune.choose import Border

ROW, WIDE, HUGE, FAR = (jnp.ones(n) for n in (512, 1 << 14, 1 << 18, 1 << 19))
MATRIX = jnp.ones((128, 128))


def looped(step: Callable[..., Any], carry: Any) -> tuple[Callable[..., Any], Any]:
    return lambda c: lax.scan(lambda c, _: (step(c), None), c, None, 50), carry


def of_lanes(c: Any) -> Any:
    rows = jnp.ones((c.size, 50))  # time lies inside the lanes
    return jax.vmap(lambda c, xs: lax.scan(lambda c, x: (c * x, c), c, xs))(c, rows)


CASES = {
    "lanes": (*looped(jnp.sin, WIDE), KNOWN),
    "small values": (*looped(lambda c: c - c.mean(), ROW), KNOWN),
    "one thread, wide values": (*looped(lambda c: c - c.mean(), WIDE), WALKS),
    "and much of them": (*looped(lambda c: jnp.cumsum(c)[::-1], HUGE), FROM_MEMORY),
    "and carried": (*looped(lambda c: c - c.mean(), FAR), FROM_MEMORY),
    "a large product": (*looped(lambda c: jnp.tanh(c @ c), MATRIX), WALKS),
    "half precision": (*looped(jnp.sin, WIDE.astype("float16")), OTHERS),
    "a sort": (*looped(jnp.sort, ROW), OTHERS),
    "time inside": (of_lanes, WIDE, OTHERS),
}


@pytest.mark.parametrize("case", CASES)
def test_borders(case: str) -> None:
    f, carry, expected = CASES[case]
    assert border_of(f, carry) == expected


def test_long_kernels_are_tried_if_they_promise_something() -> None:
    f, carry, _ = CASES["a sort"]
    assert border_of(f, carry, size=borders.LONG - 1).hopeless < borders.LONG_IS_WORTH
    assert border_of(f, carry, size=borders.LONG).hopeless == borders.LONG_IS_WORTH


def border_of(f: Callable[..., Any], carry: Any, size: int = 0) -> Border:
    loop = loop_in(f, carry)
    plan = plan_of(loop.replace(added_axes=int(f is of_lanes)))
    profile = kernel_of(plan).profile
    assert profile is not None
    return borders.border(plan, profile, size)


def test_what_xla_turns_takes_it_longer() -> None:
    """Where a batch lies in front of time, XLA reads numbers that lie far apart."""
    loop = loop_in(of_lanes, WIDE)
    ratios = []
    for axes in (0, 1):
        plan = plan_of(loop.replace(added_axes=axes))
        assert bool(plan.batch_major) == bool(axes)
        choice = current().choice(plan, kernel_of(plan), switches.current())
        assert choice is not None
        ratios.append(choice.speed.xla)
    assert ratios[1] > ratios[0]
