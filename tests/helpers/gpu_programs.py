"""Programs around a loop that matter on a GPU: each checks itself.

They run on any device that has an engine, and say `Skipped` where they need more.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import onescan
from onescan.api import reference

STEPS, BATCH, HIDDEN = 20, 6, 48


class Skipped(Exception):
    """A check that this machine cannot run."""


def _normal(seed: int, *shape: int) -> Any:
    values = np.random.default_rng(seed).standard_normal(shape)
    return jnp.asarray(0.3 * values, jnp.float32)


def network(scan: Any, w: Any, h: Any, xs: Any) -> Any:
    """Work for a block of threads: a product with weights in every step."""

    def step(h, x):
        h = jnp.tanh(h @ w + x)
        return h, h.sum(-1)

    return scan(step, h, xs)


def swing(scan: Any, rate: Any, state: Any, xs: Any) -> Any:
    """Work for single threads: a few numbers for each lane."""

    def step(state, x):
        angle, speed = state
        speed = speed - rate * jnp.sin(angle) + x
        return (angle + 0.1 * speed, speed), angle

    return scan(step, state, xs)


def _arguments() -> dict[Callable[..., Any], tuple[Any, ...]]:
    lanes = 1000
    return {
        network: (
            0.3 * _normal(0, HIDDEN, HIDDEN),
            _normal(1, BATCH, HIDDEN),
            _normal(2, STEPS, BATCH, HIDDEN),
        ),
        swing: (
            jnp.float32(0.2),
            (_normal(3, lanes), _normal(4, lanes)),
            _normal(5, STEPS, lanes),
        ),
    }


def _close(actual: Any, expected: Any) -> None:
    leaves = zip(jax.tree.leaves(actual), jax.tree.leaves(expected), strict=True)
    for a, b in leaves:
        scale = max(1.0, float(np.abs(b).max()))
        np.testing.assert_allclose(a, b, rtol=0, atol=2e-5 * scale)


def _native() -> Any:
    return onescan.engine("native")


def donated_arguments() -> None:
    """Buffers given away are not read after they were written."""
    for program, args in _arguments().items():
        first, *rest = args
        expected = jax.device_get(program(jax.lax.scan, *args))
        run = jax.jit(partial(program, onescan.scan), donate_argnums=(1, 2))
        with _native():
            _close(run(first, *jax.tree.map(jnp.copy, rest)), expected)


def inside_a_while_loop() -> None:
    """XLA may record the body of its own loop as a CUDA graph, our launch with it."""
    for program, (first, carry, xs) in _arguments().items():

        def rounds(scan: Any, program=program, first=first, xs=xs) -> Any:
            def again(state: Any) -> Any:
                k, carry, total = state
                carry, ys = program(scan, first, carry, xs + 0.01 * k)
                return k + 1, carry, total + ys.mean()

            def run(carry: Any, count: Any) -> Any:
                start = jnp.float32(0), carry, jnp.float32(0)
                return jax.lax.while_loop(lambda s: s[0] < count, again, start)

            return jax.jit(run)

        expected = jax.device_get(rounds(jax.lax.scan)(carry, 7.0))
        with _native():
            run = rounds(onescan.scan)
            for _ in range(3):  # a graph is built, then launched again
                _close(run(carry, 7.0), expected)


def derivatives_of_a_batch() -> None:
    """vmap of grad, and grad of vmap."""
    for program, args in _arguments().items():
        first, *rest = args
        many = jax.tree.map(lambda x: jnp.stack([x, 0.5 * x, -x]), rest)

        def loss(scan: Any, first: Any, rest: Any, program=program) -> Any:
            carry, ys = program(scan, first, *rest)
            return sum(jnp.sum(x**2) for x in jax.tree.leaves((carry, ys)))

        def both(scan: Any, first: Any, many: Any, loss=loss) -> Any:
            one = partial(loss, scan)
            whole = lambda first: jax.vmap(one, (None, 0))(first, many).sum()
            each = jax.vmap(jax.grad(one, (0, 1)), (None, 0))(first, many)
            return each, jax.grad(whole)(first)

        expected = jax.device_get(jax.jit(partial(both, jax.lax.scan))(first, many))
        with _native():
            _close(jax.jit(partial(both, onescan.scan))(first, many), expected)


def same_bits_again() -> None:
    """No result depends on which thread comes first."""
    for program, args in _arguments().items():
        with _native():
            run = jax.jit(partial(program, onescan.scan))
            results = [jax.device_get(run(*args)) for _ in range(20)]
        for other in results[1:]:
            for a, b in zip(
                jax.tree.leaves(results[0]), jax.tree.leaves(other), strict=True
            ):
                np.testing.assert_array_equal(a, b)


def many_shapes_of_lanes() -> None:
    """Lanes that do not fill warps, blocks and the chip."""
    for lanes in (1, 2, 31, 32, 33, 257, 4097):
        state = _normal(6, lanes), _normal(7, lanes)
        args = jnp.float32(0.2), state, _normal(8, STEPS, lanes)
        with _native():
            actual = jax.jit(partial(swing, onescan.scan))(*args)
        _close(actual, swing(jax.lax.scan, *args))
    for batch, hidden in ((1, 5), (3, 33), (133, 16), (300, 40)):
        args = (
            0.3 * _normal(0, hidden, hidden),
            _normal(1, batch, hidden),
            _normal(2, STEPS, batch, hidden),
        )
        with _native():
            actual = jax.jit(partial(network, onescan.scan))(*args)
        _close(actual, network(jax.lax.scan, *args))


def windows_and_counts() -> None:
    """Slices of an array are read in place, and numbers of steps not at all."""

    def counted(scan: Any, first: Any, carry: Any, xs: Any) -> Any:
        def step(carry: Any, x: Any) -> Any:
            i, now, following = x
            carry = jax.tree.map(lambda c: 0.9 * c + first.mean() * now, carry)
            return carry, following * i + sum(c.sum() for c in jax.tree.leaves(carry))

        numbers = jnp.arange(len(xs) - 1, dtype=jnp.float32)
        return scan(step, carry, (numbers, xs[:-1], xs[1:]), reverse=True)

    for args in _arguments().values():
        expected = jax.device_get(counted(jax.lax.scan, *args))
        onescan.clear_report()
        with _native():
            _close(jax.jit(partial(counted, onescan.scan))(*args), expected)
        (row,) = onescan.report().rows
        assert len(row.notes) >= 2, row.notes


def rows_by_all_threads() -> None:
    """Long rows, at which all threads of a block work together."""

    def step(scan_row: Any, x: Any) -> Any:
        row = scan_row * 0.5 + x
        found = (
            jnp.cumsum(row),
            jax.lax.cummax(row, reverse=True),
            jax.lax.cumsum((100 * row).astype(jnp.int32), reverse=True),
            jnp.argmax(jnp.where(row > 2, jnp.nan, row)),
            jnp.argmin(jnp.round(row)),
            jnp.argmax(row > 0),
        )
        return jnp.roll(row, 3), found

    for n in (32, 33, 100, 1000, 3001):
        args = _normal(6, n), _normal(7, 9)
        expected = jax.device_get(jax.lax.scan(step, *args))
        with _native():
            _close(jax.jit(lambda c, xs: onescan.scan(step, c, xs))(*args), expected)


def by_the_plain_loop() -> None:
    """The oracle that uses no scan at all."""
    for program, args in _arguments().items():
        expected = jax.device_get(program(reference.scan, *args))
        with _native():
            _close(jax.jit(partial(program, onescan.scan))(*args), expected)


def on_another_device() -> None:
    """A device that is not the default one."""
    devices = jax.devices()
    if len(devices) < 2:
        raise Skipped(f"there is one device, {devices[0].device_kind}")
    for program, args in _arguments().items():
        there = jax.device_put(args, devices[1])
        expected = jax.device_get(program(jax.lax.scan, *args))
        with _native():
            actual = jax.jit(partial(program, onescan.scan))(*there)
        assert {d for x in jax.tree.leaves(actual) for d in x.devices()} == {devices[1]}
        _close(actual, expected)


def cached_programs() -> None:
    """A second process takes the compiled program from JAX's cache on disk."""
    with tempfile.TemporaryDirectory() as folder:
        first, second = _cached_run(folder), _cached_run(folder)
    assert first["hits"] == 0, "the first process found an empty cache full"
    assert second["hits"] >= 1, "the second process compiled the program again"
    assert second["values"] == first["values"]


