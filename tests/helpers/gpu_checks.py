"""Everything that `make test-gpu` checks, by name: no pytest needed.

What is right comes from stock JAX on the same device, with full float32 products
where XLA's default on GPUs is TF32, and from the plain loop, which runs on the CPU.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from importlib.util import find_spec
from typing import Any
from unittest import mock

import fuzz.check
import jax
import numpy as np
from cases import CASES, DIFFERENTIABLE, Case
from compare import assert_same
from engine_variants import CASES as PRIMITIVES
from engine_variants import variants
from engines import is_subnormal, kernels_alone
from every_float import FUNCTIONS, LIMIT, worst_of
from fuzz.check import failures, random_batch
from gpu_matrices import CHECKS as MATRICES
from gpu_programs import PROGRAMS, Skipped
from transforms import OF_DERIVATIVES, TRANSFORMS, by_jax, by_reference

import onescan
import onescan.targets.nvidia.plan

Check = Callable[[], None]

SEEDS, LOOPS = 24, 2  # batches of random loops, and loops of each

#: the least that floats may differ by, in units of `compare`: XLA contracts
#: multiplications and additions on a GPU where it does not on a CPU
CONTRACTED = 1 / 8
#: how much more rounding may differ than between two programs on one CPU
GPU_ROUNDING = 4


@contextmanager
def careful() -> Iterator[None]:
    """Full float32 products, and no failure of the engine goes by unseen."""
    with ExitStack() as stack:
        stack.enter_context(jax.default_matmul_precision("highest"))
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("error", onescan.EngineWarning)
        yield


def named_loop(case: Case, transform: str) -> None:
    """A loop of the table under a transformation, by both oracles."""
    rounding = GPU_ROUNDING * case.rounding
    result = TRANSFORMS[transform](onescan.scan, case)
    with _named("not the plain loop's"), jax.default_device(jax.devices("cpu")[0]):
        weak = transform in ("plain", "jit")
        expected = by_reference(transform, case)
        assert_same(result, expected, rounding=rounding, weak_types=weak)
    with _named("not stock JAX's"):
        assert_same(result, by_jax(transform, case), rounding=rounding)


def primitive(name: str) -> None:
    """A primitive in every kind of loop it can stand in."""
    case = PRIMITIVES[name]
    with kernels_alone():
        todo = variants(case)
        inputs = {n: args for n, (_, args) in todo.items()}

        def everything(args: Any) -> Any:
            return {n: f(*args[n]) for n, (f, _) in todo.items()}

        native, xla = (_run(engine, everything, inputs) for engine in ("auto", "xla"))
        rounding = max(case.rounds, CONTRACTED)
        try:
            assert_same(native, xla, rounding=rounding)
        except AssertionError:
            # XLA for GPUs is no oracle everywhere: that of JAX 0.11.2 gives products
            # of 8-bit integers twice their value
            assert_same(native, _on_cpu(everything, inputs), rounding=rounding)


def operations(dtype: str, kind: str) -> None:
    """All elementwise operations of a type, each as exact as it promises."""
    if not find_spec("mpmath"):
        raise Skipped("mpmath is not installed")
    from engine_operations import trouble_with

    native: Any = None

    def run(engine: str, f: Callable[..., Any], *args: Any) -> Any:
        nonlocal native
        if engine == "native":
            native = _run("auto", f, *args)
            return native
        return _best_of_both(native, f, *args)

    with kernels_alone():
        trouble = trouble_with(dtype, kind, run)
    assert not trouble, "; ".join(trouble)


def every_float(name: str) -> None:
    """An elementary function of all float32 there are."""
    error, where = worst_of(name)
    assert error <= LIMIT, f"off by {error} units in the last place at {where!r}"


def random_loops(seed: int, together: bool) -> None:
    """Random loops, as they are planned or each by a whole block of threads."""
    with ExitStack() as stack:
        stack.enter_context(jax.enable_x64(True))
        if jax.default_backend() == "gpu":  # an option for XLA on CPUs
            stack.enter_context(mock.patch.object(fuzz.check, "CHEAP", None))
        if together:
            no = mock.patch.object(
                onescan.targets.nvidia.plan, "_is_short", return_value=False
            )
            stack.enter_context(no)
        found = failures(random_batch(seed, LOOPS), plainly=False)
    assert not found, f"{found}"


def _best_of_both(native: Any, f: Callable[..., Any], *args: Any) -> Any:
    """What XLA says where it is right: on CPUs, or on GPUs for subnormal numbers.

    XLA for GPUs does not round quotients and roots as IEEE 754 wants it, and XLA for
    CPUs takes subnormal numbers for zeros.  Which bits a NaN has, nobody promises: a
    GPU's conversion to float16 has its own, so those of the native result will do.
    """
    gpu, cpu = jax.device_get((_run("xla", f, *args), _on_cpu(f, *args)))
    tiny = np.any([is_subnormal(np.asarray(x)) for x in args], axis=0)
    best = {}
    for name, there in cpu.items():
        here = np.asarray(gpu[name])
        where = tiny | is_subnormal(here)
        if name.startswith("bits_as"):
            nan = np.isnan(np.asarray(args[0], np.float32))
            here = np.where(nan, np.asarray(native[name]), here)
            where |= nan
        best[name] = jax.numpy.asarray(np.where(where, here, there), there.dtype)
    return best


def _on_cpu(f: Callable[..., Any], *args: Any) -> Any:
    """What XLA's CPU backend says."""
    cpu = jax.devices("cpu")[0]
    with jax.default_device(cpu):
        return _run("xla", f, *jax.device_put(args, cpu))


def _run(engine: Any, f: Callable[..., Any], *args: Any) -> Any:
    with onescan.engine(engine):
        return jax.block_until_ready(jax.jit(lambda *xs: f(*xs))(*args))


@contextmanager
def _named(what: str) -> Iterator[None]:
    try:
        yield
    except AssertionError as error:
        raise AssertionError(f"{what}: {' '.join(str(error).split())}") from None


def all_checks() -> dict[str, Check]:
    """Every check by its name, "group: case, variant"."""
    checks: dict[str, Check] = {
        f"program: {name}": check for name, check in PROGRAMS.items()
    }
    for name, check in MATRICES.items():
        checks[f"matrices: {name}"] = check
    for dtype in ("float16", "bfloat16", "float32", "float64", "int32", "uint8"):
        for kind in ("lanes", "mixed"):
            check = partial(operations, dtype, kind)
            checks[f"elementwise: {dtype}, {kind}"] = check
    for name in FUNCTIONS:
        checks[f"every float32: {name}"] = partial(every_float, name)
    for name, case in CASES.items():
        for transform in TRANSFORMS:
            if name in DIFFERENTIABLE or transform not in OF_DERIVATIVES:
                check = partial(named_loop, case, transform)
                checks[f"loop: {name}, {transform}"] = check
    for name in PRIMITIVES:
        checks[f"primitive: {name}"] = partial(primitive, name)
    for seed in range(SEEDS):
        together = bool(seed % 2)
        name = f"random: seed {seed}, {'blocks' if together else 'as planned'}"
        checks[name] = partial(random_loops, seed, together)
    return checks
