"""Everything onescan raises.

A user who catches what `jax.lax.scan` raises keeps catching it: each error is
both a `ScanError` and the class that JAX raises in that place.
"""

from __future__ import annotations

import jax


class ScanError(Exception):
    """Base class of every error that onescan raises."""


class ScanTypeError(ScanError, TypeError):
    """The types, shapes or containers of a loop do not fit together."""


class ScanValueError(ScanError, ValueError):
    """A value given to `scan` is out of its range."""


class NoLeadingAxisError(ScanValueError, IndexError):
    """A leaf of `xs` has no leading axis to scan over."""


class TracedNumberError(ScanTypeError, jax.errors.ConcretizationTypeError):
    """`length` or `unroll` is only known when the compiled program runs."""

    def __init__(self, message: str) -> None:
        TypeError.__init__(self, message)  # JAX's own takes a tracer, not a text


class EngineError(ScanError, RuntimeError):
    """A loop was left to XLA although ``engine("native")`` or strict asked for more."""


class CheckpointError(ScanError, RuntimeError):
    """A directory of checkpoints cannot be used; nothing in it was changed."""


class CheckError(ScanError, AssertionError):
    """The native engine and XLA disagree beyond rounding."""


class NonFiniteError(ScanError, FloatingPointError):
    """A step of a loop with ``check="finite"`` made a NaN or an infinity.

    `record` is what `onescan.first_nonfinite` gives. From a compiled program the error
    arrives as JAX's own (`jax.errors.JaxRuntimeError`), with the same text.
    """

    def __init__(self, message: str, record: object = None) -> None:
        super().__init__(message)
        self.record = record


class EngineWarning(UserWarning):
    """The engine failed inside; the loop ran through XLA, and its result is right."""
