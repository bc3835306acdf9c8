"""The builder writes no instruction twice, and forgets what may have changed."""

from collections.abc import Callable
from typing import Any

import pytest
from llvmlite import ir

from onescan.emit import types as ty
from onescan.emit.builder import Asked, Builder, never_changes
from onescan.runtime import compiler

ARRAY = ir.ArrayType(ty.F32, 8)
ZERO, ONE = ty.constant(ty.F32, 0.0), ty.constant(ty.F32, 1.0)


class Function:
    """A function with two pointers and an index, scratch memory and a cell."""

    def __init__(self, builder: type[Builder] = Builder) -> None:
        self.module = ir.Module()
        kind = ir.FunctionType(ir.VoidType(), [ty.PTR, ty.PTR, ty.I64])
        self.ir = ir.Function(self.module, kind, "f")
        self.x, self.y, self.i = self.ir.args
        entry = ir.IRBuilder(self.ir.append_basic_block("entry"))
        self.scratch, self.cell = entry.alloca(ARRAY), entry.alloca(ty.F32)
        start = self.ir.append_basic_block("start")
        entry.branch(start)
        self.b: Any = builder(start)

    def at(self, pointer: Any, i: Any) -> Any:
        i = ir.Constant(ty.I64, i) if isinstance(i, int) else i
        return self.b.gep(pointer, [i], source_etype=ty.F32)

    def load(self, pointer: Any, i: Any) -> Any:
        return self.b.load(self.at(pointer, i), typ=ty.F32)

    def lines(self, word: str) -> list[str]:
        return [line for line in str(self.ir).splitlines() if f" {word} " in line]

    def check(self) -> None:
        """LLVM takes what was written."""
        self.b.ret_void()
        with compiler.optimised(str(self.module), 0):
            pass


def test_what_was_computed_is_not_computed_again():
    f = Function()
    x, y = f.load(f.x, 0), f.load(f.x, 1)
    assert f.b.fadd(x, y) is f.b.fadd(x, y)
    assert f.b.fadd(x, y) is not f.b.fadd(y, x)
    assert f.b.fadd(x, y) is not f.b.fadd(x, y, flags=["contract"])
    assert f.b.fcmp_ordered("<", x, y) is not f.b.fcmp_unordered("<", x, y)
    assert f.b.icmp_signed("<", f.i, f.i) is not f.b.icmp_unsigned("<", f.i, f.i)
    assert f.b.icmp_signed("==", f.i, f.i) is f.b.icmp_unsigned("==", f.i, f.i)
    f.check()


def test_another_block_computes_for_itself():
    f = Function()
    before = f.b.add(f.i, f.i)
    loaded = f.load(f.x, 0)
    following = f.ir.append_basic_block("following")
    f.b.branch(following)
    f.b.position_at_end(following)
    assert f.b.add(f.i, f.i) is not before
    assert f.load(f.x, 0) is not loaded
    f.check()


def test_a_load_of_what_was_stored():
    f = Function()
    f.b.store(ONE, f.at(f.scratch, 3))
    assert f.load(f.scratch, 3) is ONE
    assert f.load(f.scratch, 2) is f.load(f.scratch, 2)
    f.b.store(ZERO, f.at(f.scratch, f.i))
    assert f.load(f.scratch, f.i) is ZERO
    f.check()


STORES: dict[str, Callable[[Function], Any]] = {
    "there": lambda f: f.b.store(ONE, f.at(f.x, 4)),
    "somewhere": lambda f: f.b.store(ONE, f.at(f.x, f.i)),
    "more": lambda f: f.b.store(ty.constant(ty.F32, 1, 2), f.at(f.x, 4)),
    "less": lambda f: f.b.store(ty.constant(ty.I8, 1), f.at(f.x, 4)),
    "across": lambda f: f.b.store(ty.constant(ty.F32, 1, 2), f.at(f.x, 3)),
    "call": lambda f: f.b.call(_filling(f), [f.x]),
    "unknown": lambda f: f.b.store(ONE, f.b.inttoptr(f.i, ty.PTR)),
}


def _filling(f: Function) -> ir.Function:
    return ir.Function(f.module, ir.FunctionType(ir.VoidType(), [ty.PTR]), "fill")


@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("where", [4, "i"])
def test_a_store_ends_what_was_known(store, where):
    f = Function()
    where = f.i if where == "i" else where
    before = f.load(f.x, where)
    STORES[store](f)
    assert f.load(f.x, where) is not before
    f.check()


def test_a_store_elsewhere_changes_nothing():
    f = Function()
    before = f.load(f.x, 4)
    for i in (3, 5):
        f.b.store(ONE, f.at(f.x, i))
    f.b.store(ONE, f.at(f.y, f.i))
    f.b.store(ONE, f.scratch)
    assert f.load(f.x, 4) is before
    f.check()


def test_of_a_cell_only_the_last_store_is_written():
    f = Function()
    for value in (ONE, f.load(f.x, 0), ZERO):
        f.b.store(value, f.cell)
        assert f.b.load(f.cell) is value
    assert not f.lines("store")
    f.b.ret_void()
    assert len(f.lines("store")) == 1
    assert ZERO.get_reference() in f.lines("store")[0]


@pytest.mark.parametrize("look", ["bits", "call", "block"])
def test_a_cell_is_written_before_others_look(look):
    f = Function()
    f.b.store(ONE, f.cell)
    if look == "bits":
        f.b.load(f.cell, typ=ty.I32)
    elif look == "call":
        f.b.call(_filling(f), [f.cell])
    else:
        f.b.position_at_end(f.ir.append_basic_block("following"))
    written = str(f.ir).splitlines()
    store = next(i for i, line in enumerate(written) if " store " in line)
    words = {"bits": "load i32", "call": "call void", "block": "following:"}
    assert store < next(i for i, line in enumerate(written) if words[look] in line)


def test_instructions_are_only_added_at_the_end():
    f = Function()
    with pytest.raises(NotImplementedError, match="at the end of a block"):
        f.b.position_at_start(f.b.block)


@pytest.mark.parametrize(("builder", "loads"), [(Builder, 1), (Asked, 3)])
def test_counts_what_was_written_or_asked_for(builder: type[Builder], loads: int):
    f = Function(builder)
    for _ in range(3):
        f.load(f.x, 0)
    for value in (ZERO, ONE):
        f.b.store(value, f.cell)
    f.check()
    assert len(f.lines("load")) == 1
    assert f.b.runs["load", "float"] == loads
    assert f.b.runs["getelementptr", "ptr"] == loads
    stores = {what: n for (what, _), n in f.b.runs.items() if what in ("store", "cell")}
    assert stores == ({"store": 2} if builder is Asked else {"cell": 1})


def test_what_never_changes_is_said_once():
    f = Function()
    for _ in range(2):
        never_changes(f.b, f.load(f.x, 0))
    f.check()
    (line,) = f.lines("load")
    assert line.count("!invariant.load") == 1


def test_what_is_unlikely_is_not_counted():
    """What a matrix unit leaves to vectors would else be predicted to run each time."""
    f = Function()
    x = f.load(f.x, 0)
    with f.b.if_then(f.b.icmp_signed("<", f.i, ir.Constant(ty.I64, 3)), likely=False):
        f.b.fadd(x, x)
    f.b.fmul(x, x)
    assert f.b.runs["fadd", "float"] == 0
    assert f.b.runs["fmul", "float"] == 1
    f.check()
