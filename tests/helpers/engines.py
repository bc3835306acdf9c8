"""Running one function under both engines, and holding one against the other.

Integers, bools and keys are equal or wrong.  Floats are compared in units in the
last place; where XLA itself is further off than that, the same function in float64
is the judge.  NaN, infinities and the sign of zero are equal or wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import keystr, tree_flatten_with_path

from onescan import switches
from onescan.targets.cpu.target import Cpu
from onescan.targets.nvidia.target import Nvidia

FLOATS = ("float16", "bfloat16", "float32", "float64")
INTS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")


@contextmanager
def kernels_alone() -> Iterator[None]:
    """Double precision, and no pass that moves work out of the kernel."""
    with jax.enable_x64(True), without_passes():
        yield


@contextmanager
def without_passes() -> Iterator[None]:
    """Kernels of loops as they are written."""
    none = (mock.patch.object(target, "passes", ()) for target in (Cpu, Nvidia))
    with next(none), next(none):
        yield


def run(name: str, f: Callable[..., Any], *args: Any) -> Any:
    """The results of `f`, its loops compiled by one engine; "native" takes all.

    Those of `lax` as well, or stock JAX would be compared with itself.
    """
    options = {"xla_backend_optimization_level": 0} if name == "xla" else None
    jitted = jax.jit(lambda *xs: f(*xs), compiler_options=options)
    with switches.using(engine=name, installed=True):
        return jax.block_until_ready(jitted(*args))


def assert_engines_agree(f: Callable[..., Any], *args: Any, ulps: int = 0) -> Any:
    """Both engines give the same types and values; the native results come back."""
    native, xla = run("native", f, *args), run("xla", f, *args)
    assert_same(native, xla, ulps)
    return native


def assert_same(native: Any, xla: Any, ulps: int = 0, exact: Any = None) -> None:
    """Equal types and, within `ulps`, equal values, against `xla` or `exact`."""
    assert jax.tree.structure(native) == jax.tree.structure(xla)
    judges = jax.tree.leaves(xla) if exact is None else jax.tree.leaves(exact)
    paths = [keystr(path) for path, _ in tree_flatten_with_path(xla)[0]]
    trouble = []
    for path, a, b, judge in zip(
        paths, jax.tree.leaves(native), jax.tree.leaves(xla), judges, strict=True
    ):
        assert jax.typeof(a) == jax.typeof(b), path  # shape, dtype and weak type
        if message := difference(plain(a), plain(b), ulps, plain(judge)):
            trouble.append(f"{path}: {message}")
    assert not trouble, "\n".join(trouble)


def plain(x: Any) -> np.ndarray:
    """Keys as their data, which NumPy can compare."""
    if jnp.issubdtype(jax.typeof(x).dtype, jax.dtypes.prng_key):
        x = jax.random.key_data(x)
    return np.asarray(x)


def difference(
    a: np.ndarray,
    b: np.ndarray,
    ulps: int,
    judge: np.ndarray | None = None,
    floor: float = 0.0,
) -> str | None:
    """What is wrong with `a`: it is neither what `b` nor what `judge` says.

    Results smaller than `floor` are held to the units of `floor` itself.
    """
    bad = a != b
    if jnp.issubdtype(a.dtype, jnp.floating):
        bad = _bad_floats(a, b, ulps, floor)
        if judge is not None:
            bad &= _bad_floats(a, judge, ulps, floor)
    if not np.any(bad):
        return None
    where = tuple(int(i) for i in np.argwhere(bad)[0])
    return (
        f"{np.count_nonzero(bad)} of {a.size} differ, first at {where}: "
        f"native {a[where]!r}, xla {b[where]!r}"
        + ("" if judge is None else f", exactly {judge[where]!r}")
    )


def _bad_floats(a: np.ndarray, b: np.ndarray, ulps: int, floor: float) -> np.ndarray:
    """Further apart than `ulps`; a result too small to be normal may be zero."""
    distance = np.abs(_ordered(a) - _ordered(b))
    far = (distance > ulps) | (np.isinf(a) != np.isinf(b))
    with np.errstate(invalid="ignore"):  # bits that are a signalling NaN
        wide_a, wide_b = a.astype(np.float64), b.astype(np.float64)
        apart = np.abs(wide_a - wide_b)
    tiny = float(jnp.finfo(a.dtype).tiny)
    far &= ~((np.abs(wide_a) <= tiny) & (np.abs(wide_b) <= tiny))
    far &= ~(apart <= ulps * floor * float(jnp.finfo(a.dtype).eps))
    far |= (wide_a == 0) & (wide_b == 0) & (np.signbit(wide_a) != np.signbit(wide_b))
    return np.where(np.isnan(a) | np.isnan(b), np.isnan(a) != np.isnan(b), far)


def _ordered(x: np.ndarray) -> np.ndarray:
    """Floats as whole numbers that count units in the last place."""
    bits = x.view(f"i{x.dtype.itemsize}").astype(object)
    lowest = -(1 << (8 * x.dtype.itemsize - 1))
    return np.where(bits < 0, lowest - bits, bits)


def is_subnormal(x: np.ndarray) -> np.ndarray:
    """XLA's threads take these for zeros; its functions do so only in part."""
    if not jnp.issubdtype(x.dtype, jnp.floating):
        return np.zeros(x.shape, bool)
    with np.errstate(invalid="ignore"):  # NaN, which only some NumPys mind
        return (x != 0) & (np.abs(x) < jnp.finfo(x.dtype).tiny)


def edge_values(dtype: str) -> np.ndarray:
    """The numbers of a type at which things go wrong."""
    if dtype == "bool":
        return np.array([False, True])
    if dtype in INTS:
        info = np.iinfo(dtype)
        bits = info.bits
        some = {0, 1, 2, 3, 7, 100, bits - 1, bits, bits + 1, info.max, info.max - 1}
        some |= {-1, -2, -7, info.min, info.min + 1} if info.min else set()
        return np.array(sorted(n for n in some if n <= info.max), dtype)
    info = jnp.finfo(dtype)
    some = [0.0, -0.0, 1, -1, 0.5, -0.5, 1.5, 2.5, -2.5, 3, 0.99, -3.7, 10, 88, -88]
    some += [np.inf, -np.inf, np.nan, float(info.max), -float(info.max)]
    some += [float(info.tiny), -float(info.tiny), float(info.tiny) / 4, np.pi, 1e-3]
    return np.array(some).astype(jnp.dtype(dtype))


def values(
    dtype: str, shape: tuple[int, ...], seed: int = 0, edges: bool = True
) -> Any:
    """Numbers of a type: edge values and ordinary ones, mixed by a seed."""
    rng = np.random.default_rng([seed, len(shape), *shape])
    if dtype == "bool":
        return rng.random(shape) < 0.5
    if dtype in INTS:
        info = np.iinfo(dtype)
        low, high = (info.min, info.max) if edges else (0 if not info.min else -9, 9)
        ordinary = rng.integers(low, high, shape, dtype=dtype, endpoint=True)
    else:
        size = rng.choice([0.01, 1.0, 10.0], shape) if edges else 1.0
        ordinary = (rng.standard_normal(shape) * size).astype(jnp.dtype(dtype))
    if not edges:
        return np.asarray(ordinary)
    special = rng.choice(edge_values(dtype), shape)
    return np.where(rng.random(shape) < 0.6, special, ordinary).astype(ordinary.dtype)
