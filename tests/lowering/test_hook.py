"""What reaches our rule, what it does with it, and what passes through untouched."""

from __future__ import annotations

import warnings

import fakes
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.extend.core import Primitive
from jax.interpreters import mlir

import onescan
from onescan import switches
from onescan.lowering import hook
from onescan.lowering.outcome import Native


def step(c, x):
    return jnp.sin(c) + x, c * x


def program(xs):
    return lax.scan(step, 0.5, xs)


XS = jnp.linspace(0.0, 1.0, 7)


@pytest.fixture(autouse=True)
def installed():
    onescan.clear_report()
    jax.clear_caches()
    with switches.using(installed=True):
        yield


@pytest.fixture
def taken(monkeypatch):
    return fakes.use_engine(monkeypatch)


def assert_as_stock(f, *args):
    ours = f(*args)
    with onescan.engine("xla"):
        stock = f(*args)
    jax.tree.map(np.testing.assert_array_equal, ours, stock)


TRANSFORMED = {
    "eager": program,
    "jit": jax.jit(program),
    "grad": jax.grad(lambda xs: program(xs)[0]),
    "value_and_grad": jax.jit(jax.value_and_grad(lambda xs: program(xs)[0])),
    "vmap": lambda xs: jax.vmap(program)(jnp.stack([xs, xs + 1])),
    "jacfwd": jax.jacfwd(program),
    "hessian": jax.hessian(lambda xs: program(xs)[0]),
    "remat": jax.checkpoint(program),
    "cond": lambda xs: lax.cond(xs.sum() > 0, program, program, xs),
    "while": lambda xs: lax.while_loop(
        lambda v: v[0] < 2, lambda v: program(v[1]), (0.0, xs)
    ),
    "fori": lambda xs: lax.fori_loop(0, 3, lambda i, c: c * xs[i], 1.0),
    "map": lambda xs: lax.map(jnp.sin, xs),
}


@pytest.mark.parametrize("name", TRANSFORMED)
def test_every_transformation_ends_at_our_rule(taken, name):
    assert_as_stock(TRANSFORMED[name], XS)
    assert taken


def test_loop_as_the_engine_sees_it(taken):
    weights = jnp.ones((3, 3))

    def body(carry, x):
        h, n = carry
        return (jnp.tanh(weights @ h + x["a"]), n + 1), (h, x["b"] * n)

    xs = {"a": jnp.zeros((5, 3)), "b": jnp.arange(5)}
    lax.scan(body, (jnp.zeros(3), 0), xs, reverse=True)
    (loop,) = taken
    assert loop.name.endswith("body")
    assert loop.source.endswith(f"test_hook.py:{body.__code__.co_firstlineno}")
    assert (loop.length, loop.reverse, loop.unroll) == (5, True, 1)
    assert [a.shape for a in loop.const_avals] == [(3, 3)]
    assert [a.shape for a in loop.carry_avals] == [(3,), ()]
    assert [a.shape for a in loop.x_avals] == [(3,), ()]
    assert len(loop.y_avals) == len(loop.body.out_avals) - loop.num_carry


def test_inner_loops_are_seen_when_the_outer_one_is_left(monkeypatch):
    seen = []

    def compile_loop(loop, platform, settings):
        seen.append(loop.length)
        return hook.Left("not this one")

    monkeypatch.setattr(hook, "compile_loop", compile_loop)

    def outer(c, xs):
        c, _ = lax.scan(step, c, xs)
        return c, c

    jax.jit(lambda: lax.scan(outer, 0.1, jnp.ones((4, 9))))()
    assert seen == [4, 9]


def test_a_loop_of_library_code_is_taken(taken):
    optax = pytest.importorskip("optax")
    equinox = pytest.importorskip("equinox")

    class Recurrent(equinox.Module):
        cell: equinox.nn.GRUCell

        def __call__(self, xs):
            return lax.scan(lambda h, x: (self.cell(x, h), h), jnp.zeros(4), xs)[0]

    model = Recurrent(equinox.nn.GRUCell(2, 4, key=jax.random.key(0)))
    equinox.filter_jit(equinox.filter_grad(lambda m, x: m(x).sum()))(
        model, jnp.ones((6, 2))
    )
    logits, pads = jnp.zeros((1, 5, 3)), jnp.zeros((1, 5))
    optax.ctc_loss(logits, pads, jnp.ones((1, 2), int), jnp.zeros((1, 2)))
    assert {loop.length for loop in taken} >= {6, 5}


def test_a_broken_engine_warns_once_per_loop_and_results_are_right(monkeypatch):
    fakes.use_broken_engine(monkeypatch, IndexError("list index out of range"))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert_as_stock(program, XS)
        jax.clear_caches()
        assert_as_stock(jax.jit(program), XS)
    (warning,) = caught
    line = step.__code__.co_firstlineno
    assert str(warning.message) == (
        f"onescan left step ({__file__}:{line}) to XLA: the engine failed inside "
        "(IndexError: list index out of range)"
    )
    assert (warning.filename, warning.lineno) == (__file__, line)
    assert onescan.report().rows[0].reason.startswith("the engine failed inside")


def test_an_engine_that_breaks_half_way_leaves_no_trace(monkeypatch):
    def lower(ctx, *args):
        mlir.lower_fun(lambda *xs: [jnp.sin(x) for x in xs])(ctx, *args)
        raise RuntimeError("half way")

    monkeypatch.setattr(hook, "compile_loop", lambda *_: Native(lower))
    with pytest.warns(onescan.EngineWarning, match="RuntimeError: half way"):
        assert_as_stock(jax.jit(program), XS)


