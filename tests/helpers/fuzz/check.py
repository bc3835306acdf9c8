"""Run random loops under the native engine, and hold them to both oracles.

Several loops of one length go through one compilation, because compiling is what
takes the time.  The oracles are stock `jax.lax.scan` and the plain Python loop of
`onescan.api.reference`.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from engines import without_passes

import onescan
from fuzz.generate import generate
from fuzz.program import Program
from onescan.api import reference

#: XLA's own code generation is not what is tested
CHEAP = {"xla_backend_optimization_level": 0}
HALVES = (jnp.float16, jnp.bfloat16)
Mode = Literal["plain", "vmap", "grad", "jvp", "twice"]
#: modes of the long runs and how often each is tried; "twice" is a vmap of a vmap
MODES: dict[Mode, float] = {
    "plain": 0.4,
    "vmap": 0.25,
    "twice": 0.1,
    "grad": 0.15,
    "jvp": 0.1,
}
#: numbers of steps of the long runs
LENGTHS = (0, 1, 2, 2, 3, 3, 5, 7, 8, 17, 40)
LONG = 1000
#: how far results may be apart, relative to 1 or to the largest of them
TOLERANCE = {"float64": 1e-9, "float32": 3e-4, "float16": 0.1, "bfloat16": 0.5}


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
        length=LONG if long else int(rng.choice(LENGTHS)),
        lanes=int(rng.choice([1, 2, 3, 5, 8, 17, 33])),
    )


def _generated(mode: Mode) -> str:
    return {"jvp": "grad", "twice": "vmap"}.get(mode, mode)


def inputs(batch: Batch) -> list[tuple[Any, Any, Any]]:
    """For each loop its constants, first carry and xs; lanes come second in xs."""
    lanes = {"vmap": (batch.lanes,), "twice": (batch.lanes, 2)}.get(batch.mode, ())
    return [
        (
            tuple(p.numbers(v, ()) for v in p.consts),
            tuple(p.numbers(v, lanes) for v in p.carry),
            tuple(p.numbers(v, (batch.length, *lanes)) for v in p.xs),
        )
        for p in batch.programs
    ]


def run(batch: Batch, scan: Callable[..., Any], args: Any) -> list[Any]:
    """The results of each loop under one scan."""
    return [
        _run(batch, program, scan, *arg)
        for program, arg in zip(batch.programs, args, strict=True)
    ]


def _run(batch: Batch, program: Program, scan: Any, consts: Any, init: Any, xs: Any):
    def loop(consts: Any, init: Any, xs: Any) -> Any:
        body = program.body(consts)
        return scan(body, init, xs, length=batch.length, reverse=batch.reverse)

    if batch.mode == "vmap" and batch.lanes_first:
        turn = lambda tree: jax.tree.map(lambda x: jnp.swapaxes(x, 0, 1), tree)
        last, ys = jax.vmap(loop, (None, 0, 0))(consts, init, turn(xs))
        return last, turn(ys)
    if batch.mode == "vmap":
        return jax.vmap(loop, (None, 0, 1), (0, 1))(consts, init, xs)
    if batch.mode == "twice":
        inner = jax.vmap(loop, (None, -1, -1), -1)
        turn = lambda tree: jax.tree.map(lambda x: jnp.moveaxis(x, 1, -1), tree)
        last, ys = jax.vmap(inner, (None, 0, 1), (0, 1))(consts, turn(init), _last(xs))
        return _second(last), jax.tree.map(lambda y: jnp.moveaxis(y, -1, 2), ys)
    if batch.mode == "plain":
        return loop(consts, init, xs)
    everything = [*consts, *init, *xs]
    floats = [x for x in everything if jnp.issubdtype(x.dtype, jnp.floating)]

    def total(floats: list[Any]) -> Any:
        rest = iter(floats)
        is_float = lambda x: jnp.issubdtype(x.dtype, jnp.floating)
        renew = lambda xs: tuple(next(rest) if is_float(x) else x for x in xs)
        results = loop(renew(consts), renew(init), renew(xs))
        sums = [jnp.sin(r).sum() for r in jax.tree.leaves(results) if is_float(r)]
        return sum(sums, jnp.float64(0))

    if batch.mode == "jvp":
        ones = [jnp.ones_like(x) for x in floats]
        return jax.jvp(total, (floats,), (ones,))
    return jax.value_and_grad(total)(floats)


def _last(tree: Any) -> Any:
    """The inner lanes of xs, which come third, moved to the end."""
    return jax.tree.map(lambda x: jnp.moveaxis(x, 2, -1), tree)


def _second(tree: Any) -> Any:
    """The inner lanes of a carry, at the end, moved behind the outer ones."""
    return jax.tree.map(lambda x: jnp.moveaxis(x, -1, 1), tree)


def by_reference(batch: Batch, args: Any) -> list[Any]:
    """All loops together as one plain Python loop with a compiled body.

    Constants travel with the carry, so that XLA does not fold what it does with
    them: JAX 0.10 counts the leading zeros of a negative constant as -32.
    """

    def body(state: Any, xs: Any) -> Any:
        constants, carries = state
        results = [
            _body(batch, p, consts)(c, x)
            for p, consts, c, x in zip(
                batch.programs, constants, carries, xs, strict=True
            )
        ]
        carries, ys = zip(*results, strict=True)
        return (constants, carries), ys

    constants, inits, xs = (tuple(a[k] for a in args) for k in range(3))
    step = jax.jit(body, compiler_options=CHEAP)
    (_, carries), ys = reference.scan(
        step, (constants, inits), xs, batch.length, batch.reverse
    )
    return list(zip(carries, ys, strict=True))


def _body(batch: Batch, program: Program, consts: Any) -> Callable[..., Any]:
    body = program.body(consts)
    if batch.mode == "twice":
        return jax.vmap(jax.vmap(body))
    return jax.vmap(body) if batch.mode == "vmap" else body


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
    engine = "native" if batch.length else "auto"  # a loop with no steps is XLA's
    with onescan.engine(engine), _passes(batch.passes):
        native = ours(args)
    stock = jax.jit(lambda a: run(batch, jax.lax.scan, a), compiler_options=CHEAP)
    oracles = {"lax.scan": stock(args)}
    if plainly and batch.mode not in ("grad", "jvp") and 0 < batch.length < LONG:
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
    return found


def _has_halves(results: Any) -> bool:
    return any(leaf.dtype in HALVES for leaf in jax.tree.leaves(results))


def difference(native: Any, oracle: Any) -> str | None:
    """The first leaf that is not the same, if there is one."""
    for k, (a, b) in enumerate(
        zip(jax.tree.leaves(native), jax.tree.leaves(oracle), strict=True)
    ):
        a, b = np.asarray(a), np.asarray(b)
        if (a.shape, a.dtype) != (b.shape, b.dtype):
            return f"leaf {k}: {a.dtype}{a.shape} instead of {b.dtype}{b.shape}"
        bad = a != b
        if jnp.issubdtype(a.dtype, jnp.floating):
            bad = ~_close(a.astype(np.float64), b.astype(np.float64), a.dtype.name)
        if bad.any():
            where = tuple(int(i) for i in np.argwhere(bad)[0])
            return f"leaf {k} at {where}: {a[where]!r} instead of {b[where]!r}"
    return None


def _close(a: np.ndarray, b: np.ndarray, dtype: str) -> np.ndarray:
    finite = np.abs(b[np.isfinite(b)])
    scale = max(1.0, float(finite.max())) if finite.size else 1.0
    with np.errstate(invalid="ignore"):
        near = np.abs(a - b) <= TOLERANCE[dtype] * scale
    return near | (a == b) | (np.isnan(a) & np.isnan(b))
