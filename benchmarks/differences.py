"""How far two results are apart."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np


def difference(found: Any, expected: Any, agree: float = 1.0) -> float:
    """The largest error relative to each leaf's size, over the share that agrees."""
    worst = 0.0
    pairs = zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True)
    for a, b in pairs:
        a, b = _wide(a), _wide(b)
        if a.shape != b.shape:
            return np.inf
        if not b.size:
            continue
        size = np.maximum(np.abs(b), np.sqrt(np.mean(np.abs(b) ** 2)) + 1e-30)
        with np.errstate(invalid="ignore"):
            apart = np.where(a == b, 0, np.abs(a - b))  # NaN agrees with nothing
        error = np.quantile(apart / size, agree, method="lower")
        worst = max(worst, float(error)) if np.isfinite(error) else np.inf
    return worst


def plain(tree: Any) -> Any:
    """Random keys as the numbers they are made of."""
    return jax.tree.map(
        lambda x: (
            jax.random.key_data(x)
            if jax.dtypes.issubdtype(x.dtype, jax.dtypes.prng_key)
            else x
        ),
        tree,
    )


def _wide(x: Any) -> np.ndarray:
    x = np.asarray(x)
    return x.astype(complex if np.iscomplexobj(x) else float)
