"""`map`, `fori_loop` and `associative_scan` are JAX's, and kernels."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import onescan


def close(a, b):
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5), a, b
    )


def linear(a, b):
    return a[0] * b[0], a[1] * b[0] + b[1]


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_associative_scan(axis, reverse):
    x = jax.random.normal(jax.random.key(0), (4, 3, 2))

    def run(scan, x):
        scanned = scan(linear, (x, x + 1), reverse=reverse, axis=axis)
        return jnp.sum(scanned[1] ** 2), scanned

    values = lambda scan: jax.jit(jax.grad(lambda x: run(scan, x), has_aux=True))(x)
    close(values(onescan.associative_scan), values(jax.lax.associative_scan))


def test_associative_scan_of_matrices_of_none_and_of_one():
    x = jax.random.normal(jax.random.key(0), (20, 3, 3)) / 2
    ours, stock = onescan.associative_scan, jax.lax.associative_scan
    close(ours(jnp.matmul, x), stock(jnp.matmul, x))
    for short in (x[:0], x[:1]):
        close(ours(jnp.add, short), stock(jnp.add, short))
    with pytest.raises(ValueError, match="same first dimension"):
        ours(linear, (x, x[:3]))
    onescan.clear_report()
    ours(jnp.add, x)
    assert [row.engine for row in onescan.report().rows] == ["native"]


@pytest.mark.parametrize("batch_size", [None, 3, 4])
def test_map(batch_size):
    xs = {"a": jnp.arange(8.0), "b": jnp.ones((8, 2))}
    f = lambda x: {"s": jnp.sin(x["a"]) + x["b"]}
    onescan.clear_report()
    got = onescan.map(f, xs, batch_size=batch_size)
    close(got, jax.lax.map(f, xs, batch_size=batch_size))
    assert onescan.report().rows[-1].engine == "native"


def test_fori_loop():
    body = lambda i, v: v * 0.9 + i
    onescan.clear_report()
    for bounds in ((0, 9), (-3, 4), (5, 5), (6, 2)):
        close(
            onescan.fori_loop(*bounds, body, 1.0), jax.lax.fori_loop(*bounds, body, 1.0)
        )
    assert {row.length for row in onescan.report().rows if row.engine == "native"} == {
        9,
        7,
    }
    close(jax.grad(lambda v: onescan.fori_loop(0, 9, body, v))(1.0), 0.9**9)
    dynamic = jax.jit(lambda n: onescan.fori_loop(0, n, body, 1.0))
    close(dynamic(9), onescan.fori_loop(0, 9, body, 1.0))


def test_loops_inside_are_left_as_they_are():
    def inner(v):
        return jax.lax.scan(lambda c, x: (c + x, None), v, jnp.arange(3.0))[0]

    onescan.clear_report()
    with onescan.engine("auto"):
        jax.jit(lambda n, v: onescan.fori_loop(0, n, lambda i, v: inner(v), v))(2, 1.0)
    assert [row.length for row in onescan.report().rows] == ["while"]
