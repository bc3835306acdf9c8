"""Garbage is collected again after a compilation, unless the user turned that off."""

import gc

import jax
import jax.numpy as jnp
import pytest

import onescan
from onescan.runtime.garbage import no_collections


@pytest.fixture(autouse=True)
def turned_on():
    yield
    gc.enable()


def test_nothing_is_collected_until_the_last_is_done():
    with no_collections():
        with no_collections():
            assert not gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled()


def test_stays_off_where_the_user_turned_it_off():
    gc.disable()
    with no_collections():
        pass
    assert not gc.isenabled()


def test_on_again_after_an_error():
    with pytest.raises(ValueError), no_collections():
        raise ValueError
    assert gc.isenabled()


def test_a_loop_is_compiled_without_collections():
    seen = []
    note = lambda phase, info: seen.append(info["generation"])
    loop = lambda c: onescan.scan(lambda c, _: (jnp.sin(c) * c, c), c, length=9)
    traced = jax.jit(loop).trace(jnp.ones(3))
    young = gc.get_threshold()
    gc.set_threshold(50, 2, 2)
    gc.callbacks.append(note)
    try:
        traced.lower()
        few = len(seen)
        with onescan.engine("xla"):
            jax.jit(lambda c: loop(c) * 1).lower(jnp.ones(3))
    finally:
        gc.callbacks.remove(note)
        gc.set_threshold(*young)
    assert gc.isenabled()
    assert few < len(seen) - few
