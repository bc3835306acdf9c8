"""Numbers that the program around a loop knows are literals of its body."""

from __future__ import annotations

from typing import Any
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
from compare import assert_same
from engines import run

import onescan
from onescan.emit import elementwise
from onescan.lowering import known


def path(c: Any, x: Any) -> Any:
    c = (c * c + x * x + 0.1) ** -1.5 * c
    return c, c


def last(init: Any, xs: Any) -> Any:
    return jnp.sum(onescan.scan(path, init, xs)[0])


INIT = jnp.linspace(0.5, 1.5, 8)
XS = jnp.linspace(0.1, 0.9, 40).reshape(5, 8)


def test_the_power_of_a_derivative_is_known() -> None:
    """JAX computes its exponent, -1.5 - 1, in front of the loop."""
    logarithms = mock.Mock(side_effect=elementwise.shared.apply)
    with mock.patch.object(elementwise.shared, "apply", logarithms):
        native = run("native", jax.grad(last), INIT, XS)
    assert not logarithms.called
    assert_same(native, run("xla", jax.grad(last), INIT, XS))


def test_zero_is_not_minus_zero() -> None:
    """Loops of the same body that are given either one."""
    jaxpr = jax.make_jaxpr(lambda s, c, x: (x, jnp.arctan2(s, c)))(0.0, 1.0, 1.0)
    bits = [np.float32(zero).tobytes() for zero in (0.0, -0.0)]
    first, second = (known._replaced(jaxpr, ((0, b),)) for b in bits)
    signs = [np.signbit(body.jaxpr.eqns[0].invars[0].val) for body in (first, second)]
    assert signs == [False, True]
    assert known._replaced(jaxpr, ((0, bits[0]),)) is first
