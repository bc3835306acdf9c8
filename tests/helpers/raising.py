"""Errors of `scan`: catching them, and comparing them with what JAX raises."""

from __future__ import annotations

import re
from typing import Any

import jax
import pytest

import onescan
from onescan import ScanError
from onescan.api import reference


def where(f: Any) -> str:
    """How messages name a function: its name, file and line."""
    return f"{f.__name__} ({f.__code__.co_filename}:{f.__code__.co_firstlineno})"


def same(c, x):
    return c, x


def error_of(*args: Any, **kwargs: Any) -> ScanError:
    """The error that scan raises; it is also a kind of what JAX raises there."""
    with pytest.raises(ScanError, match=r"^onescan\.scan: ") as ours:
        onescan.scan(*args, **kwargs)
    theirs = _error_of_jax(*args, **kwargs)
    assert theirs is None or isinstance(ours.value, type(theirs))
    return ours.value


def error_of_both(*args: Any, **kwargs: Any) -> ScanError:
    """The same, for an error that the plain loop raises in the same words."""
    error = error_of(*args, **kwargs)
    with pytest.raises(type(error), match=f"^{re.escape(str(error))}$"):
        reference.scan(*args, **kwargs)
    return error


def error_only_ours(*args: Any, **kwargs: Any) -> ScanError:
    """The error of a call that JAX takes."""
    assert _error_of_jax(*args, **kwargs) is None
    return error_of_both(*args, **kwargs)


def _error_of_jax(*args: Any, **kwargs: Any) -> Exception | None:
    try:
        jax.lax.scan(*args, **kwargs)
    except Exception as error:
        return error
    return None
