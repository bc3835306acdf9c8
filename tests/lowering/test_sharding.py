"""Loops on several devices, in a process of its own that pretends to have four."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

SETUP = """
import jax, jax.numpy as jnp, numpy as np, onescan
from jax.sharding import PartitionSpec as P, NamedSharding
mesh = jax.make_mesh((4,), ("i",), axis_types=(jax.sharding.AxisType.Auto,))
w = jnp.eye(3) * 0.5
def run(scan, h, xs):
    def step(h, x):
        h = jnp.tanh(h @ w + x)
        return h, h.sum(-1)
    return scan(step, h, xs)
ours, stock = (lambda *a: run(onescan.scan, *a)), (lambda *a: run(jax.lax.scan, *a))
xs = jnp.sin(jnp.arange(5 * 8 * 3.0)).reshape(5, 8, 3)
h = jnp.zeros((8, 3))
def check(a, b):
    for a, b in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
"""

PROGRAMS = {
    "shard_map": """
specs = (P("i"), P(None, "i"))
sharded = jax.shard_map(ours, mesh=mesh, in_specs=specs, out_specs=specs)
check(jax.jit(sharded)(h, xs), stock(h, xs))
print("the same")
""",
    "shard_map and grad": """
def value(f):
    specs = dict(mesh=mesh, in_specs=(P("i"), P(None, "i")), out_specs=P("i"))
    sharded = jax.shard_map(lambda h, xs: f(h, xs)[0], **specs)
    return jax.jit(jax.grad(lambda h, xs: (sharded(h, xs) ** 2).sum(), (0, 1)))(h, xs)
check(value(ours), value(stock))
print("the same")
""",
    "a collective in the body": """
def summed(scan):
    def step(c, x):
        return c + jax.lax.psum(x, "i"), c
    body = lambda xs: scan(step, jnp.zeros(3), xs[:, 0])[0]
    return jax.jit(jax.shard_map(body, mesh=mesh, in_specs=P(None, "i"), out_specs=P()))
check(summed(onescan.scan)(xs[:, :4]), summed(jax.lax.scan)(xs[:, :4]))
print("the same")
""",
    "sharded arguments": """
h = jax.device_put(h, NamedSharding(mesh, P("i")))
xs = jax.device_put(xs, NamedSharding(mesh, P(None, "i")))
result = jax.jit(ours)(h, xs)
check(result, stock(h, xs))
assert result[0].sharding.is_equivalent_to(jax.jit(stock)(h, xs)[0].sharding, 2)
print("the same")
""",
    "a device that is not the first": """
device = jax.devices()[2]
result = ours(jax.device_put(h, device), jax.device_put(xs, device))
assert result[0].devices() == {device}
check(result, stock(h, xs))
print("the same")
""",
    "a mesh of one device": """
explicit = (jax.sharding.AxisType.Explicit,)
one = jax.make_mesh((1,), ("s",), axis_types=explicit, devices=jax.devices()[:1])
onescan.clear_report()
with jax.set_mesh(one):
    here = [jnp.asarray(np.asarray(x)) for x in (h, xs, w)]
    def value(h, xs, w):
        step = lambda h, x: (jnp.tanh(h @ w + x), h.sum(-1))
        return sum(y.sum() for y in onescan.scan(step, h, xs))
    found = jax.jit(jax.grad(value, 2))(*here)
assert {row.engine for row in onescan.report().rows} == {"native"}, onescan.report()
check(found, jax.grad(value, 2)(h, xs, w))
print("the same")
""",
    "the advice for a varying carry is JAX's own": """
def f(xs):
    return onescan.scan(lambda c, x: (c + x, None), jnp.zeros(3), xs[:, 0])[0]
try:
    jax.shard_map(f, mesh=mesh, in_specs=P(None, "i"), out_specs=P("i"))(xs)
except TypeError as error:
    assert "varying" in str(error), error
    print("the same")
""",
}


ALL = """
import json, sys, traceback
found = {}
for name, program in json.loads(sys.argv[1]).items():
    said = []
    try:
        exec(program, globals() | {"print": said.append})
    except Exception:
        said.append(traceback.format_exc())
    found[name] = said
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def said():
    """What each program said, all of them in one process."""
    flags = "--xla_force_host_platform_device_count=4"
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", SETUP + ALL, json.dumps(PROGRAMS)],
        env={**os.environ, "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("name", PROGRAMS)
def test_on_four_devices(name, said):
    assert said[name] == ["the same"]
