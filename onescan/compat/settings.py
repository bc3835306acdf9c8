"""JAX's own settings and versions."""

from __future__ import annotations

from typing import Any

import jax
import jaxlib
from jax._src import config as _config
from jax._src.lax import lax as _lax

from onescan.version import VERSION


def jit_disabled() -> bool:
    """Whether `jax.disable_jit` is in force here."""
    return bool(_config.disable_jit.value)


def versions() -> tuple[str, ...]:
    """Of what compiles and runs a program."""
    return jax.__version__, jaxlib.__version__, VERSION


def x64_enabled() -> bool:
    """Whether 64-bit types are in force here."""
    return bool(_config.enable_x64.value)


def weak(array: jax.Array) -> Any:
    """The same array with the weak type that Python numbers have."""
    return _lax._convert_element_type(array, array.dtype, weak_type=True)