def _cached_run(folder: str) -> dict[str, Any]:
    here = Path(__file__).parent
    code = "import gpu_programs; gpu_programs.report_of_cached_run()"
    path = os.pathsep.join([str(here), str(here.parents[1])])
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"PYTHONPATH": path, "JAX_COMPILATION_CACHE_DIR": folder},
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout.splitlines()[-1])


def report_of_cached_run() -> None:
    """In a process of its own: results, and how often the cache had the program."""
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    args = jax.device_put(_arguments()[network])
    hits: list[str] = []

    def note(event: str, **_: Any) -> None:
        if event == "/jax/compilation_cache/cache_hits":
            hits.append(event)

    jax.monitoring.register_event_listener(note)
    with _native():
        carry, _ = jax.jit(partial(network, onescan.scan))(*args)
    print(json.dumps({"hits": len(hits), "values": carry.ravel().tolist()}))


PROGRAMS: dict[str, Callable[[], None]] = {
    f.__name__.replace("_", " "): f
    for f in (
        donated_arguments,
        inside_a_while_loop,
        derivatives_of_a_batch,
        same_bits_again,
        windows_and_counts,
        many_shapes_of_lanes,
        rows_by_all_threads,
        by_the_plain_loop,
        on_another_device,
        cached_programs,
    )
}
