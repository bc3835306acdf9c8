"""A random loop as Python text: what is generated, run, shrunk and printed.

Every value has a type, a bound on its size, and a flag that says whether it is the
same number under any rounding.  Only such exact values may feed what is not
continuous (comparisons, floor, sort, conversion to integers), so that two right
programs for a loop can differ by rounding only.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax, random

NAMESPACE = {"jax": jax, "jnp": jnp, "lax": lax, "random": random}


@dataclass(frozen=True)
class Value:
    name: str
    dtype: str
    shape: tuple[int, ...]
    exact: bool = False
    bound: float = 4.0

    @property
    def is_float(self) -> bool:
        return jnp.issubdtype(jnp.dtype(self.dtype), jnp.floating)

    @property
    def is_complex(self) -> bool:
        return jnp.issubdtype(jnp.dtype(self.dtype), jnp.complexfloating)

    @property
    def is_real(self) -> bool:
        return self.is_float or self.is_int

    @property
    def is_index(self) -> bool:
        """An integer of which XLA, which cuts positions to 32 bits, sees everything."""
        return self.is_int and np.dtype(self.dtype).itemsize <= 4

    @property
    def is_int(self) -> bool:
        return jnp.issubdtype(jnp.dtype(self.dtype), jnp.integer)

    @property
    def size(self) -> int:
        return prod(self.shape)


@dataclass(frozen=True)
class Step:
    """``value.name = text``, where the text names earlier values."""

    value: Value
    text: str
    args: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.value.name} = {self.text.format(*self.args)}"


@dataclass(frozen=True)
class Program:
    seed: tuple[int, ...]  # of the numbers it runs on
    consts: tuple[Value, ...]
    carry: tuple[Value, ...]
    xs: tuple[Value, ...]
    steps: tuple[Step, ...]
    after: tuple[str, ...]  # the carry's next values, as expressions of `carry_args`
    after_args: tuple[str, ...]
    ys: tuple[str, ...]

    def replace(self, **changes: Any) -> Program:
        return replace(self, **changes)

    @property
    def values(self) -> dict[str, Value]:
        made = [step.value for step in self.steps]
        return {v.name: v for v in (*self.consts, *self.carry, *self.xs, *made)}

    def source(self) -> str:
        """The function that makes the body from the constants."""
        unpack = lambda values, of: (
            [f"{''.join(v.name + ', ' for v in values).strip()} = {of}"]
            if values
            else []
        )
        ends = [e.format(a) for e, a in zip(self.after, self.after_args, strict=True)]
        lines = [
            *unpack(self.carry, "carry"),
            *unpack(self.xs, "x"),
            *map(str, self.steps),
            f"return ({''.join(e + ', ' for e in ends)}), "
            f"({''.join(y + ', ' for y in self.ys)})",
        ]
        names = ", ".join(v.name for v in self.consts)
        head = [f"def make({names}):", "    def body(carry, x):"]
        return "\n".join([*head, *(f"        {n}" for n in lines), "    return body"])

    def body(self, consts: Any) -> Callable[..., Any]:
        """The body of the loop, as a function of carry and x."""
        scope = dict(NAMESPACE)
        exec(compile(self.source(), "fuzz", "exec"), scope)
        return scope["make"](*map(jnp.asarray, consts))

    def numbers(self, value: Value, lead: tuple[int, ...]) -> Any:
        """Numbers for an input, within its bound; floats are quarters."""
        rng = np.random.default_rng([*self.seed, *map(ord, value.name)])
        shape = (*lead, *value.shape)
        if value.dtype == "bool":
            return rng.random(shape) < 0.5
        if value.is_float or value.is_complex:
            quarters = rng.integers(-8, 8, shape, endpoint=True) / 4
            if value.is_complex:
                quarters = quarters + rng.integers(-8, 8, shape, endpoint=True) / 4j
            return np.asarray(quarters).astype(jnp.dtype(value.dtype))
        info = np.iinfo(value.dtype)
        wide = rng.integers(info.min, info.max, shape, value.dtype, endpoint=True)
        small = rng.integers(0 if info.min == 0 else -5, 9, shape).astype(value.dtype)
        edges = rng.choice(np.array([info.min, info.max, 0, 1], value.dtype), shape)
        kind = rng.random(shape)
        mixed = np.where(kind < 0.6, small, np.where(kind < 0.8, wide, edges))
        return np.asarray(mixed).astype(value.dtype)
