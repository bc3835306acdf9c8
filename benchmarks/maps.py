"""Maps: almost no work per step, so that what a step costs is the loop itself."""

from __future__ import annotations

import jax.numpy as jnp
from case import Case, uniform

STEPS = 10_000
STACKED = 200_000


def logistic(scan, unroll, x0):
    """The logistic map where it settles (r = 3.5): rounding does not grow."""

    def step(x, _):
        return 3.5 * x * (1.0 - x), None

    last, _ = scan(step, x0, None, length=STEPS, unroll=unroll)
    return last


def stack_scalar(scan, unroll, x0):
    """A long loop whose only result is one stacked scalar per step."""

    def step(x, _):
        x = 0.999 * x + 0.1
        return x, x

    _, xs = scan(step, x0, None, length=STACKED, unroll=unroll)
    return xs


def _lanes(n: int) -> Case:
    return Case(
        name=f"logistic/{n}",
        steps=STEPS,
        build=lambda: (logistic, (uniform(0, n, low=0.1, high=0.9),)),
        ops=3 * n,
        bytes=0,
        kernel="logistic",
        sizes=(STEPS, n),
    )


CASES = [
    Case(
        name="logistic/scalar",
        steps=STEPS,
        build=lambda: (logistic, (jnp.float32(0.3),)),
        ops=3,
        bytes=0,
        kernel="logistic_scalar",
        sizes=(STEPS,),
    ),
    *(_lanes(n) for n in (4, 16, 64, 256, 1024, 4096)),
    Case(
        name="stack/scalar",
        steps=STACKED,
        build=lambda: (stack_scalar, (jnp.float32(0.3),)),
        ops=2,
        bytes=4,
        kernel="stack_scalar",
        sizes=(STACKED,),
    ),
]
