"""spread: constants of fewer dimensions than the state."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from passing import assert_same, core_of, loop_of, notes_of, shown, splits_of

from onescan.passes.simplify import simplify
from onescan.passes.spread import MOST, spread

A, B = jnp.linspace(0.5, 0.9, 8), jnp.linspace(-1.0, 1.0, 4).reshape(4, 1)
STATE, XS = jnp.ones((4, 8)), jnp.linspace(0.0, 1.0, 5 * 4 * 8).reshape(5, 4, 8)


def test_a_decay_of_each_channel():
    def step(h: Any, x: Any) -> Any:
        h = A * h + x
        return h, h

    loop, args = loop_of(step, STATE, XS)
    splits = splits_of(loop, simplify, spread, simplify)
    assert shown(core_of(splits).body) == [
        "in  a:float32[4,8] b:float32[4,8] c:float32[4,8]",
        "d:float32[4,8] = mul a b",
        "e:float32[4,8] = add d c",
        "out e e",
    ]
    assert_same(loop, splits, args)
    (note,) = [note for split in splits for note in notes_of(split)]
    assert (
        note
        == "spread 1 constant over the state, so that steps run along one long axis"
    )


def test_constants_along_either_axis():
    def step(h: Any, x: Any) -> Any:
        h = A * h + B * jnp.where(A > 0.7, x, h)
        return h, None

    loop, args = loop_of(step, STATE, XS)
    splits = splits_of(loop, simplify, spread, simplify)
    assert "spread" in [split.name for split in splits]
    assert_same(loop, splits, args)


def test_not_where_it_joins_nothing_or_is_large():
    def mixing(h: Any, x: Any) -> Any:  # the batch is mixed: there is but one axis
        return A * h + x + h.sum(axis=0), None

    def alone(h: Any, _: None) -> Any:  # reads and writes nothing
        return A * h, None

    def large(h: Any, x: Any) -> Any:
        return jnp.ones(MOST // 16) * h + x, None

    wide = jnp.ones((8, MOST // 16))
    for step, init, xs in (
        (mixing, STATE, XS),
        (alone, STATE, None),
        (large, wide, jnp.ones((2, *wide.shape))),
    ):
        loop, _ = loop_of(step, init, xs, length=None if xs is not None else 3)
        splits = splits_of(loop, simplify)
        assert spread(core_of(splits) if splits else loop) is None
