"""Comparing results, with an assertion in every path.

Integers, bools and keys are equal or wrong.  Floats may differ by rounding: by a
few units of the dtype's precision, relative to the largest number of the leaf, so
that sums in another order pass and a wrong number does not.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import keystr, tree_flatten_with_path

UNITS = 64  # of the precision of the dtype
FEW_UNITS = 4  # where one unit is already a percent or a thousandth: 16 bits


def assert_same(
    actual: Any, expected: Any, *, rounding: float = 1.0, weak_types: bool = True
) -> None:
    """The same containers, shapes, dtypes (and weak types), and values."""
    trees = jax.tree.structure(actual), jax.tree.structure(expected)
    assert trees[0] == trees[1], f"containers differ: {trees[0]}, not {trees[1]}"
    paths = [keystr(path) for path, _ in tree_flatten_with_path(expected)[0]]
    leaves = zip(paths, jax.tree.leaves(actual), jax.tree.leaves(expected), strict=True)
    for path, a, e in leaves:
        types = type_of(a, weak_types), type_of(e, weak_types)
        assert types[0] == types[1], (
            f"types of {path} differ: {types[0]}, not {types[1]}"
        )
        _assert_close(np.asarray(_plain(a)), np.asarray(_plain(e)), path, rounding)


def type_of(x: Any, weak_types: bool = True) -> tuple[Any, ...]:
    """Shape and dtype of an array or number, and whether its type is weak."""
    kind = jax.typeof(x)
    return kind.shape, kind.dtype, weak_types and kind.weak_type


def types_of(tree: Any, weak_types: bool = True) -> Any:
    """The types of all leaves, in their containers."""
    return jax.tree.map(lambda x: type_of(x, weak_types), tree)


def _plain(x: Any) -> Any:
    """Keys as their data, which NumPy can compare."""
    if jnp.issubdtype(jax.typeof(x).dtype, jax.dtypes.prng_key):
        return jax.random.key_data(x)
    return x


def _assert_close(a: Any, e: Any, path: str, rounding: float) -> None:
    if not jnp.issubdtype(a.dtype, jnp.inexact) or a.size == 0:
        np.testing.assert_array_equal(a, e, err_msg=path)
        return
    units = FEW_UNITS if jnp.finfo(a.dtype).bits <= 16 else UNITS
    tolerance = units * rounding * float(jnp.finfo(a.dtype).eps)
    wide = np.complex128 if jnp.issubdtype(a.dtype, jnp.complexfloating) else np.float64
    a, e = a.astype(wide), e.astype(wide)
    finite = np.abs(e[np.isfinite(e)])
    scale = finite.max() if finite.size else 1.0
    np.testing.assert_allclose(a, e, rtol=0, atol=tolerance * scale, err_msg=path)
