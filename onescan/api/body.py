"""`Body`: what JAX traces in place of the user's function.

JAX keeps one trace per body function, so the same function must get the same
`Body` every time, or a loop called twice would be traced twice.  A `Body` holds
no reference to the function, only its name, code and signature, so that it (and
JAX's traces with it) goes away together with the function.  The function itself
comes from the `Call` in progress.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextlib import suppress
from contextvars import ContextVar, Token
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

from onescan import compat
from onescan.api.carry import trouble_with
from onescan.naming import function_name

Function = Callable[[Any, Any], Any]


@dataclass
class Call:
    """One call of `scan`, and what was seen when JAX last traced its function."""

    f: Function
    traces: int = 0
    trouble: str | None = None  # why JAX will refuse what the function returned
    _token: Token[Call] | None = field(default=None, repr=False)

    def __enter__(self) -> Call:
        self._token = _in_progress.set(self)
        return self

    def __exit__(self, *_: object) -> None:
        assert self._token is not None
        _in_progress.reset(self._token)


_in_progress: ContextVar[Call] = ContextVar("onescan.scan")
_bodies: WeakKeyDictionary[Function, Body] = WeakKeyDictionary()


class Body:
    """The user's function, without our mark on the loops inside it, and watched."""

    def __init__(self, f: Function) -> None:
        self.__name__, code = function_name(f)
        if code is not None:
            self.__code__ = code  # where JAX reads the file and line
        try:
            self.__signature__ = inspect.signature(f)
        except (TypeError, ValueError):  # not known for some builtins
            self.__signature__ = None

    def __repr__(self) -> str:
        return f"<built-in function {self.__name__}>"  # read where there is no code

    def __call__(self, carry: Any, x: Any) -> Any:
        call = _in_progress.get()
        call.traces += 1
        call.trouble = None
        with compat.unmarked():
            result = call.f(carry, x)  # what it raises itself is no trouble of ours
        call.trouble = trouble_with(carry, result, call.f, first=call.traces == 1)
        return result


def body_of(f: Function) -> Body:
    """The one `Body` of a function."""
    try:
        if f not in _bodies:
            _bodies[f] = Body(f)
        return _bodies[f]
    except TypeError:  # not hashable, or without weak references
        return Body(f)


def forget(f: Function) -> None:
    """Let the next call trace the function anew, so that it sees the trouble anew."""
    with suppress(TypeError):  # the same
        _bodies.pop(f, None)
