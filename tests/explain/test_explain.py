"""`onescan.explain`: the values and shapes it shows are those of the loop."""

import html
import json
import sys
from dataclasses import dataclass
from io import StringIO
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from rich.console import Console

import onescan
from onescan.explain import layout


class Pair(NamedTuple):
    left: object
    right: object


@jax.tree_util.register_dataclass
@dataclass
class Registered:
    value: object


def add(total, number):
    return total + number, number + 2


LINE = add.__code__.co_firstlineno

THREE = f"""\
add (test_explain.py:{LINE}), 3 steps

  step   carry in   x   carry out   y
 ─────────────────────────────────────
     0          0   1           1   3
     1          1   2           3   4
     2          3   3           6   5

carry out is the next step's carry in; the y of all steps, stacked, are ys

carry           int32[]
xs, as stacked  int32[3]
x, in the body  int32[]
y, in the body  int32[]
ys, as stacked  int32[3]
returns         (6, [3, 4, 5])

How it runs
"""
SOURCE = f"""
add (test_explain.py)
       {LINE} def add(total, number):
K 100% {LINE + 1}     return total + number, number + 2
"""


def test_three_numbers():
    text = str(onescan.explain(add, 0, [1, 2, 3]))
    assert text.startswith(THREE)
    assert SOURCE in text
    assert repr(onescan.explain(add, 0, [1, 2, 3])) == text


def test_to_dict_is_json():
    told = onescan.explain(add, 0, [1, 2, 3]).to_dict()
    assert json.loads(json.dumps(told)) == told
    assert told["name"] == "add"
    assert told["source"].endswith(f"test_explain.py:{LINE}")
    assert (told["length"], told["reverse"]) == (3, False)
    assert told["shapes"]["ys"] == "int32[3]"
    assert told["steps"][2] == {
        "step": 2,
        "index": 2,
        "carry_in": 3,
        "x": 3,
        "carry_out": 6,
        "y": 5,
    }


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("length", [1, 2, 8, 9, 1000])
def test_values_are_those_of_the_loop(length, reverse):
    def body(carry, x):
        count, mean = carry
        count = count + 1
        return (count, mean + (x["v"] - mean) / count), {"was": mean, "at": x["i"]}

    xs = {"i": jnp.arange(length), "v": jnp.sin(jnp.arange(length, dtype=float))}
    told = onescan.explain(body, (0, 0.0), xs, reverse=reverse)
    carry, ys = jax.lax.scan(body, (0, 0.0), xs, reverse=reverse)

    order = range(length)[::-1] if reverse else range(length)
    shown = range(length) if length <= 8 else [0, 1, 2, 3, length - 2, length - 1]
    assert [row.step for row in told.steps] == list(shown)
    for row in told.steps:
        assert row.index == order[row.step]
        assert row.x["i"] == row.y["at"] == row.index
        np.testing.assert_allclose(row.y["was"], ys["was"][row.index], rtol=1e-5)
    for before, after in zip(told.steps, told.steps[1:], strict=False):
        if before.step + 1 == after.step:
            assert before.carry_out == after.carry_in
    np.testing.assert_allclose(told.steps[-1].carry_out[1], carry[1], rtol=1e-5)
    assert ("⋮" in str(told)) == (length > 8)


def test_carry_has_the_type_that_scan_gives_it():
    told = onescan.explain(lambda c, x: (c + x, c), 0, jnp.ones(3, jnp.bfloat16))
    _, ys = jax.lax.scan(lambda c, x: (c + x, c), 0, jnp.ones(3, jnp.bfloat16))
    assert told.shapes.carry.dtype == ys.dtype == jnp.bfloat16
    assert told.to_dict()["steps"][0]["carry_in"] == 0.0
    assert {row.y.dtype for row in told.steps} == {ys.dtype}


def test_weak_types_do_not_promote():
    def body(c, x):
        return c * 0.5, c + x

    told = onescan.explain(body, 1.0, jnp.ones(3, jnp.bfloat16))
    _, ys = jax.lax.scan(body, 1.0, jnp.ones(3, jnp.bfloat16))
    assert told.shapes.ys.dtype == ys.dtype
    assert body(told.steps[1].carry_in, jnp.bfloat16(1))[1].dtype == ys.dtype


def test_without_xs_and_without_ys():
    told = onescan.explain(lambda c, _: (2 * c, None), 1, length=3)
    assert [row["carry_out"] for row in told.to_dict()["steps"]] == [2, 4, 8]
    assert "returns         (8, None)\n" in str(told)


def test_zero_steps():
    told = onescan.explain(add, 0, jnp.zeros(0, int))
    assert "add (test_explain.py" in str(told)
    assert "ys, as stacked  int32[0]" in str(told)
    assert told.steps == ()


