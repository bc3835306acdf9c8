"""The Llama example: against transformers' recorded answers, and against itself."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from llama_models import SMALL, numpy_params

import onescan
from examples.llama.cache import KVCache, empty_state
from examples.llama.checkpoint import load
from examples.llama.config import CONFIGS
from examples.llama.explain import explain_llama
from examples.llama.generate import decode, generate, next_logits, pad_left, prefill
from examples.llama.model import forward
from examples.llama.params import param_shapes
from examples.llama.sampling import Sampler, in_nucleus
from onescan.layers import unstack

FIXTURES = Path(__file__).parents[1] / "fixtures" / "llama"
PROMPTS = [[5, 17, 3, 8, 21, 30, 2, 9], [11, 4, 26]]  # of scripts/llama_parity.py


@pytest.fixture(scope="module")
def params():
    return numpy_params()


@pytest.mark.parametrize(
    ("kind", "engine"),
    [("full", "xla"), ("grouped", "auto"), ("tied", "xla"), ("rope3", "xla")],
)
def test_transformers_says_the_same(kind, engine):
    expected = np.load(FIXTURES / kind / "expected.npz")
    params, config = load(FIXTURES / kind)
    assert (params.lm_head is None) == (kind == "tied")
    assert (config.rope_scaling is not None) == (kind == "rope3")
    tokens, mask = pad_left(PROMPTS)
    with onescan.engine(engine):
        logits = np.asarray(forward(params, tokens, mask, config=config))
        np.testing.assert_allclose(
            logits[mask], expected["logits"][mask], atol=1e-4, rtol=0
        )
        if kind in ("full", "tied"):  # the slow part; `make parity` has all of them
            return
        pieces = generate(params, PROMPTS, config=config, tokens=12)
        found = np.concatenate(list(pieces), axis=1)
    np.testing.assert_array_equal(found, expected["generated"])


def test_cache_gives_the_logits_of_the_full_sequence(params):
    tokens = np.arange(18, dtype=np.int32).reshape(2, 9)
    mask = np.arange(9) >= np.array([[0], [2]])
    full = forward(params, tokens, mask, config=SMALL)
    state = empty_state(SMALL, 2, 9, jnp.float32)
    first, seen = tokens[:, :5], mask[:, :5]
    now = prefill(params, first, seen, state, jax.random.key(0), config=SMALL)
    np.testing.assert_array_equal(now.token, jnp.argmax(full[:, 4], axis=-1))
    state = now.state
    step = jax.jit(lambda state, token: next_logits(params, state, token, SMALL))
    for position in range(5, 9):
        logits, state = step(state, tokens[:, position])
        np.testing.assert_allclose(logits, full[:, position], atol=1e-4)
    assert state.filled == 9
    assert state.position.tolist() == [9, 7]


@pytest.mark.parametrize("key", [None, 5], ids=["no key", "dropout"])
def test_the_loop_equals_the_list_of_blocks(params, key):
    tokens = jnp.arange(14).reshape(2, 7)
    key = None if key is None else jax.random.key(key)
    listed = params._replace(decoder=unstack(params.decoder))
    one = forward(params, tokens, config=SMALL, key=key)
    other = forward(listed, tokens, config=SMALL, key=key)
    np.testing.assert_allclose(one, other, atol=1e-4)
    if key is None:
        fused = replace(SMALL, attention="xla")
        np.testing.assert_allclose(
            forward(params, tokens, config=fused), one, atol=1e-4
        )
    else:
        assert jnp.abs(one - forward(params, tokens, config=SMALL)).max() > 1e-2


def test_decoding_with_a_list_of_blocks_and_caches(params):
    listed = params._replace(decoder=unstack(params.decoder))
    tokens, mask = pad_left(PROMPTS)
    found = []
    for own in (params, listed):
        state = empty_state(SMALL, 2, 16, jnp.float32)
        if own is listed:
            state = state._replace(kv=unstack(state.kv))
        now = prefill(own, tokens, mask, state, jax.random.key(0), config=SMALL)
        found.append(decode(own, now, steps=6, config=SMALL)[1])
    np.testing.assert_array_equal(*found)


def test_causal_and_padding_masks(params):
    tokens = jnp.arange(12).reshape(2, 6)
    mask = jnp.ones((2, 6), bool).at[0, :2].set(False)
    run = lambda tokens: forward(params, tokens, mask, config=SMALL)
    before, later = run(tokens), run(tokens.at[:, 4].add(7))
    np.testing.assert_allclose(before[:, 2:4], later[:, 2:4], atol=1e-5)
    assert (jnp.abs(before - later)[:, 4:].max(axis=-1) > 1e-3).all()
    padding = run(tokens.at[0, :2].add(7))
    np.testing.assert_allclose(before[0, 2:], padding[0, 2:], atol=1e-5)


def test_sequences_end_at_their_own_end(params):
    pieces = generate(params, PROMPTS, config=SMALL, tokens=16)
    free = np.concatenate(list(pieces), axis=1)
    end = int(free[0, 3])  # as if the fourth token of the first row were the end
    config = replace(SMALL, eos=(end,))
    ended = np.concatenate(
        list(generate(params, PROMPTS, config=config, tokens=16)), axis=1
    )
    for row, told in zip(free.tolist(), ended.tolist(), strict=True):
        stop = row.index(end) + 1 if end in row else len(row)
        assert told[:stop] == row[:stop][: len(told)]
        assert set(told[stop:]) <= {end}


def test_the_decode_loop_does_not_copy_the_cache():
    state = jax.eval_shape(lambda: empty_state(SMALL, 2, 64, jnp.float32))
    made = param_shapes(SMALL)
    start = jax.eval_shape(
        lambda params, state: prefill(
            params,
            jnp.zeros((2, 3), jnp.int32),
            jnp.ones((2, 3), bool),
            state,
            jax.random.key(0),
            config=SMALL,
        ),
        made,
        state,
    )
    with onescan.engine("xla"):
        lowered = decode.lower(made, start, steps=8, config=SMALL)
        text = lowered.compile().as_text()
    shape = ",".join(map(str, state.kv.keys.shape))
    assert f"f32[{shape}]" in text
    assert not re.findall(rf"= f32\[{shape}\]\S* (?:copy|transpose)\(", text)


PARAMETERS = {
    "7b": 6_738_415_616,
    "13b": 13_015_864_320,
    "70b": 68_976_648_192,
    "3-8b": 8_030_261_248,
    "3-70b": 70_553_706_496,
    "tinyllama": 1_100_048_384,
}


@pytest.mark.parametrize("name", PARAMETERS)
def test_the_models_have_the_published_number_of_parameters(name):
    assert CONFIGS[name].parameters == PARAMETERS[name]


LLAMA_BLOCK = """\
DecoderBlock(
  input_norm=float32[{n}4096],
  attention=Attention(
    q_proj=float32[{n}4096,1,32,128],
    k_proj=float32[{n}4096,32,128],
    v_proj=float32[{n}4096,32,128],
    out_proj=float32[{n}1,32,128,4096]
  ),
  post_attn_norm=float32[{n}4096],
  gate_proj=float32[{n}4096,11008],
  up_proj=float32[{n}4096,11008],
  down_proj=float32[{n}11008,4096]
)"""


def test_llama_at_full_size_from_shapes_alone():
    listings = dict(explain_llama(CONFIGS["7b"]).listings())
    assert listings["xs, as stacked"] == LLAMA_BLOCK.format(n="32,")
    assert listings["x, in the body"] == LLAMA_BLOCK.format(n="")
    assert listings["carry"] == "(None, float32[1,2048,4096])"
    assert listings["ys, as stacked"] == "None"


def test_greedy_and_temperature():
    logits = jnp.log(jnp.array([[0.1, 0.6, 0.3]]))
    assert Sampler()(logits, None).tolist() == [1]
    keys = jax.random.split(jax.random.key(0), 4000)
    draw = jax.vmap(lambda key: Sampler(temperature=1.0)(logits, key)[0])
    shares = np.bincount(draw(keys), minlength=3) / 4000
    np.testing.assert_allclose(shares, [0.1, 0.6, 0.3], atol=0.04)


@pytest.mark.parametrize(
    ("top_p", "kept"), [(0.05, [1]), (0.6, [1]), (0.65, [1, 2]), (0.95, [0, 1, 2])]
)
def test_top_p_keeps_the_likeliest(top_p, kept):
    logits = jnp.log(jnp.array([[0.1, 0.6, 0.25, 0.05]]))
    assert np.flatnonzero(in_nucleus(logits, top_p - 1e-3)).tolist() == kept
    keys = jax.random.split(jax.random.key(0), 500)
    draw = jax.vmap(lambda key: Sampler(1.0, top_p - 1e-3)(logits, key)[0])
    assert set(draw(keys).tolist()) == set(kept)


def test_samplers_refuse_what_makes_no_sense():
    with pytest.raises(ValueError, match="temperature must be >= 0, but it is -1"):
        Sampler(-1.0)
    with pytest.raises(ValueError, match=r"top_p must be in \(0, 1\], but it is 0"):
        Sampler(1.0, 0.0)
    with pytest.raises(ValueError, match="every prompt must have at least one token"):
        pad_left([[1], []])


def test_the_cache_has_heads_before_time():
    kv = empty_state(SMALL, 2, 5, jnp.bfloat16).kv
    assert isinstance(kv, KVCache)
    assert kv.keys.shape == (2, 2, 2, 5, 4)
