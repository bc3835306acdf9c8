"""The options of a long loop: what is refused, and with which words."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NoReturn

import jax
import jax.numpy as jnp
import numpy as np

from onescan.errors import ScanTypeError, ScanValueError
from onescan.naming import function_name, is_array, thing_name, type_name

UNITS = {"B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
UNITS |= {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}

#: steps that can be counted
MOST = 2**31 - 1


@dataclass(frozen=True)
class Options:
    """What a loop is to do beside its steps; an error where that is not possible."""

    f: Callable[..., Any] = field(repr=False)
    steps: int
    checkpoint: Any = (
        None  # None, a number of segments, "sqrt", "log", or bytes as text
    )
    progress: Any = None  # None, True, a description, a bar, or what makes one
    metrics: Any = None
    until: Any = None
    where: Any = None
    check: Any = None

    def __post_init__(self) -> None:
        if self.progress is False:
            object.__setattr__(self, "progress", None)
        counted = self.progress, self.until, self.check
        if self.steps > MOST and any(option is not None for option in counted):
            self._refuse(
                f"progress, until and check count steps in 32 bits, so {self.steps:,} "
                f"are too many. Run at most {MOST:,} at a time."
            )
        self._look_at_checkpoint()
        self._look_at_progress()
        self._look_at_where()
        if self.until is not None and not callable(self.until):
            self._refuse(
                f"until must be a function of the carry, but it is {self.until!r}. "
                "Write until=lambda carry: ..."
            )
        if self.check is not None and self.check != "finite":
            self._refuse(
                f'check must be "finite", but it is {self.check!r}. To compare both '
                "engines, use onescan.install(check=True)."
            )

    @property
    def budget(self) -> int | None:
        """The bytes that `checkpoint` allows, if it says so."""
        return in_bytes(self.checkpoint) if isinstance(self.checkpoint, str) else None

    def wants_one_bool(self, kind: Any) -> None:
        """Refuse an `until` whose result is of this kind, unless it is one bool."""
        one = is_array_type(kind) and kind.shape == () and kind.dtype == bool
        if not one:
            found = type_name(kind) if is_array_type(kind) else thing_name(kind)
            self._refuse(
                f"until must give one bool, but it gives {found}. Reduce it, as in "
                "jnp.all(...) or jnp.any(...)."
            )

    def wants_numbers(self, kinds: Any) -> None:
        """Refuse `metrics` that do not give a dict of single numbers."""
        fits = isinstance(kinds, dict) and all(
            is_array_type(kind) and kind.shape == () for kind in kinds.values()
        )
        if not fits:
            found = thing_name(kinds)
            if isinstance(kinds, dict):
                odd = {
                    k: v for k, v in kinds.items() if getattr(v, "shape", None) != ()
                }
                found = ", ".join(f"{k!r}: {_kind(v)}" for k, v in odd.items())
            self._refuse(
                "metrics must give a dict of single numbers, but it gives "
                f"{found}. Reduce arrays, as in {{'loss': jnp.mean(...)}}."
            )

    def fits_nowhere(self, least: int) -> NoReturn:
        """Refuse a budget that no schedule fits into."""
        raise ScanValueError(
            f'onescan.scan: checkpoint="{self.checkpoint}" for {function_name(self.f)} '
            f"is too little for the gradient of {self.steps:,} steps, which takes "
            f"{least / 1e6:.3g} MB at least. Give more, or make the carry smaller."
        )

    def _look_at_checkpoint(self) -> None:
        given = self.checkpoint
        known = (
            'a number of segments, "sqrt", "log", or a budget of bytes such as "100MB"'
        )
        if given is None or given in ("sqrt", "log"):
            return
        if isinstance(given, str):
            if in_bytes(given) is None:
                self._refuse(f"checkpoint must be {known}, but it is {given!r}.")
        elif isinstance(given, bool) or not isinstance(given, int | np.integer):
            self._refuse(
                f"checkpoint must be {known}, but it is {given!r}.", ScanTypeError
            )
        elif given < 1:
            self._refuse(f"checkpoint must be at least 1 segment, but it is {given}.")

    def _look_at_progress(self) -> None:
        given = self.progress
        fits = given is None or given is True or isinstance(given, str)
        if not (fits or callable(getattr(given, "update", None)) or callable(given)):
            self._refuse(
                "progress must be True, a description, a bar with an update method as "
                f"tqdm's has, or a function that makes one, but it is {given!r}.",
                ScanTypeError,
            )
        if self.metrics is None:
            return
        if not callable(self.metrics):
            self._refuse(
                f"metrics must be a function (carry, y) -> {{name: number}}, but it is "
                f"{self.metrics!r}.",
                ScanTypeError,
            )
        if given is None:
            self._refuse("metrics are shown by the bar, so they need progress=True.")

    def _look_at_where(self) -> None:
        if self.where is None:
            return
        is_list = isinstance(self.where, list | tuple)
        mask = np.asarray(self.where) if is_list else self.where
        kind = jax.typeof(mask) if is_array(mask) else None
        if kind is None or kind.shape != (self.steps,) or kind.dtype != bool:
            found = thing_name(self.where) if kind is None else type_name(kind)
            self._refuse(
                f"where must be bool[{self.steps}], one bool per step, but it is "
                f"{found}. Make it so, as in where=jnp.arange({self.steps}) < n."
            )
        object.__setattr__(self, "where", jnp.asarray(mask))

    def _refuse(self, what: str, error: type[Exception] = ScanValueError) -> NoReturn:
        raise error(f"onescan.scan: for {function_name(self.f)}, {what}")


def in_bytes(text: str) -> int | None:
    """ "100MB" as a number of bytes; None where the text is something else."""
    found = re.fullmatch(r"\s*(\d+(?:\.\d*)?)\s*([kKMGT]?i?B)\s*", text)
    if found is None:
        return None
    number, unit = found.groups()
    unit = "kB" if unit == "KB" else unit
    return int(float(number) * UNITS[unit]) if unit in UNITS else None


def is_array_type(kind: Any) -> bool:
    return hasattr(kind, "shape") and hasattr(kind, "dtype")


def _kind(thing: Any) -> str:
    return type_name(thing) if is_array_type(thing) else thing_name(thing)
