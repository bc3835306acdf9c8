"""`Program`: a whole JAX program, as a user has it, that both engines run.

A program is written with `jax.lax.scan` and with the loops of libraries; nothing in
it knows of onescan.  `build` makes the function and its arguments anew.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

Build = Callable[[], tuple[Callable[..., Any], tuple[Any, ...]]]


def everything(result: Any) -> Any:
    return result


@dataclass(frozen=True)
class Program:
    name: str  # "ppo/64": family, size or variant
    build: Build  # -> fn, args
    needs: tuple[str, ...] = ()  # libraries beside JAX
    x64: bool = False
    checked: Callable[[Any], Any] = everything  # what of the result has to agree
    tolerance: float = 1e-3  # relative, well above rounding
    agree: float = 1.0  # the share of each result's elements that must be close

    @property
    def missing(self) -> list[str]:
        """The libraries that are not installed here."""
        return [name for name in self.needs if not _is_installed(name)]


def _is_installed(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except ModuleNotFoundError:  # of a package that is not there itself
        return False
