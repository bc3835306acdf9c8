"""`scan_layers` against the plain loop over layers, and what it refuses."""

from __future__ import annotations

import functools
import re
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.ad_checkpoint import checkpoint_name

import onescan
from onescan.errors import ScanTypeError, ScanValueError
from onescan.layers import POLICIES, scan_layers, split_key, stack, unstack
from onescan.layers import remat as remat_file

LAYERS, WIDTH = 4, 8


def dense(seed):
    w = jax.random.normal(jax.random.key(seed), (WIDTH, WIDTH)) / WIDTH**0.5
    return {"w": w, "b": jnp.full(WIDTH, 0.1 * seed)}


def block(layer, x, *, key=None, cache=None):
    h = jnp.tanh(checkpoint_name(x @ layer["w"] + layer["b"], "h"))
    if key is not None:
        h = jnp.where(jax.random.bernoulli(key, 0.5, h.shape), 2 * h, 0)
    if cache is not None:
        h, cache = h + cache["sum"], {"sum": cache["sum"] + h}
    return x + h, {"cache": cache, "aux": jnp.sum(h**2)}


def plain(blocks, layers, x, key=None, cache=None, reverse=False):
    """The loop of the document: what `scan_layers` has to give."""
    ys = [None] * len(layers)
    order = range(len(layers))
    for i in reversed(order) if reverse else order:
        key, subkey = split_key(key)
        own = None if cache is None else jax.tree.map(lambda leaf: leaf[i], cache)
        x, ys[i] = blocks[i % len(blocks)](layers[i], x, key=subkey, cache=own)
    return x, ys


def assert_close(a, b, **kw):
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(
            a, b, **{"rtol": 2e-5, "atol": 1e-5} | kw
        ),
        a,
        b,
    )


@pytest.fixture(scope="module")
def layers():
    return [dense(seed) for seed in range(LAYERS)]


@pytest.mark.parametrize(
    ("unroll", "reverse", "with_key", "with_cache"),
    [
        (1, False, False, False),
        (1, False, True, False),
        (1, True, True, True),
        (3, False, False, True),
        (3, True, True, False),
        (True, False, True, True),
    ],
)
def test_equals_the_plain_loop(layers, unroll, reverse, with_key, with_cache):
    x = jnp.ones((3, WIDTH))
    key = jax.random.key(7) if with_key else None
    cache = {"sum": jnp.arange(4.0)[:, None, None] * x} if with_cache else None
    run = functools.partial(scan_layers, block, unroll=unroll, reverse=reverse)
    got = jax.jit(run)(stack(layers), x, key=key, cache=cache)
    x, ys = plain([block], layers, x, key, cache, reverse)
    assert_close(got, (x, stack(ys)))


def test_the_keys_are_those_of_the_document(layers):
    def tell_key(layer, x, *, key):
        return x, jax.random.key_data(key)

    key, expected = jax.random.key(3), []
    for _ in range(LAYERS):
        key, subkey = jax.random.split(key)
        expected.append(jax.random.key_data(subkey))
    _, got = scan_layers(tell_key, stack(layers), 0.0, key=jax.random.key(3))
    np.testing.assert_array_equal(got, np.stack(expected))


@pytest.mark.parametrize("count", [4, 5, 2])
@pytest.mark.parametrize("reverse", [False, True])
def test_patterns(count, reverse):
    def square(layer, x, *, key=None, cache=None):
        h = jnp.sin(x * layer["scale"]) + cache
        noise = jax.random.normal(key, x.shape)
        return x + h * noise, {"cache": h, "aux": jnp.max(h)}

    def layer(i):
        return dense(i) if i % 2 == 0 else {"scale": jnp.float32(i)}

    def cache_of(i):
        zero = jnp.full((2, WIDTH), 0.1 * i)
        return {"sum": zero} if i % 2 == 0 else zero

    blocks = (block, square)
    layers = [layer(i) for i in range(count)]
    caches = [cache_of(i) for i in range(count)]
    params, cache = stack(layers, period=2), stack(caches, period=2)
    x, key = jnp.ones((2, WIDTH)), jax.random.key(1)
    got_x, got_ys = scan_layers(
        blocks, params, x, key=key, cache=cache, reverse=reverse
    )

    order = range(count)
    ys = [None] * count
    for i in reversed(order) if reverse else order:
        key, subkey = split_key(key)
        x, ys[i] = blocks[i % 2](layers[i], x, key=subkey, cache=caches[i])
    assert_close(got_x, x)
    assert_close(unstack(got_ys, period=2), ys)


