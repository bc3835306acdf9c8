"""Run random loops under the native engine, and hold them to both oracles.

Several loops of one length go through one compilation, because compiling is what
takes the time.  The oracles are stock `jax.lax.scan` and the plain Python loop of
`onescan.api.reference`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from engines import without_passes

import onescan
from fuzz.generate import generate
from fuzz.program import Program, Value
from fuzz.transforms import (
    GRADIENTS,
    TOLD,
    WHILES,
    Mode,
    called,
    constant_axes,
    lanes_of,
    rounds_of,
)
from onescan import switches
from onescan.api import reference

#: XLA's own code generation is not what is tested
CHEAP = {"xla_backend_optimization_level": 0}
HALVES = (jnp.float16, jnp.bfloat16)
#: modes of the long runs and how often each is tried
MODES: dict[Mode, float] = {
    "plain": 0.3,
    "vmap": 0.14,
    "twice": 0.06,
    "axes": 0.1,
    "grad": 0.1,
    "jvp": 0.06,
    "grad of vmap": 0.05,
    "vmap of grad": 0.04,
    "remat": 0.03,
    "while": 0.05,
    "lanes": 0.05,
    "effects": 0.02,
}
#: numbers of steps of the long runs
LENGTHS = (0, 1, 2, 2, 3, 3, 5, 7, 8, 17, 40, 100)
LONG = 1000
#: how far results may be apart, relative to 1 or to the largest of them
TOLERANCE = {"float64": 1e-9, "float32": 3e-4, "float16": 0.1, "bfloat16": 0.5}
#: how many times further than a rounding of its first carry moves it
AMPLIFIED = 100.0


@dataclass(frozen=True)
class Batch:
    """Loops that are compiled together."""

    programs: tuple[Program, ...]
    seed: int
    mode: Mode
    length: int
    reverse: bool
    lanes: int
    passes: bool
    lanes_first: bool = False  # outside of a vmapped loop, in front of time

    def replace(self, **changes: Any) -> Batch:
        return replace(self, **changes)


def random_batch(seed: int, size: int) -> Batch:
    """The batch of a seed."""
    rng = np.random.default_rng(seed)
    mode = ("plain", "vmap", "grad")[rng.choice(3, p=[0.5, 0.35, 0.15])]
    return Batch(
        tuple(generate((seed, k), mode) for k in range(size)),
        seed,
        mode,
        length=int(rng.integers(1, 7, endpoint=True)),
        reverse=bool(rng.random() < 0.3),
        lanes=int(rng.choice([2, 3, 5, 8, 17, 33])),
        passes=bool(rng.random() < 0.5),
        lanes_first=bool(rng.random() < 0.5),
    )


def wide_batch(seed: int, size: int) -> Batch:
    """A batch for long runs: more transformations, from no step to a thousand."""
    rng = np.random.default_rng([seed, 1])
    mode = rng.choice(list(MODES), p=list(MODES.values()))
    long = mode == "plain" and rng.random() < 0.04
    return random_batch(seed, size).replace(
        mode=str(mode),
        programs=tuple(generate((seed, k), _generated(mode)) for k in range(size)),
        length=LONG if long else max(int(rng.choice(LENGTHS)), int(mode in WHILES)),
        lanes=int(rng.choice([1, 2, 3, 5, 8, 17, 33])),
    )


def _generated(mode: Mode) -> str:
    if mode in WHILES:
        return "while"
    return "grad" if mode in GRADIENTS else mode


def inputs(batch: Batch) -> list[tuple[Any, Any, Any]]:
    """For each loop its constants, first carry and xs; lanes come second in xs."""
    lanes = lanes_of(batch.mode, batch.lanes)
    return [
        (
            tuple(p.numbers(v, k) for v, k in _constants(batch, p, lanes)),
            tuple(p.numbers(v, lanes) for v in p.carry),
            tuple(p.numbers(v, (batch.length, *lanes)) for v in p.xs),
        )
        for p in batch.programs
    ]


def _constants(batch: Batch, program: Program, lanes: Any) -> list[tuple[Value, Any]]:
    """The constants of a loop, each with the lanes that it has."""
    axes = constant_axes(program)
    some = lambda axis: lanes if batch.mode == "axes" and axis is not None else ()
    return [(v, some(axis)) for v, axis in zip(program.consts, axes, strict=True)]


def run(batch: Batch, scan: Callable[..., Any], args: Any) -> list[Any]:
    """The results of each loop under one scan."""
    options = {"length": batch.length, "reverse": batch.reverse}
    return [
        called(batch.mode, program, scan, batch.lanes_first, **options)(*arg)
        for program, arg in zip(batch.programs, args, strict=True)
    ]


def by_reference(batch: Batch, args: Any) -> list[Any]:
    """All loops together as one plain Python loop with a compiled body.

    Constants travel with the carry, so that XLA does not fold what it does with
    them: JAX 0.10 counts the leading zeros of a negative constant as -32.
    """

    def body(state: Any, xs: Any) -> Any:
        k, constants, rounds, carries = state
        results = [
            _step(batch, p)(k < n, consts, c, x)
            for p, consts, n, c, x in zip(
                batch.programs, constants, rounds, carries, xs, strict=True
            )
        ]
        carries, ys = zip(*results, strict=True)
        return (k + 1, constants, rounds, carries), ys

    constants, inits, xs = (tuple(a[k] for a in args) for k in range(3))
    rounds = [_rounds(batch, arrays) for arrays in xs]
    step = jax.jit(body, compiler_options=CHEAP)
    (*_, carries), ys = reference.scan(
        step, (0, constants, rounds, inits), xs, batch.length, batch.reverse
    )
    return list(zip(carries, ys, strict=True))


def _step(batch: Batch, program: Program) -> Callable[..., Any]:
    """One step of a loop, where it is still going on."""

    def step(active: Any, consts: Any, carry: Any, x: Any) -> Any:
        after, ys = program.body(consts)(carry, x)
        if batch.mode not in WHILES:
            return after, ys
        chosen = lambda new, old: jnp.where(active, new, old)
        zeros = jax.tree.map(jnp.zeros_like, ys)
        return jax.tree.map(chosen, after, carry), jax.tree.map(chosen, ys, zeros)

    if batch.mode == "twice":
        return jax.vmap(jax.vmap(step, (None, None, 0, 0)), (None, None, 0, 0))
    axes = constant_axes(program) if batch.mode == "axes" else None
    active = 0 if batch.mode == "lanes" else None
    has_lanes = batch.mode in ("vmap", "axes", "lanes")
    return jax.vmap(step, (active, axes, 0, 0)) if has_lanes else step


def _rounds(batch: Batch, xs: Any) -> Any:
    """How many steps a loop takes, for each lane where these differ."""
    if batch.mode not in WHILES:
        return batch.length
    count = lambda *xs: jnp.asarray(rounds_of(xs, batch.length))
    if batch.mode == "while" or not xs:
        return jnp.broadcast_to(count(*xs), (batch.lanes,) * (batch.mode == "lanes"))
    return jax.vmap(count, 1)(*xs)


def _passes(on: bool) -> AbstractContextManager[Any]:
    return nullcontext() if on else without_passes()


def failures(batch: Batch, plainly: bool = True) -> dict[int, str]:
    """What is wrong with each loop of a batch that is wrong.

    Needs double precision.  `plainly` asks the plain loop, too.  Where there are floats
    of 16 bits, that is right whatever stock says: XLA leaves out roundings between
    operations that it fuses, which a loop may make any number of.
    """
    args = inputs(batch)
    ours = jax.jit(lambda a: run(batch, onescan.scan, a), compiler_options=CHEAP)
    # a loop with no steps, or with effects, is XLA's
    engine = "native" if batch.length and batch.mode != "effects" else "auto"
    installed = switches.using(installed=batch.mode in WHILES)
    with installed, onescan.engine(engine), _passes(batch.passes):
        native, told = _with_effects(batch, ours, args)
    stock = jax.jit(lambda a: run(batch, jax.lax.scan, a), compiler_options=CHEAP)
    expected, expected_told = _with_effects(batch, stock, args)
    oracles = {"lax.scan": expected}
    if plainly and batch.mode not in GRADIENTS and 0 < batch.length < LONG:
        oracles["the plain loop"] = by_reference(batch, args)
    found: dict[int, str] = {}
    for name, results in oracles.items():
        for k, (a, b) in enumerate(zip(native, results, strict=True)):
            if trouble := difference(a, b):
                found.setdefault(k, f"not as {name}: {trouble}")
    if plain := oracles.get("the plain loop"):
        halves = [k for k in found if _has_halves(native[k])]
        right = [k for k in halves if not difference(native[k], plain[k])]
        found = {k: trouble for k, trouble in found.items() if k not in right}
    if found:
        moved = stock(_nudged(batch, args))
        slack = [_apart(a, b) for a, b in zip(expected, moved, strict=True)]
        for k in list(found):
            near = (difference(native[k], o[k], slack[k]) for o in oracles.values())
            if not any(near):
                del found[k]
    if len(told) != len(expected_told) or difference(told, expected_told):
        found.setdefault(0, "not as lax.scan: other effects")
    return found


def _nudged(batch: Batch, args: Any) -> Any:
    """The same inputs, with first carries that rounding may have made so.

    What is not continuous never depends on them.
    """

    def nudged(x: Any) -> Any:
        if not jnp.issubdtype(x.dtype, jnp.inexact):
            return x
        return (x * (1 + 4 * float(jnp.finfo(x.dtype).eps))).astype(x.dtype)

    return [(consts, jax.tree.map(nudged, init), xs) for consts, init, xs in args]


def _apart(a: Any, b: Any) -> list[float]:
    """How far the floats of each leaf are apart."""

    def far(x: Any, y: Any) -> float:
        if not jnp.issubdtype(x.dtype, jnp.inexact) or not x.size:
            return 0.0
        distance = np.abs(np.asarray(x, np.complex128) - np.asarray(y, np.complex128))
        return float(np.nan_to_num(distance, posinf=0.0).max())

    leaves = zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
    return [far(x, y) for x, y in leaves]


def _with_effects(batch: Batch, f: Any, args: Any) -> tuple[list[Any], list[Any]]:
    """The results of a batch, and what its loops told meanwhile."""
    TOLD.clear()
    results = f(args)
    if batch.mode == "effects":
        jax.effects_barrier()
    return results, list(TOLD)


def _has_halves(results: Any) -> bool:
    return any(leaf.dtype in HALVES for leaf in jax.tree.leaves(results))


def difference(
    native: Any, oracle: Any, slack: Sequence[float] | None = None
) -> str | None:
    """The first leaf that is not the same, if there is one.

    `slack` is how far rounding moves each, in loops that make much of little.
    """
    for k, (a, b) in enumerate(
        zip(jax.tree.leaves(native), jax.tree.leaves(oracle), strict=True)
    ):
        a, b = np.asarray(a), np.asarray(b)
        if (a.shape, a.dtype) != (b.shape, b.dtype):
            return f"leaf {k}: {a.dtype}{a.shape} instead of {b.dtype}{b.shape}"
        bad = a != b
        if jnp.issubdtype(a.dtype, jnp.complexfloating):
            a, b = (np.stack([x.real, x.imag]) for x in (a, b))
        if jnp.issubdtype(a.dtype, jnp.floating):
            more = AMPLIFIED * slack[k] if slack else 0.0
            wide = a.astype(np.float64), b.astype(np.float64)
            bad = ~_close(*wide, a.dtype.name, more)
        if bad.any():
            where = tuple(int(i) for i in np.argwhere(bad)[0])
            return f"leaf {k} at {where}: {a[where]!r} instead of {b[where]!r}"
    return None


def _close(a: np.ndarray, b: np.ndarray, dtype: str, more: float) -> np.ndarray:
    finite = np.abs(b[np.isfinite(b)])
    scale = max(1.0, float(finite.max())) if finite.size else 1.0
    with np.errstate(invalid="ignore"):
        near = np.abs(a - b) <= TOLERANCE[dtype] * scale + more
    return near | (a == b) | (np.isnan(a) & np.isnan(b))
