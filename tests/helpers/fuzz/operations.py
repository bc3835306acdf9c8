"""What a random body may do: for each kind of operation, a step it could take.

An operation looks at the values there are and proposes a text, its arguments, and
the bound and exactness of the result; the type follows by tracing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import log
from typing import Any

import numpy as np

from fuzz.program import Value

LARGEST = 200  # elements of any value


@dataclass(frozen=True)
class Proposal:
    text: str
    args: tuple[Value, ...]
    exact: bool = False
    bound: float = 4.0


class Pool:
    """The values so far, and the dice."""

    def __init__(self, rng: np.random.Generator, values: Sequence[Value], mode: str):
        self.rng, self.values, self.mode = rng, list(values), mode

    def pick(self, test: Callable[[Value], bool] = lambda v: True) -> Value | None:
        """A value that passes; later ones are likelier, so that chains get long."""
        found = [v for v in self.values if test(v)]
        if not found:
            return None
        weights = np.arange(1, len(found) + 1, dtype=float)
        return found[self.rng.choice(len(found), p=weights / weights.sum())]

    def choice(self, options: Sequence[Any]) -> Any:
        return options[int(self.rng.integers(len(options)))]

    def number(self, low: int, high: int) -> int:
        return int(self.rng.integers(low, high, endpoint=True))

    def chance(self, p: float) -> bool:
        return bool(self.rng.random() < p)

    def partner(self, x: Value) -> Value | None:
        """A value whose shape fits that of x, and of the same kind."""
        same = lambda v: v.is_float == x.is_float and v.is_int == x.is_int
        return self.pick(lambda v: same(v) and _fits(v.shape, x.shape))

    def index(self) -> Value | None:
        return self.pick(lambda v: v.is_index and v.shape == ())


def _fits(a: tuple[int, ...], b: tuple[int, ...]) -> bool:
    return all(m == n or 1 in (m, n) for m, n in zip(a[::-1], b[::-1], strict=False))


Operation = Callable[[Pool], Proposal | None]

SMOOTH: dict[str, Callable[[float], float]] = {
    "jnp.sin({0})": lambda b: 1,
    "jnp.cos({0})": lambda b: 1,
    "jnp.tanh({0})": lambda b: 1,
    "jnp.exp(-{0} * {0})": lambda b: 1,
    "jax.nn.sigmoid({0})": lambda b: 1,
    "jnp.log1p({0} * {0})": lambda b: log(1 + b * b),
    "jnp.log({0} * {0} + 0.25)": lambda b: log(2 + b * b),
    "jnp.sqrt({0} * {0} + 0.5)": lambda b: b + 1,
    "lax.rsqrt({0} * {0} + 0.5)": lambda b: 1.5,
    "lax.erf({0})": lambda b: 1,
    "lax.erfc({0})": lambda b: 2,
    "lax.erf_inv(0.75 * jnp.sin({0}))": lambda b: 1,
    "lax.lgamma({0} * {0} + 1)": lambda b: (b * b + 1) * log(b + 3),
    "lax.digamma({0} * {0} + 1)": lambda b: 2 * log(b + 3),
    "jnp.arctan({0})": lambda b: 1.6,
    "jnp.arcsin(0.75 * jnp.sin({0}))": lambda b: 1,
    "jnp.arccos(0.75 * jnp.sin({0}))": lambda b: 3,
    "jnp.arcsinh({0})": lambda b: b,
    "jnp.arccosh({0} * {0} + 1.25)": lambda b: b + 1,
    "jnp.arctanh(0.75 * jnp.sin({0}))": lambda b: 1,
    "jnp.sinh(jnp.sin({0}))": lambda b: 2,
    "jnp.cosh(jnp.sin({0}))": lambda b: 2,
    "jnp.tan(jnp.sin({0}))": lambda b: 2,
    "jnp.expm1(jnp.sin({0}))": lambda b: 2,
    "jnp.exp2(jnp.sin({0}))": lambda b: 2,
    "lax.cbrt({0} * {0} + 1)": lambda b: b + 1,
    "lax.integer_pow({0}, 3)": lambda b: b**3,
    "lax.square({0})": lambda b: b**2,
    "jnp.power({0} * {0} + 0.25, 1.5)": lambda b: (b + 1) ** 3,
    "jnp.reciprocal({0} * {0} + 1)": lambda b: 1,
}


def smooth(pool: Pool) -> Proposal | None:
    x = pool.pick(lambda v: v.is_float)
    text = pool.choice(list(SMOOTH))
    if "digamma" in text and pool.mode == "grad":
        return None  # its derivative, polygamma, stays with XLA
    return x and Proposal(text, (x,), bound=SMOOTH[text](x.bound))


BINARY: dict[str, Callable[[float, float], float]] = {
    "{0} + {1}": lambda a, b: a + b,
    "{0} - {1}": lambda a, b: a + b,
    "{0} * {1}": lambda a, b: a * b,
    "{0} / ({1} * {1} + 1)": lambda a, b: a,
    "jnp.arctan2({0}, {1} * {1} + 0.5)": lambda a, b: 1.6,
}


def binary(pool: Pool) -> Proposal | None:
    x = pool.pick(lambda v: v.is_float)
    y = x and pool.partner(x)
    text = pool.choice(list(BINARY))
    return y and Proposal(text, (x, y), bound=BINARY[text](x.bound, y.bound))


def keeps_exact(pool: Pool) -> Proposal | None:
    """Choices among numbers and changes of sign, which round nothing."""
    x = pool.pick(lambda v: v.is_float)
    y = x and pool.partner(x)
    if y is None:
        return None
    forms = ("jnp.maximum({0}, {1})", "jnp.minimum({0}, {1})", "-jnp.abs({0})")
    forms += ("-{0}", "lax.clamp(-1.0, {0}, 1.0).astype({0}.dtype)")
    text = pool.choice(forms)
    args = (x, y) if "{1}" in text else (x,)
    exact = all(v.exact for v in args)
    return Proposal(text, args, exact, max(v.bound for v in args) + 1)


def jumps(pool: Pool) -> Proposal | None:
    """What is not continuous, on exact numbers."""
    x = pool.pick(lambda v: v.is_float and v.exact)
    forms = ("jnp.floor({0})", "jnp.ceil({0})", "jnp.sign({0})", "lax.round({0})")
    forms += ("lax.rem({0}, {0} * 0 + 1.5)", "lax.is_finite({0})")
    forms += ("jnp.round({0})", "{0}.astype('int32')", "{0}.astype('int8')")
    return x and Proposal(pool.choice(forms), (x,), True, x.bound + 1)


def comparison(pool: Pool) -> Proposal | None:
    x = pool.pick(lambda v: v.exact)
    y = x and pool.pick(
        lambda v: v.dtype == x.dtype and v.exact and _fits(v.shape, x.shape)
    )
    return y and Proposal(
        f"{{0}} {pool.choice('< <= > >= == !='.split())} {{1}}", (x, y), True
    )


INTEGER = (
    """
{0} + {1}; {0} - {1}; {0} * {1}; {0} & {1}; {0} | {1}; {0} ^ {1}; {0} * {0}; ~{0}; -{0}
jnp.maximum({0}, {1}); jnp.minimum({0}, {1}); {0} // ({1} | 1); {0} % ({1} | 1)
jnp.clip({0}, 1, 5); jnp.left_shift({0}, {1}); jnp.right_shift({0}, {1}); jnp.abs({0})
jnp.sign({0})
lax.div({0}, lax.full_like({0}, 3)); lax.rem({0}, lax.full_like({0}, 5)); lax.clz({0})
lax.population_count({0}); lax.shift_right_logical({0}, lax.full_like({0}, 2))
""".strip()
    .replace("\n", "; ")
    .split("; ")
)


def integer(pool: Pool) -> Proposal | None:
    x = pool.pick(lambda v: v.is_int)
    y = x and pool.pick(lambda v: v.dtype == x.dtype and _fits(v.shape, x.shape))
    text = pool.choice(INTEGER)
    return y and Proposal(text, (x, y) if "{1}" in text else (x,), True)


def boolean(pool: Pool) -> Proposal | None:
    x = pool.pick(lambda v: v.dtype == "bool")
    y = x and pool.pick(lambda v: v.dtype == "bool" and _fits(v.shape, x.shape))
    forms = ("{0} & {1}", "{0} | {1}", "{0} ^ {1}", "~{0}", "{0}.any()", "{0}.all(0)")
    text = pool.choice(forms[:4] if x and not x.shape else forms)
    return y and Proposal(text, (x, y) if "{1}" in text else (x,), True)


TYPES = "int8 int16 int32 int64 uint8 uint16 uint32 uint64 bool".split()


def conversion(pool: Pool) -> Proposal | None:
    x = pool.pick(lambda v: v.is_int or v.dtype == "bool")
    if x is None:
        return None
    floating = pool.pick(lambda v: v.is_float)
    if floating and pool.chance(0.5):
        text = "{0}" if x.dtype == "bool" else "({0} % 9)"
        return Proposal(f"{text}.astype('{floating.dtype}')", (x,), True, 9)
    return Proposal(f"{{0}}.astype('{pool.choice(TYPES)}')", (x,), True)


def where(pool: Pool) -> Proposal | None:
    p = pool.pick(lambda v: v.dtype == "bool")
    x = p and pool.pick(lambda v: _fits(v.shape, p.shape))
    y = x and pool.pick(
        lambda v: (
            v.dtype == x.dtype and _fits(v.shape, x.shape) and _fits(v.shape, p.shape)
        )
    )
    return y and Proposal(
        "jnp.where({0}, {1}, {2})",
        (p, x, y),
        x.exact and y.exact,
        max(x.bound, y.bound),
    )
