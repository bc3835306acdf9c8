"""Every kind of callable as f: named right, traced as often as by JAX, let go."""

from __future__ import annotations

import functools
import gc
import operator
import threading
import weakref

import equinox
import jax
import jax.numpy as jnp
import pytest
from compare import assert_same

import onescan
from onescan import compat
from onescan.naming import function_name


def step(c, x):
    return c + x, c


def scaled(scale, c, x):
    return c + scale * x, c


class Model:
    def step(self, c, x):
        return c + x, c

    def __call__(self, c, x):
        return c + x, c

    @classmethod
    def of_class(cls, c, x):
        return c + x, c

    @staticmethod
    def static(c, x):
        return c + x, c


class Unhashable(Model):
    __hash__ = None  # type: ignore[assignment]


class Slotted:
    __slots__ = ()

    def __call__(self, c, x):
        return c + x, c


class Module(equinox.Module):
    offset: jax.Array

    def step(self, c, x):
        return c + x + self.offset, c

    def __call__(self, c, x):
        return c + x + self.offset, c


def decorated(f):
    @functools.wraps(f)
    def wrapper(*args):
        return f(*args)

    return wrapper


def line(f):
    return f.__code__.co_firstlineno


anonymous = lambda c, x: (c + x, c)
partial = functools.partial(scaled, 2)

KINDS = {
    "function": (step, "step", line(step)),
    "lambda": (anonymous, "<lambda>", line(anonymous)),
    "jitted": (jax.jit(step), "step", line(step)),
    "partial": (partial, "scaled", line(scaled)),
    "partial of a partial": (functools.partial(partial), "scaled", line(scaled)),
    "partial of jitted": (
        functools.partial(jax.jit(scaled), 2),
        "scaled",
        line(scaled),
    ),
    "jitted partial": (jax.jit(partial), "scaled", line(scaled)),
    "tree partial": (jax.tree_util.Partial(scaled, 2), "scaled", line(scaled)),
    "method": (Model().step, "step", line(Model.step)),
    "class method": (Model.of_class, "of_class", line(Model.of_class)),
    "static method": (Model.static, "static", line(Model.static)),
    "object": (Model(), "Model", line(Model.__call__)),
    "unhashable object": (Unhashable(), "Unhashable", line(Model.__call__)),
    "object with slots": (Slotted(), "Slotted", line(Slotted.__call__)),
    "decorated": (decorated(step), "step", line(step)),
    "checkpointed": (jax.checkpoint(step), "step", line(step)),
    "equinox method": (Module(jnp.ones(())).step, "step", line(Module.step)),
    "equinox module": (Module(jnp.ones(())), "Module", line(Module.__call__)),
}
KIND = pytest.mark.parametrize(("f", "name", "line"), KINDS.values(), ids=KINDS.keys())


@KIND
def test_every_kind_of_function_runs(f, name, line):
    xs = jnp.arange(4.0)
    expected = jax.lax.scan(lambda c, x: f(c, x), 0.0, xs)
    assert_same(onescan.scan(f, 0.0, xs), expected)


@KIND
def test_every_kind_of_function_is_named(f, name, line):
    assert str(function_name(f)) == f"{name} ({__file__}:{line})"


@KIND
def test_the_loop_carries_the_name_to_the_engine(f, name, line):
    jaxpr = jax.make_jaxpr(lambda: onescan.scan(f, 0.0, jnp.arange(4.0)))()
    (params,) = [e.params for e in jaxpr.eqns if e.primitive.name == "scan"]
    loop = compat.loop_of(params)
    assert (loop.name, loop.source) == (name, f"{__file__}:{line}")


def test_a_builtin_has_a_name_and_no_line():
    assert str(function_name(operator.add)) == "add"
    jaxpr = jax.make_jaxpr(lambda: onescan.scan(divmod, 7, jnp.arange(1, 4)))()
    (params,) = [e.params for e in jaxpr.eqns if e.primitive.name == "scan"]
    assert compat.loop_of(params).name == "divmod"


@pytest.mark.parametrize("init", [0.0, 0, jnp.zeros(3)])
def test_traced_as_often_as_by_jax(init):
    def count(scan):
        traces = []

        def f(c, x):
            traces.append(None)
            return c + x, c

        run = jax.jit(lambda init, xs: scan(f, init, xs))
        for _ in range(2):
            scan(f, init, jnp.arange(3.0))
            scan(f, init, jnp.arange(4.0))
            run(init, jnp.arange(3.0))
            jax.grad(lambda x: scan(f, x, jnp.arange(3.0))[0].sum())(jnp.zeros(3))
            jax.vmap(lambda x: scan(f, x, jnp.arange(3.0)))(jnp.zeros(2))
        return len(traces)

    assert count(onescan.scan) == count(jax.lax.scan)


def test_f_is_let_go():
    """Neither we nor JAX's trace cache keep a function that its user dropped."""

    def f(c, x):
        return c + x, c

    onescan.scan(f, 0.0, jnp.arange(3.0))
    alive = weakref.ref(f)
    del f
    gc.collect()
    assert alive() is None


def test_a_function_that_scans_itself():
    def f(c, x):
        if x.ndim == 0:
            return c + x, c
        return onescan.scan(f, c, x)

    xs = jnp.arange(8.0).reshape(2, 2, 2)
    carry, ys = onescan.scan(f, 0.0, xs)
    assert float(carry) == 28.0
    assert ys.shape == (2, 2, 2)


def test_one_function_in_many_threads():
    def f(c, x):
        return c + x, c

    wrong = []

    def work(n):
        for size in range(1, 12):
            xs = jnp.full((size,), n, jnp.float32)
            if float(onescan.scan(f, 0.0, xs)[0]) != n * size:
                wrong.append((n, size))

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
