"""The text of every error, and that each is also what JAX raises in its place."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from raising import error_of, error_of_both, where

import onescan
from onescan import ScanTypeError


@jax.tree_util.register_dataclass
@dataclass
class State:
    h: Any


class Pair(NamedTuple):
    a: Any
    b: Any


class TestCarry:
    """The carry must come out as it went in."""

    @pytest.mark.parametrize(
        ("init", "dtype", "line"),
        [
            (
                {"h": jnp.zeros((2, 3)), "n": jnp.float16(0)},
                jnp.float16,
                "carry['h'] goes in as float32[2,3] and comes out as float16[2,3]. "
                "Return carry['h'].astype(jnp.float32) from f.",
            ),
            (
                (jnp.zeros(3), [jnp.int32(1)]),
                jnp.float32,
                "carry[1][0] goes in as int32[] and comes out as float32[]. Return "
                "carry[1][0].astype(jnp.int32) from f, or start from "
                "jnp.asarray(init[1][0], jnp.float32).",
            ),
            (
                State(jnp.array(True)),
                jnp.int32,
                "carry.h goes in as bool[] and comes out as int32[]. Return "
                "carry.h.astype(jnp.bool_) from f, or start from "
                "jnp.asarray(init.h, jnp.int32).",
            ),
            (
                Pair(jnp.int32(1), None),
                jnp.bool_,
                "carry.a goes in as int32[] and comes out as bool[]. Return "
                "carry.a.astype(jnp.int32) from f.",
            ),
            (
                jnp.bfloat16(1),
                jnp.float32,
                "carry goes in as bfloat16[] and comes out as float32[]. Return "
                "carry.astype(jnp.bfloat16) from f, or start from "
                "jnp.asarray(init, jnp.float32).",
            ),
        ],
    )
    def test_dtype(self, init, dtype, line):
        def f(c, x):
            return jax.tree.map(lambda leaf: leaf.astype(dtype), c), x

        error = error_of_both(f, init, length=3)
        assert isinstance(error, ScanTypeError)
        assert str(error) == (
            f"onescan.scan: {where(f)} changes the type of its carry:\n  {line}"
        )

    def test_the_advice_for_a_dtype_works(self):
        def bad(c, x):
            return {"h": c["h"] * 1.5}, None

        def cast(c, x):
            return {"h": (c["h"] * 1.5).astype(jnp.int32)}, None

        init = {"h": jnp.int32(3)}
        text = str(error_of_both(bad, init, length=2))
        assert "carry['h'].astype(jnp.int32)" in text
        assert "jnp.asarray(init['h'], jnp.float32)" in text
        assert onescan.scan(cast, init, length=2)[0]["h"].dtype == jnp.int32
        other = {"h": jnp.asarray(init["h"], jnp.float32)}
        assert onescan.scan(bad, other, length=2)[0]["h"].dtype == jnp.float32

    def test_shape_that_broadcasts(self):
        def f(c, x):
            return c + x, None

        error = error_of_both(f, jnp.zeros(3), jnp.zeros((5, 4, 3)))
        assert str(error) == (
            f"onescan.scan: {where(f)} changes the type of its carry:\n"
            "  carry goes in as float32[3] and comes out as float32[4,3]. "
            "Start from jnp.broadcast_to(init, (4, 3))."
        )
        start = jnp.broadcast_to(jnp.zeros(3), (4, 3))
        assert onescan.scan(f, start, jnp.zeros((5, 4, 3)))[0].shape == (4, 3)

    def test_shape_of_a_python_number(self):
        def f(c, x):
            return c + x, None

        error = error_of_both(f, 0, jnp.zeros((5, 3)))
        assert "carry goes in as float32[] and comes out as float32[3]." in str(error)

    def test_a_python_float_does_not_become_an_integer(self):
        def f(c, x):
            return x, None

        error = error_of_both(f, 0.5, jnp.arange(3))
        assert "carry goes in as float32[] and comes out as int32[]." in str(error)

    def test_a_promotion_that_makes_another_one_necessary(self):
        """JAX promotes Python numbers once, by what the first trace returns."""

        def f(c, x):
            a, b = c
            return (a * 1.5, b + a), None

        error = error_of_both(f, (0, 0), length=2)
        assert str(error).splitlines()[1:] == [
            "  carry[1] goes in as int32[] and comes out as float32[]. Return "
            "carry[1].astype(jnp.int32) from f, or start from "
            "jnp.asarray(init[1], jnp.float32)."
        ]

    def test_shape_that_grows(self):
        def f(c, x):
            return {"seen": jnp.append(c["seen"], x)}, None

        error = error_of_both(f, {"seen": jnp.zeros(2)}, jnp.zeros(4))
        assert str(error) == (
            f"onescan.scan: {where(f)} changes the type of its carry:\n"
            "  carry['seen'] goes in as float32[2] and comes out as float32[3]. The "
            "carry keeps its shape: return what grows or shrinks as y, which is "
            "stacked."
        )

    @pytest.mark.parametrize(
        ("init", "after", "lines"),
        [
            (
                {"a": 1, "b": 2},
                {"a": 1, "c": 3},
                [
                    "carry['b'] goes in but does not come out.",
                    "carry['c'] comes out but did not go in.",
                ],
            ),
            ((1, 2), (1,), ["carry[1] goes in but does not come out."]),
            (
                (1, 2),
                [1, 2],
                ["carry goes in as a tuple of 2 and comes out as a list of 2."],
            ),
            (
                {"h": None},
                {"h": 1.0},
                ["carry['h'] goes in as None and comes out as float32[]."],
            ),
            (
                Pair(1, {"k": 2}),
                Pair(1, 2),
                [
                    "carry.b goes in as a dict with the keys 'k' and comes out as "
                    "int32[]."
                ],
            ),
            (
                [State(1)],
                [Pair(1, 2)],
                ["carry[0] goes in as a State and comes out as a Pair."],
            ),
        ],
    )
    def test_structure(self, init, after, lines):
        def f(c, x):
            return after, None

        error = error_of_both(f, init, length=2)
        assert isinstance(error, ScanTypeError)
        assert str(error).splitlines() == [
            f"onescan.scan: {where(f)} changes the type of its carry:",
            *(f"  {line}" for line in lines),
            "  Make f return its carry in the container it came in.",
        ]

    def test_static_fields(self):
        @jax.tree_util.register_pytree_node_class
        class Named:
            def __init__(self, value, name):
                self.value, self.name = value, name

            def tree_flatten(self):
                return (self.value,), self.name

            @classmethod
            def tree_unflatten(cls, name, children):
                return cls(*children, name)

        def f(c, x):
            return (Named(c[0].value, "after"),), None

        error = error_of_both(f, (Named(1.0, "before"),), length=2)
        assert "carry[0] comes out as a Named with other static fields." in str(error)

    def test_swapped_results(self):
        def f(c, x):
            return x, c

        error = error_of_both(f, jnp.zeros(3), jnp.arange(4))
        assert str(error).splitlines()[-1] == (
            "  What it returns second does have the types of the carry: if the two are "
            "swapped, write `return carry, y`."
        )

    def test_keys_have_no_cast(self):
        def numbers(key, x):
            return jax.random.key_data(key), None

        def keys(numbers, x):
            return jax.random.wrap_key_data(numbers), None

        key = jax.random.key(0)
        for f, init in ((numbers, key), (keys, jax.random.key_data(key))):
            assert str(error_of_both(f, init, length=2)).endswith(
                "A random key stays a key: jax.random.key_data gives its numbers, "
                "and jax.random.wrap_key_data takes them."
            )

    def test_every_leaf_is_named(self):
        def f(c, x):
            return [leaf * 1.5 for leaf in c], None

        error = error_of_both(f, [jnp.int32(0), jnp.float32(0), jnp.int8(0)], length=2)
        assert re.findall(r"carry(\S+) goes in", str(error)) == ["[0]", "[2]"]

    def test_the_same_error_every_time(self):
        """Also when JAX has the trace of the failing function in its cache."""

        def f(c, x):
            return c * 1.5, x

        onescan.scan(f, 1.0, jnp.arange(2))
        texts = {str(error_of_both(f, jnp.int32(0), jnp.arange(2))) for _ in range(3)}
        assert len(texts) == 1
        onescan.scan(f, 1.0, jnp.arange(2))

    def test_inside_a_nested_loop(self):
        """The error names the inner function, once."""

        def inner(c, x):
            return c * 1.5, x

        def outer(c, x):
            return onescan.scan(inner, c, length=2)

        with pytest.raises(ScanTypeError, match=re.escape(where(inner))) as error:
            onescan.scan(outer, jnp.int32(0), length=2)
        assert "outer" not in str(error.value)

    @pytest.mark.parametrize("transform", [jax.jit, jax.grad, jax.vmap, jax.checkpoint])
    def test_under_transformations(self, transform):
        def f(c, x):
            return jnp.stack([c, c]), x

        def run(c):
            return onescan.scan(f, c, length=2)[0].sum()

        c = jnp.ones(3) if transform is jax.vmap else jnp.float32(1)
        with pytest.raises(
            ScanTypeError, match=r"as float32\[\] and comes out as float"
        ):
            transform(run)(c)


class TestResult:
    """What f returns must be a pair of arrays."""

    @pytest.mark.parametrize(
        ("result", "found"),
        [
            (None, "None"),
            (1.5, "float32[]"),
            (np.zeros(3), "float32[3]"),
            ((1, 2, 3), "a tuple of 3"),
            ((), "a tuple of 0"),
            ([1], "a list of 1"),
            ({"a": 1}, "a dict with the keys 'a'"),
            (State(1), "a State"),
        ],
    )
    def test_not_a_pair(self, result, found):
        def f(c, x):
            return result

        error = error_of_both(f, 0, length=2)
        assert str(error) == (
            f"onescan.scan: {where(f)} must return a pair (carry, y), but it returned "
            f"{found}. Return exactly two values: `return carry, y`, or "
            "`return carry, None` when there is nothing to stack."
        )
        with jax.disable_jit(), pytest.raises(ScanTypeError, match=r"return a pair"):
            onescan.scan(f, 0, length=2)

    @pytest.mark.parametrize(
        ("result", "found"),
        [
            ((0, {"name": "a"}), "y['name'] = 'a', of type str"),
            (([0, b"a"], None), "carry[1] = b'a', of type bytes"),
            ((0, ({1, 2},)), "y[0] = {1, 2}, of type set"),
        ],
    )
    def test_not_arrays(self, result, found):
        def f(c, x):
            return result

        assert str(error_of(f, 0, length=2)) == (
            f"onescan.scan: {where(f)} returned {found}, which is not an array. "
            "Return arrays and numbers only, in any containers."
        )


class TestOwnErrors:
    """An error raised inside the user's function comes out as it is."""

    @pytest.mark.parametrize("kind", [TypeError, ValueError, KeyError, ScanTypeError])
    def test_raised_in_f(self, kind):
        mine = kind("mine")

        def f(c, x):
            raise mine

        with pytest.raises(kind, match="mine") as error:
            onescan.scan(f, 0, length=2)
        assert error.value is mine

    def test_raised_after_promotion(self):
        """The first trace changes the carry, the second raises."""

        def f(c, x):
            if c[0].dtype == jnp.float32:
                raise TypeError("mine")
            return (c[0] * 1.5, c[1] * 1.5), None

        with pytest.raises(TypeError, match=r"^mine"):
            onescan.scan(f, (0, jnp.int32(0)), length=2)

    def test_wrong_number_of_arguments(self):
        def f(c):
            return c, None

        with pytest.raises(TypeError, match="takes 1 positional argument"):
            onescan.scan(f, 0, length=2)

    def test_errors_of_jax_itself(self):
        def f(c, x):
            return c + 1 if c > 0 else c, None

        with pytest.raises(jax.errors.TracerBoolConversionError, match=r"argument c\."):
            onescan.scan(f, 0, length=2)