def test_a_pattern_is_one_loop_over_groups():
    kinds = [lambda w, x: (x * w, None)] * 3 + [lambda w, x: (x + w, None)]
    params = stack([jnp.float32(i) for i in range(32)], period=4)
    jaxpr = jax.make_jaxpr(lambda x: scan_layers(kinds, params, x)[0])(1.0)
    (loop,) = [eqn for eqn in jaxpr.eqns if eqn.primitive.name == "scan"]
    assert loop.params["length"] == 8
    assert sum(e.primitive.name == "mul" for e in loop.params["jaxpr"].eqns) == 3


def loss(params, x, key=None, **options):
    x, ys = scan_layers(block, params, x, key=key, **options)
    return jnp.mean(x**2) + jnp.sum(ys["aux"])


@pytest.mark.parametrize(
    ("engine", "unroll"), [("auto", 1), ("auto", True), ("xla", 1)]
)
def test_gradients_are_equal_with_every_policy(layers, engine, unroll):
    x = jnp.ones((3, WIDTH))

    def plain_loss(layers):
        x_out, ys = plain([block], layers, x)
        return jnp.mean(x_out**2) + sum(y["aux"] for y in ys)

    expected = stack(jax.jit(jax.grad(plain_loss))(layers))
    custom = jax.checkpoint_policies.save_only_these_names("h")
    with onescan.engine(engine):
        for remat in (*POLICIES, custom):
            gradient = jax.jit(
                jax.grad(functools.partial(loss, remat=remat, unroll=unroll))
            )
            assert_close(gradient(stack(layers), x), expected, rtol=1e-4)


@functools.cache
def saved_bytes(remat, unroll):
    """Bytes that the forward pass leaves for the backward pass."""

    def wide(layer, x):
        h = jnp.sin(x @ layer["up"])
        h = checkpoint_name(jnp.cos(h @ layer["down"]), "h")
        return x + jnp.exp(h) * jnp.tanh(x), None

    def loss(params, x):
        return jnp.sum(scan_layers(wide, params, x, remat=remat, unroll=unroll)[0])

    f32 = jnp.float32
    params = {
        "up": jax.ShapeDtypeStruct((8, 16, 64), f32),
        "down": jax.ShapeDtypeStruct((8, 64, 16), f32),
    }
    x = jax.ShapeDtypeStruct((512, 16), f32)
    with onescan.engine("xla"):
        compiled = jax.jit(jax.grad(loss)).lower(params, x).compile()
    return compiled.memory_analysis().temp_size_in_bytes


@pytest.mark.parametrize("unroll", [1, True])
def test_policies_keep_less_in_the_order_they_promise(unroll):
    order = ["none", "dots", "save-names", "full"]
    sizes = [saved_bytes(remat, unroll) for remat in order]
    assert sizes == sorted(sizes, reverse=True)
    assert len(set(sizes)) == len(sizes)
    assert saved_bytes("offload", unroll) <= sizes[1]


def test_offloaded_values_move_to_the_host(layers):
    traced = jax.make_jaxpr(jax.grad(functools.partial(loss, remat="offload")))
    text = str(traced(stack(layers), jnp.ones((3, WIDTH))))
    assert "pinned_host" in text or "Host" in text


