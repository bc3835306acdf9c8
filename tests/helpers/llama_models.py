"""Small Llamas for tests, made by NumPy: nothing to compile."""

from __future__ import annotations

import jax
import numpy as np

from examples.llama.config import Config
from examples.llama.params import Llama, param_shapes

SMALL = Config(2, 16, 2, 2, 4, 24, 40, dropout=0.2, eos=())


def numpy_params(config: Config = SMALL, dtype="float32", scale: float = 0.2) -> Llama:
    """Random weights, and norms around one."""
    rng = np.random.default_rng(0)

    def draw(path, spec):
        noise = rng.standard_normal(spec.shape) * scale
        return (noise + ("norm" in path[-1].name)).astype(spec.dtype)

    return jax.device_put(jax.tree.map_with_path(draw, param_shapes(config, dtype)))
