"""x86's matrix unit (AMX): products of float32 numbers from bfloat16 pieces.

The unit multiplies tiles of bfloat16 numbers and adds up in float32, sixteen times as
many in a cycle as vectors of float32 do.  A float32 number has 24 bits and a bfloat16
number 8, so each is the sum of three, exactly:

    x = x0 + x1 + x2    with |x1| <= 2**-8 |x0| and |x2| <= 2**-16 |x0|

Of the nine products of ``x * y`` six are taken; the other three are together less than
2**-24 of it, which is half of what rounding a float32 product once costs.  Inside the
unit 32 products are summed before they meet the total, so a sum is rounded less often
than one that adds product by product.

Two kinds of numbers are outside of this.  Infinities and NaN have no pieces, nor have
the largest numbers, which a first piece would round to infinity; and where a product is
too large for float32, pieces of it may be infinite with either sign.  Whatever becomes
of them shows in a result: the last piece of such a number is NaN, and no sum becomes
finite again.  So whoever multiplies looks at the results, and computes those anew, in
another way, that were computed with one that is not finite.  A piece below the
smallest normal number is taken for zero, as XLA takes such a number for zero.

A tile is 16 rows of 64 bytes.  A row of x holds 32 steps of the contraction, as 16
pairs of step k in the lower and step k + 16 in the upper half; a tile of y holds a pair
of rows in each of its rows.  So both are made from pairs of vectors, without shuffles.
A stripe, 16 rows of x or 16 columns of y, has its tiles in the order in which a product
reads them: for each 32 steps the tiles of the three pieces.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

from llvmlite import ir

from onescan.emit import types as ty
from onescan.emit.builder import Builder
from onescan.emit.constants import integer

#: rows of a tile, and the numbers that stand in one vector
SIDE = 16
#: steps of the contraction in one tile
DEEP = 32
PIECES = 3
#: bytes of a row of a tile, of a tile, and of the tiles for 32 steps of a stripe
ROW = 64
TILE = SIDE * ROW
STEP = PIECES * TILE
#: tiles of results that a block sums at once; the unit holds eight of all kinds
TOTALS = 4
#: which pieces of x and y meet, in this order in every block: so a result does not
#: depend on the block that it is in; only one tile is brought twice
MEETINGS = ((0, 2), (0, 1), (1, 1), (1, 0), (2, 0), (0, 0))

VOID = ir.VoidType()
I32S = ir.VectorType(ty.I32, SIDE)
F32S = ir.VectorType(ty.F32, SIDE)


def stripe_bytes(depth: int) -> int:
    """Bytes of a stripe: whole tiles for a contraction of `depth` steps."""
    return -(-depth // DEEP) * STEP


# pieces


def taken_apart(b: ty.Builder, low: ty.Value, high: ty.Value) -> list[ty.Value]:
    """Rows of three tiles from two vectors of 16 numbers."""
    upper = ty.constant(ty.I32, 0xFFFF0000, SIDE)
    half = ty.constant(ty.I32, 16, SIDE)
    return [
        b.or_(b.lshr(x, half), b.and_(y, upper))
        for x, y in zip(_pieces(b, low), _pieces(b, high), strict=True)
    ]


def _pieces(b: ty.Builder, x: ty.Value) -> list[ty.Value]:
    """Three vectors of bits, of which the upper halves count."""
    found = []
    for _ in range(PIECES - 1):
        near = b.add(b.bitcast(x, I32S), ty.constant(ty.I32, 0x8000, SIDE))
        near = b.and_(near, ty.constant(ty.I32, 0xFFFF0000, SIDE))
        found.append(near)
        x = b.fsub(x, b.bitcast(near, F32S))
    return [*found, b.bitcast(x, I32S)]


# the unit


def configure(b: ty.Builder) -> None:
    """Make the unit ready: eight tiles of 16 rows."""
    text = bytearray(64)
    text[0] = 1  # the one way there is to divide the unit
    for k in range(8):
        text[16 + 2 * k] = ROW
        text[48 + k] = SIDE
    data: Any = b.module.globals.get("tiles")
    if data is None:
        kind = ir.ArrayType(ty.I8, len(text))
        data = ir.GlobalVariable(b.module, kind, "tiles")
        data.initializer = ir.Constant(kind, text)
        data.global_constant = True
        data.linkage = "private"
        data.type = ty.PTR
    _do(b, "ldtilecfg", data)


def release(b: ty.Builder) -> None:
    """Leave the unit as if it had not been used."""
    _do(b, "tilerelease")


class Chore(Protocol):
    """What the vectors do while the unit multiplies."""

    name: str
    kinds: Sequence[ty.Kind]  # of the arguments that it wants
    weight: int  # of all that one step does

    def begin(self, b: ty.Builder, arguments: Sequence[ty.Value]) -> None:
        """What is done before the first step."""

    def step(self, b: ty.Builder, number: ty.Value) -> Iterator[int]:
        """What is done in a step, in pieces, and the weight of each."""
        ...


def block(
    module: ir.Module, down: int, across: int, chore: Chore | None = None
) -> ir.Function:
    """A block of results: so many tiles of rows and of columns.

    ``void(ptr x, i64 from stripe to stripe, ptr y, i64 the same, i64 steps of 32,
    ptr results, i64 bytes from row to row)``; those of a chore come behind.
    """
    name = f"block_{down}_{across}" + (f"_{chore.name}" if chore else "")
    if name in module.globals:
        return module.globals[name]
    kinds = [ty.PTR, ty.I64, ty.PTR, ty.I64, ty.I64, ty.PTR, ty.I64]
    if chore:
        kinds.extend(chore.kinds)
    function = ir.Function(module, ir.FunctionType(VOID, kinds), name)
    function.linkage = "internal"
    function.attributes.add("noinline")
    function.attributes.add("nounwind")
    x, x_apart, y, y_apart, count, out, out_apart, *more = function.args
    entry, head, done = map(function.append_basic_block, ("entry", "head", "done"))
    b = Builder(entry)
    if chore:
        chore.begin(b, more)
    for total in range(down * across):
        _do(b, "tilezero", _tile(total))
    b.branch(head)
    b.position_at_end(head)
    step = b.phi(ty.I64)
    step.add_incoming(integer(0), entry)
    pieces = chore.step(b, step) if chore else iter(())
    spent = next(pieces, 0)
    start = b.mul(step, integer(STEP))
    xs = [moved(b, x, b.add(start, b.mul(x_apart, integer(r)))) for r in range(down)]
    ys = [moved(b, y, b.add(start, b.mul(y_apart, integer(c)))) for c in range(across)]
    number = len(MEETINGS) * down * across
    for k, _ in enumerate(_meet(b, xs, ys), 1):
        while chore and spent * number < chore.weight * k:
            spent += next(pieces)
    following = b.add(step, integer(1))
    step.add_incoming(following, head)
    b.cbranch(b.icmp_signed("<", following, count), head, done)
    b.position_at_end(done)
    for r in range(down):
        row = moved(b, out, b.mul(out_apart, integer(r * SIDE)))
        for c in range(across):
            place = moved(b, row, integer(c * ROW))
            _do(b, "tilestored64", _tile(r * across + c), place, out_apart)
    b.ret_void()
    return function


def _meet(b: ty.Builder, xs: list[ty.Value], ys: list[ty.Value]) -> Iterator[None]:
    """Add to the totals what 32 steps give: stripes of x times stripes of y.

    It stops after each product of two tiles.
    """
    if len(xs) == 1:  # its pieces stay, and those of y pass by
        (x,), last = xs, 7
        for piece in range(PIECES):
            _bring(b, TOTALS + piece, x, piece)
        for c, y in enumerate(ys):
            for k, (i, j) in enumerate(MEETINGS):
                if k == 0 or j != MEETINGS[k - 1][1]:
                    _bring(b, last, y, j)
                _do(b, "tdpbf16ps", _tile(c), _tile(TOTALS + i), _tile(last))
                yield
        return
    rows, columns = range(len(xs)), range(len(ys))
    first, second = TOTALS, TOTALS + len(xs)
    here = None, None
    for i, j in MEETINGS:
        for r in rows if i != here[0] else ():
            _bring(b, first + r, xs[r], i)
        for c in columns if j != here[1] else ():
            _bring(b, second + c, ys[c], j)
        for c in columns:
            for r in rows:
                total = _tile(r * len(ys) + c)
                _do(b, "tdpbf16ps", total, _tile(first + r), _tile(second + c))
                yield
        here = i, j


def _bring(b: ty.Builder, tile: int, stripe: ty.Value, piece: int) -> None:
    place = moved(b, stripe, integer(piece * TILE))
    _do(b, "tileloadd64", _tile(tile), place, integer(ROW))


def _do(b: ty.Builder, name: str, *operands: ty.Value) -> None:
    """An instruction of the unit: never left out, because its tiles are not values."""
    name = f"llvm.x86.{name}"
    function = b.module.globals.get(name) or ir.Function(
        b.module, ir.FunctionType(VOID, [v.type for v in operands]), name
    )
    b.call(function, operands, tail=False)


def moved(b: ty.Builder, pointer: ty.Value, bytes_on: ty.Value) -> ty.Value:
    """A pointer so many bytes on."""
    return b.gep(pointer, [bytes_on], source_etype=ty.I8)


def _tile(number: int) -> ty.Value:
    return ir.Constant(ty.I8, number)