def test_an_engine_that_breaks_inside_a_function_leaves_no_half_of_it(monkeypatch):
    broken = Primitive("broken")
    broken.def_abstract_eval(lambda x: x)

    def break_down(ctx, x):
        raise RuntimeError("inside a function")

    mlir.register_lowering(broken, break_down)

    def lower(ctx, *args):
        called = jax.jit(lambda x: broken.bind(jnp.sin(x)))
        return mlir.lower_fun(lambda *xs: [called(x) for x in xs])(ctx, *args)

    monkeypatch.setattr(hook, "compile_loop", lambda *_: Native(lower))
    with pytest.warns(onescan.EngineWarning, match="inside a function"):
        assert_as_stock(jax.jit(program), XS)


def test_a_broken_engine_raises_under_native(monkeypatch):
    error = IndexError("oops")
    fakes.use_broken_engine(monkeypatch, error)
    with (
        onescan.engine("native"),
        pytest.raises(onescan.EngineError, match=r"failed inside \(IndexError: oops\)"),
    ):
        program(XS)


def test_side_effects_stay_with_xla(taken, capfd):
    def body(c, x):
        jax.debug.print("x is {}", x)
        return c, None

    jax.block_until_ready(jax.jit(lambda: lax.scan(body, 0.0, jnp.arange(2)))())
    jax.effects_barrier()
    assert capfd.readouterr().out == "x is 0\nx is 1\n"
    assert not taken
    (row,) = onescan.report().rows
    assert row.reason.startswith("the body has side effects (")


def test_export_stays_with_xla(taken):
    exported = jax.export.export(jax.jit(program))(XS)
    assert not taken
    assert "the program is exported" in onescan.report().rows[0].reason
    jax.tree.map(np.testing.assert_array_equal, exported.call(XS), program(XS))


def test_export_for_several_platforms(taken):
    exported = jax.export.export(jax.jit(program), platforms=["cpu", "cuda", "tpu"])(XS)
    assert not taken
    (row,) = onescan.report().rows
    assert row.reason == "the program is compiled for several platforms"
    assert exported.platforms == ("cpu", "cuda", "tpu")
    np.testing.assert_array_equal(exported.call(XS)[1], program(XS)[1])


def test_donated_arguments(taken):
    def update(state, xs):
        return lax.scan(step, state, xs)

    f = jax.jit(update, donate_argnums=0)
    state = jnp.zeros((64,))
    carry, _ = f(state, jnp.ones((3, 64)))
    assert state.is_deleted()
    with onescan.engine("xla"):
        expected, _ = f(jnp.zeros((64,)), jnp.ones((3, 64)))
    np.testing.assert_array_equal(carry, expected)
    assert taken


def test_disable_jit_needs_no_engine(taken):
    with jax.disable_jit():
        _, ys = program(XS)
    assert not taken
    with onescan.engine("xla"):
        np.testing.assert_allclose(ys, program(XS)[1], rtol=1e-6)


def test_errors_of_jax_pass_through(taken):
    with pytest.raises(jax.errors.TracerBoolConversionError, match="the argument c"):
        lax.scan(lambda c, x: (c if c > 0 else x, x), 0.0, XS)
    with pytest.raises(TypeError, match="carry input and carry output"):
        lax.scan(lambda c, x: (c.astype(int), x), 0.0, XS)
    with pytest.raises(ZeroDivisionError, match="division"):
        lax.scan(lambda c, x: (c, 1 / 0), 0.0, XS)
    assert not taken


def test_frames_of_onescan_are_hidden_from_tracebacks(taken):
    def body(c, x):
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine") as caught:
        onescan.scan(body, 0.0, XS)
    files = [entry.path.name for entry in caught.traceback]
    assert files[-1] == "test_hook.py"


def test_no_warning_in_ordinary_use(taken):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        jax.jit(program)(XS)


def test_layers_that_are_alike_are_compiled_once(monkeypatch):
    """As often as JAX makes a body of theirs, which newer versions of it do once.

    Each has light work in front of it, which the loop takes in.
    """
    compiled, bodies = [], []

    def counting(loop, platform, settings):
        compiled.append(loop)
        return compile_loop(loop, platform, settings)

    def noting(loop, args):
        bodies.append(loop.body)
        return absorbed(loop, args)

    compile_loop, absorbed = hook.compile_loop, hook.absorbed
    monkeypatch.setattr(hook, "compile_loop", counting)
    monkeypatch.setattr(hook, "absorbed", noting)

    def layer(h, x):
        h = jnp.tanh(h + x)
        return h, h

    def network(x):
        for _ in range(5):
            x = onescan.scan(layer, jnp.zeros(16), 2 * x)[1]
        return x

    x = jnp.linspace(-1.0, 1.0, 7 * 16).reshape(7, 16)
    actual = jax.jit(network)(x)
    assert len(bodies) == 5
    assert len(compiled) == len(set(map(id, bodies)))
    with onescan.engine("xla"):
        expected = jax.jit(network)(x)
    np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-6)
    assert all("mul" in str(loop.body) for loop in compiled)


def test_gradients_of_a_loop_in_a_body_that_is_computed_again() -> None:
    """Remat leaves calls in bodies, whose name is another in each JAX."""

    @jax.checkpoint
    def body(c, x):
        inner = jax.lax.fori_loop(0, 4, lambda i, s: jnp.cos(s) * 0.5 + c, c)
        return jnp.tanh(inner + x), None

    loss = lambda c: onescan.scan(body, c, jnp.arange(3.0))[0].sum()
    c = jnp.linspace(-1.0, 1.0, 5)
    with onescan.engine("native"):  # which would raise for one that is left
        native = jax.jit(jax.grad(lambda c: loss(c)))(c)
    with onescan.engine("xla"):
        xla = jax.jit(jax.grad(lambda c: loss(c)))(c)
    np.testing.assert_allclose(native, xla, rtol=1e-3)
