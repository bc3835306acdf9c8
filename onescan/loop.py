"""`Loop`: one scan or while loop, as every stage behind the hook sees it.

A loop is JAX's own body jaxpr and how its arguments divide, whatever the JAX
version calls them.  The body takes ``(*consts, *carry, *x)`` and returns
``(*carry, *y)``; the loop takes ``(*consts, *carry, *xs)`` and returns
``(*carry, *ys)``.  Passes go from `Loop` to `Loop`.

A while loop is a loop of one step whose body holds it: there is no second way down.
Where stages ask what a step is, `rounds` has its own body and condition.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any, Protocol

import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, Primitive

# JAX types what its variables hold too loosely to be of use: this is what arrays have.


class Aval(Protocol):
    """The type of an array."""

    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def dtype(self) -> np.dtype[Any]: ...
    @property
    def ndim(self) -> int: ...
    @property
    def size(self) -> int: ...


class Atom(Protocol):
    """A variable, or a number that stands in its place (a `Literal`)."""

    @property
    def aval(self) -> Any: ...


class Equation(Protocol):
    """One operation of a body."""

    @property
    def primitive(self) -> Primitive: ...
    @property
    def invars(self) -> Sequence[Any]: ...
    @property
    def outvars(self) -> Sequence[Any]: ...
    @property
    def params(self) -> dict[str, Any]: ...
    @property
    def effects(self) -> Any: ...


INSIDE_JAX = f"{os.sep}jax{os.sep}_src{os.sep}"
LOOPS_OF_USERS = os.path.join("lax", "control_flow")  # fori_loop, map: the user's
ROUNDS_OF_A_DRAW = "rolled_loop_step"  # the body in jax/_src/random/threefry2x32.py
#: rounds of a while loop, where somebody has to guess
ROUNDS = 100


@dataclass(frozen=True, eq=False)
class Loop:
    body: ClosedJaxpr
    num_consts: int
    num_carry: int
    length: int
    reverse: bool
    unroll: int
    name: str  # the user's body function
    source: str  # "file.py:12", where that function is defined
    added_axes: int = 0  # in front of a step's values, by `jax.vmap`, where known
    differentiated: bool = False  # whether JAX made it for a gradient
    is_while: bool = False  # as many rounds as its condition says, in one step
    converted: int = 0  # bytes of a step that are written anew around a kernel
    plain: Loop | None = None  # the same before it was rewritten, as XLA would run it
    #: variables of the body that are the real and the imaginary part of one number
    pairs: frozenset[tuple[Any, Any]] = frozenset()

    @property
    def const_avals(self) -> list[Any]:
        return self.body.in_avals[: self.num_consts]

    @property
    def carry_avals(self) -> list[Any]:
        return self.body.in_avals[self.num_consts : self.num_consts + self.num_carry]

    @property
    def x_avals(self) -> list[Any]:
        return self.body.in_avals[self.num_consts + self.num_carry :]

    @property
    def y_avals(self) -> list[Any]:
        return self.body.out_avals[self.num_carry :]

    @property
    def rounds(self) -> tuple[Jaxpr, ...]:
        """What is done again and again: the body, or that of a while loop."""
        if not self.is_while:
            return (self.body.jaxpr,)
        params = self.whole.params
        return params["body_jaxpr"].jaxpr, params["cond_jaxpr"].jaxpr

    @property
    def whole(self) -> Equation:
        """The equation of a while loop."""
        return next(e for e in self.body.jaxpr.eqns if e.primitive.name == "while")

    def in_steps(self) -> Loop:
        """The same loop; of a while loop some rounds, as steps of a scan."""
        if not self.is_while:
            return self
        params = self.whole.params
        return self.replace(
            body=params["body_jaxpr"],
            num_consts=params["body_nconsts"],
            length=self.about,
            is_while=False,
        )

    @property
    def about(self) -> int:
        """How often that is done, roughly where nobody knows."""
        return ROUNDS if self.is_while else self.length

    def replace(self, **changes: Any) -> Loop:
        return replace(self, **changes)

    def __str__(self) -> str:
        return f"{self.name} ({self.source})"


def is_of_jax(source: str) -> bool:
    """Whether a loop is of JAX's own functions, such as those of its draws."""
    return INSIDE_JAX in source and LOOPS_OF_USERS not in source


def draws(loop: Loop) -> bool:
    """Whether a loop is the rounds of JAX's own generator of random bits."""
    return loop.name == ROUNDS_OF_A_DRAW and is_of_jax(loop.source)


def nbytes(avals: Sequence[Any], times: int = 1) -> int:
    """Bytes that `times` values of each of these types hold together."""
    return times * sum(prod(a.shape) * a.dtype.itemsize for a in avals)


class LeaveToXla(Exception):
    """Raised by a stage that cannot take a loop; the text is the reason."""
