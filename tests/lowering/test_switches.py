"""install(), engine() and strict: what they reach, and jit's cache."""

from __future__ import annotations

import threading

import fakes
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import onescan
from onescan import switches


def total(xs):
    return lax.scan(lambda c, x: (c + x, c), 0.0, xs)


@pytest.fixture(autouse=True)
def clean():
    onescan.clear_report()
    jax.clear_caches()
    yield
    onescan.uninstall()


@pytest.fixture
def taken(monkeypatch):
    return fakes.use_engine(monkeypatch)


def test_without_install_only_our_own_scan_is_taken(taken):
    total(jnp.ones(3))
    assert not taken
    onescan.scan(lambda c, x: (c + x, c), 0.0, jnp.ones(3))
    assert len(taken) == 1


def test_install_and_uninstall(taken):
    f = jax.jit(total)
    f(jnp.ones(3))
    assert not onescan.is_installed()
    onescan.install()
    onescan.install()
    assert onescan.is_installed()
    f(jnp.ones(3))
    assert len(taken) == 1
    onescan.uninstall()
    onescan.uninstall()
    assert not onescan.is_installed()
    jax.jit(lambda xs: total(xs))(jnp.ones(3))
    assert len(taken) == 1


def settings(**changes):
    """Those of the suite, which measures nothing."""
    return switches.Settings(**{"tune": False, **changes})


def test_install_again_changes_strict_and_check():
    onescan.install(strict=True, check=True)
    assert switches.current() == settings(installed=True, strict=True, check=True)
    onescan.install()
    assert switches.current() == settings(installed=True)
    onescan.install(strict=True)
    onescan.uninstall()
    assert switches.current() == settings()


def test_the_xla_engine_is_stock(taken):
    onescan.install()
    with onescan.engine("xla"):
        total(jnp.ones(3))
        onescan.scan(lambda c, x: (c + x, c), 0.0, jnp.ones(3))
    assert not taken


def test_regions_nest_and_end(taken):
    with onescan.engine("native"):
        assert switches.current().engine == "native"
        with onescan.engine("xla"):
            assert switches.current().engine == "xla"
        assert switches.current().engine == "native"
    with pytest.raises(KeyError, match="mine"), onescan.engine("xla"):
        raise KeyError("mine")
    assert switches.current().engine == "auto"


def test_install_inside_a_region_lasts(taken):
    with onescan.engine("native"):
        onescan.install()
        assert onescan.is_installed()
        total(jnp.ones(3))
    assert len(taken) == 1
    assert onescan.is_installed()


def test_unknown_engine():
    with (
        pytest.raises(
            onescan.ScanValueError,
            match=r'"cuda" is not an engine\. Choose one of auto, xla, native, inter',
        ),
        onescan.engine("cuda"),  # type: ignore[arg-type]
    ):
        pass


def test_each_setting_compiles_once_and_is_kept(taken):
    traced = []

    @jax.jit
    def f(xs):
        traced.append(switches.current())
        return total(xs)

    onescan.install()
    for _ in range(3):
        f(jnp.ones(3))
        with onescan.engine("xla"):
            f(jnp.ones(3))
    assert len(traced) == 2
    assert len(taken) == 1
    onescan.uninstall()
    f(jnp.ones(3))
    onescan.install()
    f(jnp.ones(3))
    assert len(traced) == 3
    assert len(taken) == 1


def test_the_region_of_the_call_counts_not_of_the_definition(taken):
    with onescan.engine("xla"):
        f = jax.jit(lambda xs: onescan.scan(lambda c, x: (c + x, c), 0.0, xs))
    f(jnp.ones(3))
    assert len(taken) == 1


def test_ahead_of_time_compilation_keeps_its_engine(taken):
    onescan.install()
    with onescan.engine("xla"):
        stock = jax.jit(total).lower(jnp.ones(3)).compile()
    ours = jax.jit(total).lower(jnp.ones(3)).compile()
    assert len(taken) == 1
    np.testing.assert_array_equal(stock(jnp.ones(3))[1], ours(jnp.ones(3))[1])
    assert len(taken) == 1


def test_clear_caches_compiles_again(taken):
    onescan.install()
    f = jax.jit(total)
    f(jnp.ones(3))
    f(jnp.ones(3))
    assert len(taken) == 1
    jax.clear_caches()
    f(jnp.ones(3))
    assert len(taken) == 2


def test_install_reaches_other_threads_and_regions_do_not(taken):
    onescan.install()
    seen = []

    def look():
        seen.append(switches.current())
        jax.jit(lambda xs: total(xs))(jnp.ones(3))

    with onescan.engine("xla"):
        thread = threading.Thread(target=look)
        thread.start()
        thread.join()
    assert seen == [settings(installed=True)]
    assert len(taken) == 1


def test_threads_with_different_engines_at_once(taken):
    onescan.install()
    barrier = threading.Barrier(4)
    results = []

    @jax.jit
    def f(xs):
        return total(xs)

    def work(name):
        with onescan.engine(name):
            barrier.wait()
            results.append(np.asarray(f(jnp.arange(5.0))[1]))

    names = ["xla", "native", "xla", "native"]
    threads = [threading.Thread(target=work, args=(name,)) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 4
    for ys in results:
        np.testing.assert_array_equal(ys, [0, 0, 1, 3, 6])
    assert taken


@pytest.mark.parametrize("how", ["strict", "native"])
def test_strict_and_native_raise_with_the_reason(monkeypatch, how):
    fakes.use_leaving_engine(monkeypatch, "`sort` has no native rule")
    engine = "native" if how == "native" else "auto"
    with switches.using(installed=True, strict=how == "strict", engine=engine):
        for call in (total, jax.jit(total), jax.grad(lambda xs: total(xs)[0])):
            with pytest.raises(
                onescan.EngineError,
                match=r"<lambda> \(.*test_switches\.py:\d+\) was left "
                r"to XLA: `sort` has no native rule\.",
            ):
                call(jnp.ones(3))
    total(jnp.ones(3))


def test_strict_leaves_stock_loops_alone(monkeypatch):
    fakes.use_leaving_engine(monkeypatch, "no")
    with switches.using(strict=True):
        total(jnp.ones(3))
    with switches.using(installed=True, strict=True), onescan.engine("xla"):
        total(jnp.ones(3))


def test_options_of_a_region():
    assert switches.current().memory is None
    with onescan.options(memory=1 << 20):
        with onescan.options(sequential=True):
            assert switches.current().memory == 1 << 20
            assert switches.current().sequential
        assert not switches.current().sequential
    assert switches.current().memory is None


def test_memory_is_a_number_of_bytes():
    match = "memory is -1, and cannot be less than"
    with pytest.raises(onescan.ScanValueError, match=match), onescan.options(memory=-1):
        pass


def test_options_are_part_of_the_cache_key():
    run = jax.jit(lambda xs: onescan.scan(lambda c, x: (c + x, c), 0.0, xs))
    onescan.clear_report()
    for memory in (1, 2, 1):
        with onescan.options(memory=memory):
            run(jnp.ones(5))
    assert sum(row.count for row in onescan.report().rows) == 2
