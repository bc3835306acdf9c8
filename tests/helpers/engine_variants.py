"""The table of primitives, and the loops that each case of it runs in.

Each case runs with its arguments as xs, with all but the first as constants, with
the first as the carry where its type allows, and vmapped over all or one of them,
along the first or the last axis.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from engine_cases import MOVING, PRODUCTS, REDUCING, Case, Type
from engine_cases_control import CONTROL, RANDOM
from engine_cases_indexing import INDEXING
from engine_cases_linalg import LINALG
from engines import values

import onescan

TABLES = {
    "moving": MOVING,
    "reducing": REDUCING,
    "products": PRODUCTS,
    "indexing": INDEXING,
    "control": CONTROL,
    "random": RANDOM,
    "linalg": LINALG,
}
CASES = {f"{t}: {n}": case for t, table in TABLES.items() for n, case in table.items()}
STEPS = 3


def array(kind: Type, leading: tuple[int, ...], trailing: tuple[int, ...], seed: int):
    """An argument with extra axes in front and behind."""
    dtype, shape = kind
    shape = (*leading, *shape, *trailing)
    if dtype.startswith("index"):
        size = int(dtype.split()[1])
        rng = np.random.default_rng(seed)
        return rng.integers(-size - 2, size + 2, shape).astype(np.int32)
    return values(dtype, shape, seed, edges=dtype in ("int32", "uint32"))


def arrays(types: Any, leading: Any = (), trailing: Any = ()) -> list[Any]:
    return [array(kind, leading, trailing, k + 1) for k, kind in enumerate(types)]


def over_xs(f: Callable[..., Any]) -> Callable[..., Any]:
    """y = f(*x) at each step; the carry counts."""
    return lambda *xs: onescan.scan(lambda n, x: (n + 1, f(*x)), 0, xs)


def over_first(f: Callable[..., Any]) -> Callable[..., Any]:
    """y = f(x, *constants) at each step."""
    return lambda xs, *rest: onescan.scan(lambda n, x: (n + 1, f(x, *rest)), 0, xs)


def over_state(f: Callable[..., Any], old: bool = False) -> Callable[..., Any]:
    """carry = f(carry, *x) at each step; y is the carry before, if asked for.

    Without it nobody needs the old carry, and it may be overwritten.
    """
    step = lambda c, x: (f(c, *x), c if old else ())
    return lambda init, *xs: onescan.scan(step, init, xs, length=STEPS)


def variants(case: Case) -> dict[str, tuple[Callable[..., Any], list[Any]]]:
    """What to run: a function and its arguments for each variant."""
    f, types = case.f, case.types
    first, rest = types[:1], types[1:]
    found = {"xs": (over_xs(f), arrays(types, (STEPS,)))}
    if rest:
        args = [*arrays(first, (STEPS,)), *arrays(rest)]
        found["consts"] = (over_first(f), args)
        axes = (0, *[None] * len(rest))
        args = [*arrays(first, (5, STEPS)), *arrays(rest)]
        found["vmap of first"] = (jax.vmap(over_first(f), axes), args)
    found["vmap"] = (jax.vmap(over_xs(f)), arrays(types, (17, STEPS)))
    if case.state:
        args = [*arrays(first), *arrays(rest, (STEPS,))]
        found["state"] = (over_state(f), args)
        args = [*arrays(first, (), (5,)), *arrays(rest, (STEPS,), (5,))]
        found["vmap of state"] = (jax.vmap(over_state(f), -1, -1), args)
        found["vmap of old state"] = (jax.vmap(over_state(f, True), -1, -1), args)
        args = [*arrays(first, (), (3,)), *arrays(rest, (STEPS,))]
        axes = (-1, *[None] * len(rest))
        found["vmap of first state"] = (jax.vmap(over_state(f), axes), args)
    return found