def test_shapes_alone():
    spec = jax.ShapeDtypeStruct
    stacked = Pair(spec((32, 4096), jnp.float32), {"w": spec((32, 8), jnp.bfloat16)})

    def body(carry, x):
        return carry + x.left, x.right["w"]

    told = onescan.explain(body, spec((4096,), jnp.float32), stacked)
    assert told.steps == ()
    assert "Pair(left=float32[32,4096], right={'w': bfloat16[32,8]})" in str(told)
    assert "Pair(left=float32[4096], right={'w': bfloat16[8]})" in str(told)
    assert told.to_dict()["shapes"]["x"] == {
        "left": "float32[4096]",
        "right": {"w": "bfloat16[8]"},
    }


def test_inside_jit_shapes_are_known():
    texts = []

    @jax.jit
    def f(x):
        texts.append(str(onescan.explain(add, 0.0, x)))
        return x

    f(jnp.ones(5))
    assert "xs, as stacked  float32[5]" in texts[0]


def test_keys():
    def body(key, _):
        key, sub = jax.random.split(key)
        return key, sub

    told = onescan.explain(body, jax.random.key(0), length=2)
    assert "key<fry>([0, 0])" in str(told)
    assert "ys, as stacked  key<fry>[2]" in str(told)
    json.dumps(told.to_dict())


def test_leaves_no_row_in_the_report():
    onescan.clear_report()
    onescan.install()
    try:
        onescan.explain(add, 0, jnp.arange(100))
    finally:
        onescan.uninstall()
    assert onescan.report().rows == ()


def test_scan_refuses_first():
    with pytest.raises(
        onescan.ScanTypeError, match=r"(?s)add \(.*comes out as float32"
    ):
        onescan.explain(add, jnp.int32(0), jnp.ones(3))
    with pytest.raises(onescan.ScanTypeError, match=r"xs\[0\] = 'a'"):
        onescan.explain(add, 0, ["a", "b"])
    with pytest.raises(onescan.ScanValueError, match="neither xs nor length"):
        onescan.explain(add, 0)


def test_in_a_terminal_and_a_notebook():
    told = onescan.explain(lambda c, x: ({"<a>": c["<a>"] + x}, x), {"<a>": 0}, [1, 2])
    terminal = Console(file=StringIO(), force_terminal=True, width=100)
    terminal.print(told)
    assert "\x1b[1m" in terminal.file.getvalue()
    assert "{'<a>': 3}" in terminal.file.getvalue()
    page = html.unescape(told._repr_html_())  # the page is an attribute of a frame
    assert "{&#x27;&lt;a&gt;&#x27;: 3}" in page
    assert "<a>" not in page


@pytest.mark.parametrize(
    ("tree", "text"),
    [
        (None, "None"),
        ((), "()"),
        ((1,), "(1,)"),
        ([1, (2, None)], "[1, (2, None)]"),
        ({"b": 1, "a": {}}, "{'a': {}, 'b': 1}"),
        (Pair(1, [2]), "Pair(left=1, right=[2])"),
        (Registered(3), "Registered(value=3)"),
    ],
)
def test_containers(tree, text):
    assert layout.show(tree, str) == text


def test_cells_of_large_trees_are_by_path():
    tree = Pair({"one": jnp.arange(9), "two": jnp.zeros(2)}, jnp.float32(1))
    assert layout.cell(tree) == (
        ".left['one'] int32[9] 0 to 8, mean 4.0\n.left['two'] [0.0, 0.0]\n.right 1.0"
    )
    many = {str(i): jnp.arange(9) for i in range(8)}
    assert layout.cell(many).endswith("['5'] int32[9] 0 to 8, mean 4.0\nand 2 more")
    assert layout.cell((jnp.int32(1), jnp.int32(2))) == "(1, 2)"


def test_long_containers_are_indented():
    tree = Pair({"one": 1, "two": (2,)}, 3)
    assert layout.show(tree, str, width=20) == (
        "Pair(\n  left={\n    'one': 1,\n    'two': (2,)\n  },\n  right=3\n)"
    )
    assert layout.show((1,), str, width=1) == "(\n  1,\n)"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (jnp.float32(1), "1.0"),
        (jnp.bfloat16(0.5), "0.5"),
        (jnp.float32(jnp.nan), "nan"),
        (jnp.float32(-jnp.inf), "-inf"),
        (jnp.float32(1e-10), "1e-10"),
        (jnp.complex64(1 + 2j), "1+2j"),
        (jnp.array(True), "True"),
        (jnp.arange(3), "[0, 1, 2]"),
        (jnp.eye(2), "[[1.0, 0.0], [0.0, 1.0]]"),
        (jnp.arange(9), "int32[9] 0 to 8, mean 4.0"),
        (jnp.ones((3, 4)), "float32[3,4] all 1.0"),
        (jnp.arange(10) > 3, "bool[10] 6 of 10 true"),
        (jnp.full(9, jnp.nan).at[0].set(1), "float32[9] 8 of 9 not finite"),
        (jnp.arange(9) * 1j, "complex64[9] magnitude 0.0 to 8.0, mean 4.0"),
        (jnp.zeros((0, 4)), "[]"),
    ],
)
def test_values(value, text):
    assert layout.value_text(value) == text


def test_function_and_module_share_a_name():
    assert callable(onescan.explain)
    assert sys.modules["onescan.explain"].explain is onescan.explain
