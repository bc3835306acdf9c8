"""Keys in bodies: what draws from them, and what only JAX knows."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import Primitive
from jax.interpreters import mlir

import onescan


def results(step, *args):
    found = []
    for engine in ("native", "xla"):
        onescan.clear_report()
        with onescan.engine(engine):
            found.append(jax.jit(lambda *a: onescan.scan(step, *a)[1])(*args))
    return found


def test_gamma_and_what_is_made_of_it() -> None:
    def step(key, a):
        key, used = jax.random.split(key)
        return key, (jax.random.dirichlet(used, jnp.full(3, a)), jax.device_put(a))

    native, xla = results(step, jax.random.key(0), jnp.linspace(0.3, 3.0, 5))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5), native, xla)


def test_what_only_jax_knows_of_keys_is_left_with_its_loop() -> None:
    first_word = Primitive("first_word")
    first_word.def_abstract_eval(lambda key: jax.core.ShapedArray((), jnp.uint32))
    rule = lambda key: jax.random.key_data(key)[0]
    mlir.register_lowering(first_word, mlir.lower_fun(rule, multiple_results=False))

    def step(key, x):
        key, used = jax.random.split(key)
        return key, first_word.bind(used) + jax.random.bits(key, (), "uint32")

    args = jax.random.key(0), jnp.ones(5)
    onescan.clear_report()
    found = jax.jit(lambda *a: onescan.scan(step, *a)[1])(*args)
    row = next(row for row in onescan.report().rows if row.name == "step")
    assert "`first_word` at " in row.reason
    assert "has no native rule" in row.reason
    _, keys = jax.lax.scan(lambda k, _: (jax.random.split(k)[0],) * 2, *args)
    np.testing.assert_array_equal(
        found[0] - jax.random.bits(keys[0], (), "uint32"),
        jax.random.key_data(jax.random.split(args[0])[1])[0],
    )
