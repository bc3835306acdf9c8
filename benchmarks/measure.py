"""One case through every engine: compile, compare the results, and time."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any

import jax
import limits
import native_c
import numba_versions
import numpy as np
import torch_versions
from case import Case
from differences import difference, plain
from timing import Timing, in_turns

import onescan

STOCK, ONESCAN, C, NUMBA, CUDNN = "stock", "onescan", "C", "Numba", "cuDNN"
FAILED = "failed"
WRONG = 1e-3  # relative; well above rounding in every case
CPU_VERSIONS = ((C, native_c), (NUMBA, numba_versions))
GPU_VERSIONS = ((CUDNN, torch_versions),)


@dataclass(frozen=True)
class Plan:
    """What of each case to measure."""

    engine: str = "auto"  # of onescan
    unrolls: tuple[int, ...] = (4, 16)  # of stock, besides 1
    seconds: float = 0.4  # for each engine and case
    gpu: bool = False  # cuDNN for comparison, rather than C and Numba


@dataclass(frozen=True)
class CompileTime:
    trace: float
    lower: float
    compile: float

    @property
    def total(self) -> float:
        return self.trace + self.lower + self.compile


@dataclass
class Result:
    case: Case
    timings: dict[str, Timing] = field(default_factory=dict)
    compile_times: dict[str, CompileTime] = field(default_factory=dict)
    differences: dict[str, float] = field(default_factory=dict)  # from stock
    engine: str = ""
    why: str = ""
    least: float | None = None  # seconds of one step at the chip's limit

    def ns(self, name: str) -> float | None:
        """Nanoseconds of one step."""
        timing = self.timings.get(name)
        return timing and 1e9 * timing.seconds / self.case.steps

    @property
    def best_stock(self) -> str:
        names = [name for name in self.timings if name.startswith(STOCK)]
        return min(names, key=lambda name: self.timings[name].seconds, default=STOCK)

    def ratio(self, name: str, to: str = STOCK) -> float | None:
        """How many times faster than stock, or than another engine."""
        if name not in self.timings or to not in self.timings:
            return None
        return self.timings[to].seconds / self.timings[name].seconds

    @property
    def share(self) -> float | None:
        """Of the chip's limit that onescan reaches."""
        timing = self.timings.get(ONESCAN)
        if timing is None or self.least is None:
            return None
        return self.least * self.case.steps / timing.seconds

    @property
    def wrong(self) -> dict[str, float]:
        """The engines whose results are not stock's."""
        return {k: v for k, v in self.differences.items() if not v <= WRONG}

    def to_dict(self) -> dict[str, Any]:
        case = self.case
        return {
            "name": case.name,
            "steps": case.steps,
            "ops_per_step": case.ops,
            "bytes_per_step": case.bytes,
            "least_ns_per_step": self.least and 1e9 * self.least,
            "share_of_limit": self.share,
            "ns_per_step": {name: self.ns(name) for name in self.timings},
            "fastest_ns_per_step": {
                name: 1e9 * t.fastest / case.steps for name, t in self.timings.items()
            },
            "spread": {name: t.spread for name, t in self.timings.items()},
            "ratio_to_stock": {name: self.ratio(name) for name in self.timings},
            "ratio_to_best_stock": self.ratio(ONESCAN, self.best_stock),
            "best_stock": self.best_stock,
            "compile_seconds": {k: asdict(v) for k, v in self.compile_times.items()},
            "differences": self.differences,
            "engine": self.engine,
            "why": self.why,
        }


