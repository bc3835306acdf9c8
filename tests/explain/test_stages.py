"""The stages of the compiler, as `Explanation.stages` shows them."""

import jax
import jax.numpy as jnp
import pytest

import onescan

W = jnp.ones((128, 128))
spec = jax.ShapeDtypeStruct


def step(h, x):
    return jnp.tanh(h + x @ W), None


@pytest.fixture(scope="module")
def told():
    shapes = spec((4, 128), jnp.float32), spec((50, 4, 128), jnp.float32)
    return onescan.explain(step, *shapes)


def test_from_jaxpr_to_assembly(told):
    stages = told.stages("cpu")
    names = list(stages)
    assert names[:3] == ["jaxpr", "inline", "hoist"]
    assert names[-4:] == ["plan", "llvm", "optimised llvm", "assembly"]
    assert len(stages) == len(set(names))
    assert "dot_general" in stages["inline"]
    assert "dot_general" not in stages["hoist"]
    assert "lanes" in stages["plan"]
    assert "define void" in stages["llvm"]
    assert "kernel:" in stages["assembly"]
    text = str(stages)
    assert text.startswith("step (")
    assert "─ hoist ─" in text


def test_ptx_without_a_gpu(told):
    stages = told.stages("cuda")
    assert ".visible .entry kernel(" in stages["ptx"]
    assert "assembly" not in stages


def test_left_to_xla():
    def loud(c, x):
        jax.debug.print("{}", c)
        return c + x, None

    stages = onescan.explain(loud, 0.0, jnp.ones(3)).stages("cpu")
    assert list(stages) == ["jaxpr", "left to XLA"]
    assert "side effects" in stages["left to XLA"]


def test_names_that_are_none(told):
    with pytest.raises(onescan.ScanValueError, match=r'no engine for "tpu".*cpu, cuda'):
        told.stages("tpu")
    with pytest.raises(KeyError, match="'sass' is not one of the stages: jaxpr, "):
        told.stages("cpu")["sass"]
