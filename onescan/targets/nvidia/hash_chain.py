"""threefry2x32 in as little time as a GPU thread can that waits for nothing else.

A loop that splits a random key hashes it, and hashes the result, and so on: one chain,
on which a thread is alone.  A round of threefry adds x1 to x0, turns x1, and xors the
two, and the next round needs the result.  What a multiprocessor then has to wait for:

* An addition, a rotation and an xor take the same unit, 4 cycles each, and one of them
  can start every 2 cycles.  Addition and rotation both wait for the xor before them,
  so one of the two starts late: 10 cycles a round.  But what the xor gives, turned, is
  the xor of what it takes, turned: rotl(rotl(x1, r) ^ x0, s) = rotl(x1, r + s) ^
  rotl(x0, s).  Both of these are known an addition earlier, and an xor may take three
  operands: 8 cycles a round.
* After four rounds keys are added to both x0 and x1.  The sum of the next round needs
  all of them, so what does not depend on the last xor is summed before it.
* The assembler does some additions in the unit for multiplications, from where results
  take longer.  An addition of three numbers it cannot do there: `zero` is a third that
  it does not know.  And what is to be summed first is written as a multiplication by
  a `one` that it does not know, for it would change the order of additions.

LLVM has no part in this: it would take seconds to look through so many rotations.  So
the hash is PTX.  It has a quarter more instructions than the hash of `random`, which
is faster wherever other threads fill the waits.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from itertools import pairwise

from llvmlite import ir

from onescan.emit import types as ty
from onescan.emit.math.nvvm import NOTHING, TID, given
from onescan.emit.random import PARITY, ROTATIONS

#: the truth table of an xor of three
XOR = "0x96"
#: the registers of the text: results, then arguments
X0, X1, KEY0, KEY1, COUNT0, COUNT1, ZERO, ONE = (f"${i}" for i in range(8))
#: and those it has for itself
OWN = "key2 sum0 sum1 sum2 a x raw before left right ahead"


def hashed(
    b: ty.Builder, key0: ty.Value, key1: ty.Value, x0: ty.Value, x1: ty.Value
) -> tuple[ty.Value, ty.Value]:
    """The hash of a pair of words."""
    # not the same for all threads, so that it is kept where the other numbers are
    zero = b.mul(given(b, NOTHING), given(b, TID))
    one = b.add(zero, ir.Constant(ty.I32, 1))
    pair = ir.LiteralStructType([ty.I32, ty.I32])
    kind = ir.FunctionType(pair, [ty.I32] * 6)
    code = ir.InlineAsm(kind, text(), "=&r,=&r,r,r,r,r,r,r", side_effect=False)
    both = b.call(code, [key0, key1, x0, x1, zero, one])
    return b.extract_value(both, 0), b.extract_value(both, 1)


@cache
def text() -> str:
    """The PTX of a hash."""
    own = ", ".join(OWN.split())
    return "\n".join(("{", f".reg .b32 {own};", *_lines(), "}"))


def _lines() -> Iterator[str]:
    keys, sums = (KEY0, KEY1, "key2"), ("sum0", "sum1", "sum2")
    yield f"lop3.b32 key2, {KEY0}, {KEY1}, {PARITY}, {XOR};"
    for group, name in enumerate(sums):  # of the keys that are added after a group
        first, second = keys[(group + 1) % 3], keys[(group + 2) % 3]
        yield f"mad.lo.u32 {name}, {first}, {ONE}, {second};"
    yield f"add.u32 a, {COUNT0}, {KEY0};"
    yield f"add.u32 x, {COUNT1}, {KEY1};"
    for group in range(5):
        rotations = ROTATIONS[group % 2]
        yield from _turned("left", "x", rotations[0])
        yield from _sum("a", *(("raw", "ahead") if group else ("a", "x")), ZERO)
        yield "mov.b32 before, x;"
        yield "xor.b32 x, left, a;"
        for this, following in pairwise(rotations):
            yield from _turned("left", "before", this + following)
            yield from _turned("right", "a", following)
            yield from _sum("a", "a", "x", ZERO)
            yield "mov.b32 before, x;"
            yield f"lop3.b32 x, left, right, a, {XOR};"
        yield "mov.b32 raw, x;"
        yield from _sum("x", "raw", keys[(group + 2) % 3], str(group + 1))
        if group < 4:
            yield from _sum("ahead", sums[group % 3], str(group + 1), "a")
    yield f"add.u32 {X0}, a, {keys[5 % 3]};"
    yield f"mov.b32 {X1}, x;"


def _sum(target: str, *terms: str) -> Iterator[str]:
    first, second, third = terms
    yield f"add.u32 {target}, {first}, {second};"
    yield f"add.u32 {target}, {target}, {third};"


def _turned(target: str, x: str, rotation: int) -> Iterator[str]:
    if rotation % 32:
        yield f"shf.l.wrap.b32 {target}, {x}, {x}, {rotation % 32};"
    else:
        yield f"mov.b32 {target}, {x};"
