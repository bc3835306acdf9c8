"""The switches of a process or region: which loops are ours, and which engine.

The value is part of JAX's own cache keys, so a function compiled under one
setting is compiled again, not reused, under another.  A region inside a function that
is being traced also marks the loops traced in it, because JAX lowers them later, when
the region is over.
"""

from __future__ import annotations

from ast import literal_eval
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any, Literal, get_args

import jax

from onescan import compat
from onescan.errors import ScanValueError

Engine = Literal["auto", "xla", "native"]


@dataclass(frozen=True)
class Settings:
    """What decides how a loop is lowered."""

    engine: Engine | str = "auto"
    installed: bool = False  # take every loop of JAX, not only onescan.scan
    strict: bool = False  # a loop left to XLA is an error
    check: bool = False  # run both engines and compare
    sequential: bool = False  # every recurrence in the order of its steps
    memory: int | None = None  # bytes for what passes take out of a loop
    tune: bool = True  # measure both engines where a prediction is not sure
    # of loops around each other, now; with 0 only what was measured before is known
    trials: int = 2
    in_xla: bool = False  # the loop is part of another one that XLA runs

    @property
    def may_measure(self) -> bool:
        """Whether a measurement may decide, made now or before."""
        return self.tune and self.engine == "auto" and not self.check


# Kept apart, so that install() inside a region is not undone by it.
_process = jax.make_user_context(Settings())
_region = jax.make_user_context(())  # of the user's: ((field, value), ...)
_forced = jax.make_user_context(())  # of the engine's own work, over any region
_CONTEXTS = (_process, _region, _forced)


def current() -> Settings:
    """The settings in force here and now."""
    return replace(_process.value, **dict(_region.value) | dict(_forced.value))


def kept() -> Callable[[Callable[[], Any]], Any]:
    """What calls a function, later, with the settings that are in force now."""
    contexts: list[Any] = [partial(context, context.value) for context in _CONTEXTS]
    contexts.append(partial(jax.enable_x64, compat.x64_enabled()))

    def call(function: Callable[[], Any]) -> Any:
        with ExitStack() as stack:
            for context in contexts:
                stack.enter_context(context())
            return function()

    return call


@contextmanager
def using(**changes: Any) -> Iterator[None]:
    """Settings for work of our own, whatever the user's regions say."""
    with _forced(_merged(_forced.value, changes)):
        yield


@contextmanager
def region(**changes: Any) -> Iterator[None]:
    """The settings of a region of the user's, and of the loops traced in it."""
    texts = {name: str(value) for name, value in changes.items()}
    with _region(_merged(_region.value, changes)), compat.traced_in_region(texts):
        yield


@contextmanager
def region_of(ctx: Any) -> Iterator[None]:
    """The settings that the loop being lowered was traced with."""
    texts = compat.region_of(ctx)
    known = [field.name for field in fields(Settings) if field.name in texts]
    changes = {
        name: texts[name] if name == "engine" else literal_eval(texts[name])
        for name in known
    }
    with _region(_merged(_region.value, changes)):
        yield


def _merged(before: tuple[Any, ...], changes: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(sorted((dict(before) | changes).items()))


def set_globally(**changes: Any) -> None:
    """Change the settings of the whole process."""
    _process.set_global(replace(_process.value, **changes))


def install(*, strict: bool = False, check: bool = False) -> None:
    """Let onescan take every `jax.lax.scan` and `while_loop` of this process.

    Loops inside libraries are taken too. Functions compiled earlier are compiled
    again on their next call. Undo with `uninstall`.

    >>> import onescan
    >>> onescan.install()
    >>> onescan.is_installed()
    True
    >>> onescan.uninstall()
    """
    set_globally(installed=True, strict=strict, check=check)


def uninstall() -> None:
    """Undo `install`; `onescan.scan` keeps working."""
    set_globally(installed=False, strict=False, check=False)


def is_installed() -> bool:
    """Whether every `jax.lax.scan` is taken here."""
    return current().installed


@contextmanager
def engine(name: Engine | str) -> Iterator[None]:
    """Choose the engine for the loops of this region.

    "auto" takes the native engine where it can and gains, "xla" is stock JAX,
    and "native" raises `EngineError` with the reason where the native engine
    cannot take a loop. "interpreter" runs the plan of a loop in NumPy, tile by tile:
    very slow, and an oracle for those who work on plans. Around a call of a function,
    the region holds for all loops of the function. Inside a function that is compiled,
    it holds for the loops in it, whatever region the function is called in:

    >>> import jax, jax.numpy as jnp, onescan
    >>> @jax.jit
    ... def f(xs):
    ...     total, _ = onescan.scan(lambda c, x: (c + x, None), 0.0, xs)
    ...     with onescan.engine("xla"):
    ...         most, _ = onescan.scan(lambda c, x: (jnp.maximum(c, x), None), 0.0, xs)
    ...     return total, most
    """
    from onescan.targets import everywhere  # which looks at the settings

    names = (*get_args(Engine), *everywhere())
    if name not in names:
        raise ScanValueError(
            f'onescan.engine: "{name}" is not an engine. '
            f"Choose one of {', '.join(names)}."
        )
    with region(engine=name):
        yield


@contextmanager
def options(
    *,
    sequential: bool | None = None,
    memory: int | None = None,
    tune: bool | None = None,
) -> Iterator[None]:
    """Choose what the passes may do to the loops of this region.

    `sequential` keeps the order of the steps in every recurrence. Without it, a
    device with many more threads than a loop has lanes solves a recurrence such as
    ``c = a * c + x`` for chunks of time at once, which rounds differently.

    `memory` is the number of bytes that the work taken out of a loop may wait in;
    more is done in chunks of time. The default is twice what the loop holds, and
    at least 64 MiB.

    `tune` says whether both engines may be timed for a long loop that either might
    run faster, once for each kernel and machine. Without it the choice is predicted,
    and the same in every process.

    >>> import onescan
    >>> with onescan.options(sequential=True, memory=1 << 30):
    ...     carry, ys = onescan.scan(lambda c, x: (c + x, c), 0, [1, 2, 3])
    """
    if memory is not None and memory < 0:
        raise ScanValueError(
            f"onescan.options: memory is {memory}, and cannot be less than 0 bytes."
        )
    chosen = {"sequential": sequential, "memory": memory, "tune": tune}
    with region(**{k: v for k, v in chosen.items() if v is not None}):
        yield
