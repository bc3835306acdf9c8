"""Everything onescan raises.

A user who catches what `jax.lax.scan` raises keeps catching it: each error is
both a `ScanError` and the built-in class that JAX uses in that place.
"""

from __future__ import annotations


class ScanError(Exception):
    """Base class of every error that onescan raises."""


class ScanTypeError(ScanError, TypeError):
    """The types, shapes or containers of a loop do not fit together."""


class ScanValueError(ScanError, ValueError):
    """A value given to `scan` is out of its range."""


class EngineError(ScanError, RuntimeError):
    """A loop was left to XLA although ``engine("native")`` or strict asked for more."""


class CompilerError(ScanError, RuntimeError):
    """LLVM refused the code of a kernel: a fault of onescan, never of the user."""


class CheckError(ScanError, AssertionError):
    """The native engine and XLA disagree beyond rounding."""


class EngineWarning(UserWarning):
    """The engine failed inside; the loop ran through XLA, and its result is right."""