def test_offload_says_where_there_is_no_host_memory(layers, monkeypatch):
    monkeypatch.setattr(remat_file, "HOST", "lunar")
    with pytest.raises(ScanValueError, match=r"='offload' needs host .*='save-names'"):
        scan_layers(block, stack(layers), jnp.ones(WIDTH), remat="offload")


def test_called_twice_traced_once(layers):
    traces = []

    def counting(layer, x):
        traces.append(1)
        return x @ layer["w"], None

    for _ in range(3):
        scan_layers(counting, stack(layers), jnp.ones(WIDTH))
    assert len(traces) == 1


def test_the_report_names_the_block(layers):
    onescan.clear_report()
    jax.jit(functools.partial(scan_layers, block))(stack(layers), jnp.ones(WIDTH))
    (row,) = onescan.report().rows
    assert row.name == "block"
    assert "test_layers.py:" in row.source


GOOD = {"w": np.zeros((4, 8, 8)), "b": np.zeros((4, 8))}
ERRORS = {
    "different counts": (
        {"params": {"b": np.zeros((3, 8)), "w": np.zeros((4, 8, 8))}},
        r"params\['w'\] is float64\[4,8,8\], of 4 layers, and params\['b'\] .* of 3",
    ),
    "no axis": (
        {"params": {"w": np.zeros(())}},
        r"params\['w'\] is float64\[\], with no leading axis of layers",
    ),
    "no arrays": ({"params": {"w": 3.0}}, "params has no arrays, so the number"),
    "cache": (
        {"cache": np.zeros((5, 2))},
        "cache is for 5 layers, and params has 4",
    ),
    "not callable": ({"block": 3}, "block must be a function .* but it is 3"),
    "empty": ({"block": (), "params": ()}, "block is an empty pattern"),
    "pattern": (
        {"block": (block, block)},
        r"pattern of 2 blocks, so params must be a tuple of 2 stacks, but it is a dict",
    ),
    "pattern counts": (
        {"block": (block, block), "params": (np.zeros(2), np.zeros(4))},
        r"pattern params have 2 and 4 layers, which no sequence of 6 layers gives",
    ),
    "no key": (
        {"block": lambda layer, x: (x, None), "key": jax.random.key(0)},
        r"there is a key, but <lambda> \(.*\) does not take one",
    ),
    "no cache": (
        {"block": lambda layer, x, key: (x, None), "cache": np.zeros(4)},
        r"there is a cache, but <lambda> \(.*\) does not take one",
    ),
    "no pair": (
        {"block": lambda layer, x: x},
        r"<lambda> \(.*test_layers.py:\d+\) must return a pair \(x, y\), but it "
        r"returned float32\[8\]. Write `return x, y`",
    ),
    "other dtype": (
        {
            "block": lambda layer, x: ({"h": x["h"].astype(jnp.bfloat16)}, None),
            "x": {"h": jnp.ones(8)},
        },
        r"gets x\['h'\] as float32\[8\] and returns it as bfloat16\[8\]",
    ),
    "other container": (
        {"block": lambda layer, x: ((x, x), None)},
        r"gets x as float32\[8\] and returns it as a tuple of 2",
    ),
    "x": ({"x": {"name": "a"}}, r"x\['name'\] = 'a', of type str, is not an array"),
    "policy name": ({"remat": "ful"}, r"remat='ful' is no policy. .* 'dots'"),
    "policy": ({"remat": 3}, r"remat must be a name, a policy .* but it is 3"),
}


@pytest.mark.parametrize("case", ERRORS)
def test_errors(case):
    change, message = ERRORS[case]
    arguments = {"block": block, "params": GOOD, "x": jnp.ones(8)} | change
    with pytest.raises((ScanTypeError, ScanValueError), match=message):
        scan_layers(**arguments)


def test_the_page_of_the_documentation_runs():
    page = (Path(__file__).parents[2] / "docs" / "layers.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert len(blocks) == 5
    namespace = {}
    for code in blocks:
        exec(compile(code, "layers.md", "exec"), namespace)
    for name in POLICIES:
        assert f'| `"{name}"` |' in page
