"""What needs a process of its own: other devices, caches on disk, forks, no onescan."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import onescan
from onescan import switches


def run(code, *args, devices=1):
    """Run a program; what it printed."""
    env = dict(os.environ, JAX_PLATFORMS="cpu")
    env["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={devices}"
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(code), *map(str, args)],
        env=env,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


LOOP = """
import jax, jax.numpy as jnp, numpy as np, sys
from jax import lax
def program(start, xs):
    return lax.scan(lambda c, x: (jnp.sin(c) + x, c * x), start, xs)
XS = jnp.linspace(0.0, 1.0, 7)[:, None] * jnp.ones(8)
"""


@pytest.mark.parametrize("platforms", [["cpu"], ["cpu", "cuda", "tpu"]])
def test_an_exported_program_runs_without_onescan(tmp_path, platforms):
    def program(start, xs):
        return onescan.scan(lambda c, x: (jnp.sin(c) + x, c * x), start, xs)

    start, xs = jnp.float32(0.5), jnp.linspace(0.0, 1.0, 7)
    with switches.using(installed=True):
        exported = jax.export.export(jax.jit(program), platforms=platforms)(start, xs)
    file = tmp_path / "program"
    file.write_bytes(exported.serialize())
    code = """
    import sys
    sys.modules["onescan"] = None  # importing it fails from here on
    import jax, jax.numpy as jnp
    program = jax.export.deserialize(bytearray(open(sys.argv[1], "rb").read()))
    carry, ys = program.call(jnp.float32(0.5), jnp.linspace(0.0, 1.0, 7))
    print(float(carry), *map(float, ys))
    """
    there = np.array(run(code, file), np.float32)
    carry, ys = program(start, xs)
    np.testing.assert_allclose(there, [carry, *ys], rtol=1e-6)


def test_a_second_process_reuses_the_compilation_cache(tmp_path):
    code = """
    import jax, sys
    jax.config.update("jax_compilation_cache_dir", sys.argv[1])
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    hits = []
    jax.monitoring.register_event_listener(
        lambda event, **_: event.endswith("/cache_hits") and hits.append(event)
    )
    import jax.numpy as jnp, numpy as np, onescan
    @jax.jit
    def program(start, xs):
        return onescan.scan(lambda c, x: (jnp.sin(c) + x, c * x), start, xs)
    start, xs = np.float32(0.5), np.linspace(0, 1, 7, dtype=np.float32)
    carry, ys = program(start, xs)
    print(len(hits), float(carry), onescan.report().rows[0].engine)
    """
    first, second = run(code, tmp_path), run(code, tmp_path)
    assert (first[0], second[0]) == ("0", "1")
    assert first[1:] == second[1:]


def test_sharded_programs_on_eight_devices():
    code = """
    import onescan
    from jax.sharding import NamedSharding, PartitionSpec as P
    assert jax.device_count() == 8
    start = jnp.arange(8.0)
    expected = program(start, XS)
    mesh = jax.make_mesh((8,), ("d",), axis_types=(jax.sharding.AxisType.Auto,))
    def agrees(got):
        jax.tree.map(
            lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6), got, expected
        )
    for install in (False, True):
        if install:
            onescan.install()
        sharded = jax.device_put(start, NamedSharding(mesh, P("d")))
        xs = jax.device_put(XS, NamedSharding(mesh, P(None, "d")))
        carry, ys = jax.jit(lambda *a: program(*a))(sharded, xs)
        assert carry.sharding.spec == P("d"), carry.sharding
        agrees((carry, ys))
        specs = dict(in_specs=(P("d"), P(None, "d")), out_specs=(P("d"), P(None, "d")))
        mapped = jax.shard_map(lambda *a: program(*a), mesh=mesh, **specs)
        agrees(mapped(start, XS))
        agrees(jax.jit(mapped)(start, XS))
        grad = jax.jit(jax.grad(lambda s: mapped(s, XS)[0].sum()))(start)
        stock = jax.grad(lambda s: program(s, XS)[0].sum())(start)
        np.testing.assert_allclose(grad, stock, rtol=1e-5)
    """
    run(LOOP + textwrap.dedent(code), devices=8)


def test_pmap_on_eight_devices():
    code = """
    import onescan
    onescan.install()
    starts = jnp.arange(8.0)
    carry, ys = jax.pmap(lambda s: program(s, XS[:, 0]))(starts)
    with onescan.engine("xla"):
        expected = jax.vmap(lambda s: program(s, XS[:, 0]))(starts)
    np.testing.assert_allclose(carry, expected[0], rtol=1e-6)
    np.testing.assert_allclose(ys, expected[1], rtol=1e-6)
    print(onescan.report().rows[0].count)
    """
    assert run(LOOP + textwrap.dedent(code), devices=8)


def test_check_mode_inside_shard_map():
    code = """
    import onescan
    from jax.sharding import PartitionSpec as P
    sys.path.insert(0, sys.argv[1])
    import fakes
    class Patch:
        setattr = staticmethod(setattr)
    onescan.install(check=True)
    mesh = jax.make_mesh((8,), ("d",), axis_types=(jax.sharding.AxisType.Auto,))
    specs = dict(in_specs=(P("d"), P(None, "d")), out_specs=(P("d"), P(None, "d")))
    taken = fakes.use_engine(Patch())
    mapped = jax.jit(jax.shard_map(lambda *a: program(*a), mesh=mesh, **specs))
    jax.block_until_ready(mapped(jnp.arange(8.0), XS))
    assert taken
    jax.clear_caches()
    fakes.use_engine(Patch(), lambda r: [v + 1 for v in r])
    try:
        jax.block_until_ready(mapped(jnp.arange(8.0), XS))
    except jax.errors.JaxRuntimeError as error:
        assert "disagree beyond rounding" in str(error), error
        print("found")
    """
    folder = str(Path(__file__).parents[1] / "helpers")
    assert run(LOOP + textwrap.dedent(code), folder, devices=8) == ["found"]


def test_after_a_fork():
    code = """
    import os, onescan
    onescan.install()
    child = os.fork()  # before any computation: threads of XLA do not survive a fork
    carry, _ = onescan.scan(lambda c, x: (c + x, c), 0, [1, 2, 3])
    if child == 0:
        os._exit(0 if int(carry) == 6 and onescan.is_installed() else 1)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), int(carry))
    """
    assert run(code) == ["0", "6"]


def test_spawned_processes(tmp_path):
    script = tmp_path / "spawn.py"
    script.write_text(
        textwrap.dedent(
            """
            import multiprocessing
            import onescan

            def work(n):
                return int(onescan.scan(lambda c, x: (c + x, c), 0, range(n))[0])

            if __name__ == "__main__":
                work(3)
                with multiprocessing.get_context("spawn").Pool(2) as pool:
                    print(*pool.map(work, [3, 4, 5]))
            """
        )
    )
    done = subprocess.run(
        [sys.executable, script], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["3", "6", "10"]
