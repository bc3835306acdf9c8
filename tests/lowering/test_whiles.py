"""While loops as kernels: what they compute, and which are left to XLA."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from engines import assert_same, run
from jax import lax
from while_programs import PROGRAMS, collatz, random_program, root, until

import onescan
from onescan import switches
from onescan.errors import EngineError


@pytest.fixture(autouse=True)
def installed() -> Iterator[None]:
    onescan.clear_report()
    with switches.using(installed=True):
        yield


def _agree(f: Callable[..., Any], *args: Any, ulps: int = 0) -> None:
    """A program gives the same bits on both engines, and runs natively."""
    native = run("native", f, *args)
    assert onescan.report().rows, "no loop was seen"
    assert_same(native, run("xla", f, *args), ulps)


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs(name: str) -> None:
    f, args = PROGRAMS[name]
    _agree(f, *args, ulps=16 if "products" in name else 0)  # which sum as they like


@pytest.mark.parametrize("seed", range(12))
def test_random_programs(seed: int) -> None:
    f, args = random_program(seed)
    _agree(f, *args)


def test_double_precision() -> None:
    with jax.enable_x64(True):
        _agree(jax.vmap(root), jnp.linspace(1.0, 1e9, 13))
        _agree(jax.vmap(collatz), jnp.array([77031, 837799, 1], jnp.int64))


def test_jvp_and_gradients_around() -> None:
    x = jnp.float32(3)
    _agree(lambda x: jax.jvp(lambda x: until(x, 5), (x,), (x,)), x)

    def loss(xs: Any) -> Any:
        def step(c: Any, x: Any) -> Any:
            rounds = lax.stop_gradient(collatz(jnp.int32(x) + 3)[1])
            return c * 0.5 + x * rounds, c

        return lax.scan(step, 0.0, xs)[0]

    xs = jnp.arange(4.0)
    with onescan.engine("auto"):
        native = jax.jit(jax.grad(loss))(xs)
    with onescan.engine("xla"):
        assert_same(native, jax.jit(lambda xs: jax.grad(loss)(xs))(xs), ulps=2)


def test_own_functions_are_taken_without_install() -> None:
    with switches.using(installed=False):
        f = lambda n: onescan.fori_loop(0, n, lambda i, c: c + i, 0)
        assert jax.jit(f)(5) == 10
        (row,) = onescan.report().rows
        assert (row.engine, row.length) == ("native", "while")
        onescan.clear_report()
        assert jax.jit(lambda n: lax.fori_loop(0, n, lambda i, c: c + i, 0))(5) == 10
        assert not onescan.report().rows


def test_report() -> None:
    jax.jit(root)(jnp.float32(3))
    (row,) = onescan.report().rows
    assert (row.engine, row.length, row.reason) == ("native", "while", None)
    assert "while_programs.py" in row.source
    assert "while native" in str(onescan.report())
    (told,) = onescan.report().to_dict()["loops"]
    assert (told["length"], told["carry_bytes"]) == ("while", 4)


def test_effects_stay_with_xla(capfd: pytest.CaptureFixture[str]) -> None:
    def body(n: Any) -> Any:
        jax.debug.print("left {n}", n=n)
        return n - 1

    f = lambda n: lax.while_loop(lambda n: n > 0, body, n)
    assert jax.jit(f)(2) == 0
    jax.effects_barrier()
    assert "left 2\nleft 1" in capfd.readouterr().out
    (row,) = onescan.report().rows
    assert row.engine == "xla"
    assert "the body has side effects" in (row.reason or "")
    with onescan.engine("native"), pytest.raises(EngineError, match="side effects"):
        jax.jit(lambda n: f(n))(2)


def test_what_has_no_rule_stays_with_xla() -> None:
    def f(x: Any) -> Any:
        body = lambda x: jnp.cumprod(x + 0j).real * 0.1
        return lax.while_loop(lambda x: x.sum() > 1, body, x)

    jax.jit(f)(jnp.ones(4))
    (row,) = onescan.report().rows
    assert row.engine == "xla"
    assert "`cumprod` at" in (row.reason or "")
    assert "has no native rule for complex numbers" in (row.reason or "")


def test_a_region_of_stock_jax() -> None:
    with onescan.engine("xla"):
        assert jax.jit(lambda n: until(jnp.float32(1), n))(4) > 0
    assert not onescan.report().rows


def test_check_mode_compares_both() -> None:
    with switches.using(check=True):
        out = jax.jit(root)(jnp.float32(4))
    np.testing.assert_allclose(out, 2, rtol=1e-2)


def test_large_bodies_stay_with_xla() -> None:
    """A matrix product for XLA's library, and more than a core keeps beside it."""

    def f(x: Any) -> Any:
        body = lambda s: (s[0] + 1, jnp.tanh(s[1] @ s[1]))
        return lax.while_loop(lambda s: s[0] < 2, body, (0, x))[1]

    jax.jit(f)(jnp.eye(400))
    (row,) = onescan.report().rows
    assert row.engine == "xla"


def test_functions_of_jax_that_loop_inside() -> None:
    """Their loops are while loops too: the same numbers, however they run."""
    key = jax.random.key(0)
    functions: dict[str, Callable[[], Any]] = {
        "gamma": lambda: jax.random.gamma(key, jnp.linspace(0.2, 3, 40)),
        "betainc": lambda: jax.scipy.special.betainc(
            2.0, 3.0, jnp.linspace(0.05, 0.95, 20)
        ),
    }
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for name, f in functions.items():
            native = jax.jit(lambda f=f: f())()
            with onescan.engine("xla"):
                stock = jax.jit(lambda f=f: f())()
            np.testing.assert_allclose(native, stock, rtol=2e-5, err_msg=name)


def test_a_table_is_not_turned_for_a_short_loop() -> None:
    """Lanes that read a table of their own want it the other way round: 4 MB in each
    step of the loop around, which took 70 times as long as the program without.
    """
    size = 4096

    def walk(starts: Any) -> Any:
        def step(table: Any, i: Any) -> Any:
            go_on = lambda _, s: (s * 7 + table[s, 0].astype(int)) % size
            u = lax.fori_loop(0, 4, go_on, i)
            return table.at[u, u % 8].add(1.0), u

        return lax.scan(step, jnp.zeros((size, 8)), starts)

    onescan.clear_report()
    with switches.using(installed=True):
        jax.jit(jax.vmap(walk)).lower(jnp.zeros((32, 40), "int32"))
    rows = onescan.report().rows
    assert {row.engine for row in rows} == {"xla"}
