"""Ctrl-C in long loops: real signals in a process of their own."""

from __future__ import annotations

import signal
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from kernels import by_kernel, by_xla, inputs_of, loop_in, plan_of
from processes import output, python

import onescan
from onescan.plan import patience
from onescan.targets.cpu.machine import host
from onescan.targets.cpu.target import Cpu

STOPPED = """
import os, signal, threading, time
import jax, jax.numpy as jnp, numpy as np, onescan

logistic = lambda x, _: (3.7 * x * (1 - x), None)
scan = lambda x, n, **options: onescan.scan(logistic, x, length=n, **options)[0]
LONG = 2 * 10**9  # some seconds at least

def pressed(run, busy=0.2):
    "What run() ends with, and the seconds that this computed from Ctrl-C to then."
    at, began = [], time.process_time()
    def press():
        while time.process_time() - began < busy:
            time.sleep(0.01)
        at.append(time.process_time())
        os.kill(os.getpid(), signal.SIGINT)
    timer = threading.Thread(target=press)
    timer.start()
    try:
        jax.block_until_ready(run())  # JAX may run the program beside this thread
    except BaseException as error:
        return type(error).__name__, time.process_time() - at[0]
    finally:
        timer.join()
    return "nothing", time.process_time() - at[0]

def expect(name, run, busy=0.2):
    found, seconds = pressed(run, busy)
    assert found == "KeyboardInterrupt", (name, found)
    assert seconds < 3, (name, seconds)  # of the processor, a few ms as a rule

def compiled(function, *args):
    with onescan.engine("native"):
        ready = jax.jit(function).lower(*args).compile()
    return lambda: ready(*args)

few = jax.jit(lambda x: scan(x, 1000))
before = few(0.3)
"""

WAYS = (
    STOPPED
    + """
one = compiled(lambda x: scan(x, LONG), 0.3)
expect("a jitted loop", one)
expect("an array's own wait", lambda: one().block_until_ready())
expect("a number", lambda: float(one()))
expect("an array", lambda: np.asarray(one()))
expect("a list", lambda: jax.block_until_ready([one()]))
expect("no jit", lambda: scan(0.3, LONG).block_until_ready(), busy=1)
assert few(0.3) == before

many = jnp.linspace(0.1, 0.9, 1 << 14)
expect("lanes", compiled(lambda x: scan(x, LONG // 1000), many))
inside = lambda x, _: (scan(x, LONG // 2), None)
expect("loops in loops", compiled(lambda x: onescan.scan(inside, x, length=3), 0.3))
turn = lambda x: 3.7 * x * (1 - x)
endless = lambda x, _: (jax.lax.while_loop(lambda x: x > 0, turn, x), 0)
expect("while", compiled(lambda x: onescan.scan(endless, x, length=3), 0.3))
counted = lambda x, n: onescan.fori_loop(0, n, lambda i, x: turn(x), x)
expect("a while loop", compiled(counted, 0.3, LONG))
staged = jax.vmap(lambda x: onescan.scan(lambda c, x: (c * x + 1, c), 0.1, x)[1])
wide = jnp.full((64, 1 << 14), 0.5)
again = lambda w: jax.lax.fori_loop(0, 10**6, lambda i, w: staged(w), w)
expect("many kernels", compiled(again, wide))
little = lambda x: scan(x, 10**9, checkpoint="log")
expect("a gradient", compiled(jax.grad(little), 0.3))
expect("progress", compiled(lambda x: scan(x, LONG, progress=lambda total: Bar()), 0.3))
assert few(0.3) == before
print("done")
"""
)


def test_every_long_loop_is_ended():
    bar = """
class Bar:
    def update(self, n): pass
"""
    assert output(bar + WAYS) == "done"


def test_handlers_of_the_user_and_threads():
    code = """
# a thread that waits has the error; the main thread is interrupted as ever
errors, ended = [], threading.Event()
def wait():
    try:
        one().block_until_ready()
    except jax.errors.JaxRuntimeError as error:
        errors.append(str(error))
    ended.set()
one = compiled(lambda x: scan(x, LONG), 0.3)
thread = threading.Thread(target=wait)
def both():
    thread.start()
    ended.wait()
expect("a thread", both)
ended.wait()
assert "ended by Ctrl-C" in errors[0], errors

# who handles or ignores the signal has the loop's result
short = compiled(lambda x: scan(x, 2 * 10**8), 0.3)
want = short()
called = []
for handler in (lambda *_: called.append(1), signal.SIG_IGN):
    signal.signal(signal.SIGINT, handler)
    got = []
    assert pressed(lambda: got.append(short().block_until_ready()))[0] == "nothing"
    assert got[0] == want
assert called == [1]

# and when Python's own is back, all is as before
signal.signal(signal.SIGINT, signal.default_int_handler)
expect("again", lambda: one().block_until_ready())

# a signal between loops is Python's alone
try:
    signal.raise_signal(signal.SIGINT)
    time.sleep(5)
except KeyboardInterrupt:
    assert few(0.3) == before
    time.sleep(0.1)
    print("done", flush=True)
signal.signal(signal.SIGINT, signal.SIG_DFL)
pressed(lambda: one().block_until_ready())
"""
    done = python(STOPPED + code)
    assert done.stdout == "done\n", done.stderr
    assert done.returncode == -signal.SIGINT


def logistic(x: jax.Array, _: None) -> tuple[jax.Array, None]:
    return 3.7 * x * (1 - x), None


@pytest.mark.parametrize("length", [1000, 10**9])
def test_only_long_kernels_look(length: int):
    loop = loop_in(lambda x: onescan.scan(logistic, x, length=length), 0.3)
    kernel = Cpu(host()).build(plan_of(loop))
    looks = "onescan_stop" in str(kernel.module)
    assert looks == (kernel.look > 0) == (length > 1000)


def loops_of_every_kind(init: jax.Array, xs: jax.Array) -> Any:
    def body(c: jax.Array, x: jax.Array) -> tuple[jax.Array, jax.Array]:
        inner, _ = jax.lax.scan(lambda d, _: (jnp.abs(d) / 2 + x, d), c, length=11)
        return jax.lax.while_loop(lambda c: c.sum() > 5, lambda c: c / 2, c), inner

    return jax.lax.scan(body, init, xs, reverse=True)


@pytest.mark.parametrize("between", [1, 5000, 1e9])
def test_a_kernel_that_looks_gives_the_same(
    between: float, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(patience, "SHORT", 0)
    monkeypatch.setattr(patience, "BETWEEN", between)
    loop = loop_in(loops_of_every_kind, jnp.zeros(37), jnp.zeros(53))
    inputs = inputs_of(loop)
    got = by_kernel(plan_of(loop), inputs)
    for mine, theirs in zip(got, by_xla(loop, inputs), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-6)
