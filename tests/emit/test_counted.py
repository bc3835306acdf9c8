"""While loops of a few rounds, written one after the other."""

from __future__ import annotations

from typing import Any
from unittest import mock

import jax
import jax.numpy as jnp
import pytest
from engines import assert_same, run
from jax import lax

import onescan
from onescan.emit import control
from onescan.targets.cpu.build import CpuEmitter


def stages(first: Any, end: int = 5, early: float = 1e9) -> Any:
    """A loop over rows of a table that the carry says, from 0 or 1 on."""

    def f(x: Any, flag: Any) -> Any:
        table = jnp.arange(20.0).reshape(5, 4) / 16

        def body(state: Any) -> Any:
            i, rows, total = state
            row = table[i] @ rows + x
            return i + 1, rows.at[jnp.minimum(i, 3)].set(row), total + row * 0.5

        goes_on = lambda state: (state[0] < end) & (state[2] < early)
        start = (first(flag), jnp.zeros(4), jnp.float32(0))
        return lax.while_loop(goes_on, body, start)

    return f


def chosen(flag: Any) -> Any:
    return jnp.where(flag, 0, 1)


CASES: dict[str, tuple[Any, bool]] = {
    "from 0 or 1": (stages(chosen), True),
    "ends before": (stages(chosen, early=2.0), True),
    "from 0": (stages(lambda flag: 0), True),
    "no rounds": (stages(lambda flag: jnp.where(flag, 5, 4), end=4), True),
    "too many": (stages(chosen, end=50, early=3.0), False),
    "from below": (stages(lambda flag: jnp.where(flag, -2, 1)), False),
    "from anywhere": (stages(lambda flag: jnp.int32(flag)), False),
}


@pytest.mark.parametrize("name", CASES)
def test_rounds(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    f, written_out = CASES[name]
    monkeypatch.setattr(CpuEmitter, "unrolls_whiles", True)
    monkeypatch.setattr(CpuEmitter, "unrolled_inside", 1 << 20)

    def program(xs: Any, flags: Any) -> Any:
        step = lambda c, x: (c + 1, f(*x))
        return onescan.scan(step, 0, (xs, flags))

    xs, flags = jnp.linspace(0.5, 1.5, 6), jnp.arange(6) % 2 == 0
    with mock.patch.object(control, "_rounds", wraps=control._rounds) as rounds:
        native = run("native", program, xs, flags)
    assert bool(rounds.called) == written_out
    assert_same(native, run("xla", program, xs, flags), ulps=16)
    batched = jax.vmap(program, (0, None))
    many = xs * jnp.ones((18, 1))
    native = run("native", batched, many, flags)
    assert_same(native, run("xla", batched, many, flags), ulps=16)