def measure(case: Case, plan: Plan, say: Callable[[str], None]) -> Result:
    """All there is to know about one case; `say` hears what is being done."""
    result = Result(case)
    fn, args = case.build()
    runs: dict[str, Callable[[], Any]] = {}

    say("compiling stock")
    jax.jit(partial(fn, jax.lax.scan, 1)).trace(*args)  # fills jnp's own caches
    run = _compiled(result, STOCK, partial(fn, jax.lax.scan, 1), args)
    runs[STOCK] = run
    expected = _exactly(fn, jax.lax.scan, args) if plan.gpu else _fetched(run())
    for unroll in plan.unrolls:
        say(f"compiling stock, unroll {unroll}")
        name = f"{STOCK} unroll {unroll}"
        runs[name] = _compiled(result, name, partial(fn, jax.lax.scan, unroll), args)

    say("compiling onescan")
    if run := _compiled_by_onescan(result, fn, args, plan.engine):
        runs[ONESCAN] = run

    if plan.gpu and ONESCAN in runs:
        say("comparing")
        with onescan.engine(plan.engine):
            found = _exactly(fn, onescan.scan, args)
        result.differences[ONESCAN] = difference(found, expected, case.agree)
    for name, run in runs.items():
        if name != STOCK and not plan.gpu:
            found = _fetched(run())
            result.differences[name] = difference(found, expected, case.agree)

    for name, versions in GPU_VERSIONS if plan.gpu else CPU_VERSIONS:
        say(f"compiling {name}")
        try:
            runs |= _yardstick(result, name, versions, args, expected)
        except Exception as error:  # costs a column, not the case
            result.why += f" {name} failed: {type(error).__name__}: {error}"

    say("timing")
    if plan.gpu:
        result.timings = in_turns(runs, plan.seconds, _wait)
    else:
        waiting = {name: partial(_finished, run) for name, run in runs.items()}
        result.timings = in_turns(waiting, plan.seconds)
    if plan.gpu and (chip := limits.chip()):
        result.least = limits.least_seconds(case, chip)
    return result


def _finished(run: Callable[[], Any]) -> Any:
    return jax.block_until_ready(run())


def _wait(started: Any) -> None:
    """For a GPU, which has done all when it has done the last."""
    jax.block_until_ready(started)
    torch_versions.wait()


def _yardstick(
    result: Result, name: str, versions: Any, args: Any, expected: Any
) -> dict[str, Callable[[], Any]]:
    """A version of the case written by hand, if there is one."""
    case = result.case
    inputs = [np.asarray(leaf) for leaf in jax.tree.leaves(plain(args))]
    outputs = [np.zeros_like(leaf) for leaf in jax.tree.leaves(expected)]
    run = case.kernel and versions.version(case.kernel, case.sizes, inputs, outputs)
    if not run:
        return {}
    run()
    leaves = jax.tree.leaves(expected)
    result.differences[name] = difference(outputs, leaves, case.agree)
    return {name: run}


def _exactly(fn: Callable[..., Any], scan: Callable[..., Any], args: Any) -> Any:
    """The results with full float32 products, where XLA's default on GPUs is TF32."""
    with jax.default_matmul_precision("highest"):
        return _fetched(jax.jit(partial(fn, scan, 1))(*args))


def _fetched(results: Any) -> Any:
    return jax.device_get(plain(results))


def _compiled_by_onescan(
    result: Result, fn: Callable[..., Any], args: tuple[Any, ...], engine: str
) -> Callable[[], Any] | None:
    """Onescan's run, or None where it has none; a failure must not end the suite."""
    onescan.clear_report()
    try:
        with onescan.engine(engine), warnings.catch_warnings():
            # The report has the same text, and the table shows it.
            warnings.simplefilter("ignore", onescan.EngineWarning)
            run = _compiled(result, ONESCAN, partial(fn, onescan.scan, 1), args)
        _finished(run)
    except onescan.EngineError as error:
        result.engine, result.why = "none", str(error)
    except Exception as error:
        result.engine, result.why = FAILED, f"{type(error).__name__}: {error}"
    else:
        result.engine, result.why = _engine_and_why(onescan.report().rows)
        return run
    return None


def _compiled(
    result: Result, name: str, fn: Callable[..., Any], args: tuple[Any, ...]
) -> Callable[[], Any]:
    """A call of the compiled function, which may return before it is done."""
    start = time.perf_counter()
    traced = jax.jit(fn).trace(*args)
    after_trace = time.perf_counter()
    lowered = traced.lower()
    after_lower = time.perf_counter()
    compiled = lowered.compile()
    end = time.perf_counter()
    result.compile_times[name] = CompileTime(
        after_trace - start, after_lower - after_trace, end - after_lower
    )
    return lambda: compiled(*args)


def _engine_and_why(rows: tuple[Any, ...]) -> tuple[str, str]:
    """The engine of a case's loops (a gradient has two), and why if it is XLA."""
    engines = [row.engine for row in rows]
    reasons = dict.fromkeys(row.reason for row in rows if row.reason)
    names = dict.fromkeys(engines)
    if len(names) == 1:
        engine = engines[0]
    else:
        engine = " + ".join(f"{engines.count(name)} {name}" for name in names)
    return engine, "; ".join(reasons)
