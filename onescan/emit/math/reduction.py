"""Reduction of an angle to quarter turns: x = n pi/2 + r, |r| <= pi/4 (barely more).

Moderate angles: n pi/2 is subtracted in pieces, all but the last of so few bits that
their products with n are exact. Huge ones (Payne and Hanek): x is an integer times a
power of two, and whole turns of the product with the bits of 2/pi fall away, so a
window of those bits, chosen by the exponent, gives n and r in integer arithmetic. That
is one function per module and type, called only when some lane needs it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise
from typing import Any

from llvmlite import ir

from onescan.emit.constants import I64, integer, vector
from onescan.emit.math import features
from onescan.emit.math.coefficients import HALF_PI, HALF_PI_PAIR, TWO_OVER_PI
from onescan.emit.math.types import (
    DOUBLE,
    Lane,
    fast_two_sum,
    fma,
    select,
    two_product,
    with_element,
)

# The products of n with the pieces of pi/2 are exact below this.
MODERATE = {32: 2.0**11 * 1.57, 64: 2.0**20 * 1.57}
# Zero bits before those of 2/pi in the table, so that every window starts inside it.
PADDING = 64
# How many 32-bit words of the product count: the digits of x, as many again that may
# cancel, and the digits of r.
WINDOW = {32: 3, 64: 6}
LOW_WORD = 0xFFFFFFFF


def reduce_turn(x: Lane) -> tuple[Lane, Lane]:
    """The quarter turns n (low bits of an integer) and the rest r; NaN for infinity."""
    n, n_float = _quarters(x)
    r = x
    for piece in HALF_PI[x.format.bits]:
        r = fma(n_float, -piece, r)
    n, r, _ = _with_huge(x, n, r, r.like(0.0))
    return n, r


def reduce_turn_pair(x: Lane) -> tuple[Lane, Lane, Lane]:
    """The same with r as a sum of two numbers."""
    n, n_float = _quarters(x)
    *exact, last = HALF_PI[x.format.bits]
    r = x - n_float * exact[0]
    low = n_float * -last
    for piece in exact[1:]:
        product = n_float * piece
        rest = r - product
        low = low + ((r - rest) - product)
        r = rest
    n, r, low = _with_huge(x, n, *fast_two_sum(r, low))
    return n, r, low


def _quarters(x: Lane) -> tuple[Lane, Lane]:
    """The nearest number of quarter turns, as low bits of an integer and a float."""
    bias = x.format.round_bias
    shifted = fma(x, 2 / math.pi, bias)
    return shifted.bits(), shifted - bias


def _with_huge(x: Lane, *moderate: Lane) -> tuple[Lane, ...]:
    size = x.abs()
    huge = (size > MODERATE[x.format.bits]) & (size < math.inf)
    return rarely(huge, x, "huge_turn", _reduce_huge, moderate)


def _reduce_huge(x: Lane) -> tuple[Lane, ...]:
    bits, mantissa = x.format.bits, x.format.mantissa
    i64 = with_element(x.type, ir.IntType(64))
    pattern = x.bits()
    if bits == 32:
        pattern = Lane(x.b, x.b.zext(pattern.ir, i64))
    significand = (pattern & ((1 << mantissa) - 1)) | (1 << mantissa)
    exponent = (pattern >> mantissa) & (2 * x.format.bias + 1)
    # |x| = significand * 2**e; a turn is 4 quarters.
    start = exponent + (PADDING - 2 - x.format.bias - mantissa)
    product = _multiply(significand, _window(start, x), WINDOW[bits])

    # The first two bits count quarter turns; the rest, signed, is the fraction.
    words = [((high << 2) | (low >> 30)) & LOW_WORD for high, low in pairwise(product)]
    negative = (words[0] >> 31).equals(1)
    quarter = (product[0] >> 30) + (words[0] >> 31)
    flip = select(negative, start.like(LOW_WORD), 0)
    r, low = _fraction_to_angle([word ^ flip for word in words], x)
    if bits == 32:
        quarter = Lane(x.b, x.b.trunc(quarter.ir, x.bits().type))
    backwards = x < 0.0
    negative = negative ^ backwards
    return (
        select(backwards, -quarter, quarter),
        select(negative, -r, r),
        select(negative, -low, low),
    )


def _window(start: Lane, x: Lane) -> list[Lane]:
    """32-bit words of 2/pi from bit `start` of the padded table on."""
    count = WINDOW[x.format.bits] + 1
    index = start >> 5
    last = (PADDING + x.format.bias) // 32 + 1
    words: list[Lane] = [start.like(word) for word in TWO_OVER_PI[: last + count]]
    step = 1 << last.bit_length()
    while step > 1:
        step //= 2
        chosen = (index & step).equals(step)
        words += [start.like(0)] * (2 * step - 1 + count - len(words))
        words = [
            select(chosen, words[i + step], words[i]) for i in range(step - 1 + count)
        ]
    shift = start & 31
    return [(((high << 32) | low) << shift) >> 32 for high, low in pairwise(words)]


def _multiply(significand: Lane, window: list[Lane], count: int) -> list[Lane]:
    """The product modulo one turn, as 32-bit words, the highest first."""
    parts = [significand & LOW_WORD, significand >> 32]
    if count == WINDOW[32]:
        parts = parts[:1]
    zero = significand.like(0)
    columns = [zero] * count
    for shift, part in enumerate(parts):
        for i, word in enumerate(window):
            column = i - shift
            term = part * word
            if column >= 0:
                columns[column] += term & LOW_WORD
            if column >= 1:
                columns[column - 1] += term >> 32
    carry = zero
    for i in reversed(range(count)):
        total = columns[i] + carry
        columns[i] = total & LOW_WORD
        carry = total >> 32
    return columns


def _fraction_to_angle(words: list[Lane], x: Lane) -> tuple[Lane, Lane]:
    """The fraction of a quarter turn, words after the binary point, in radians."""
    double = with_element(x.type, ir.DoubleType())
    base = 2.0**DOUBLE.mantissa
    terms = []
    for i, word in enumerate(words[:4]):
        exact = (word | (DOUBLE.one + (52 << 52))).as_float(
            Lane(x.b, ir.Constant(double, ir.Undefined))
        )
        terms.append((exact - base) * 2.0 ** (-32 * (i + 1)))
    if x.format is not DOUBLE:
        wide = (terms[0] + terms[1]) * (math.pi / 2)
        narrow = wide.to(x.element)
        return narrow, (wide - narrow.to(wide.element)).to(x.element)
    high, low = fast_two_sum(terms[0], terms[1])
    high, low = fast_two_sum(high, low + (terms[2] + terms[3]))
    quarter, quarter_low = HALF_PI_PAIR[64]
    product, lost = two_product(high, high.like(quarter))
    return fast_two_sum(product, lost + fma(high, quarter_low, low * quarter))


def rarely(
    mask: Lane,
    x: Lane,
    name: str,
    compute: Callable[[Lane], tuple[Lane, ...]],
    otherwise: tuple[Lane, ...],
) -> tuple[Lane, ...]:
    """compute(x) in the lanes of `mask`, `otherwise` elsewhere.

    The computation is a function of its own, called only when the mask holds in some
    lane: it costs the common case one test.
    """
    b = x.b
    function = _outlined(b.module, name, compute, x.type, [y.type for y in otherwise])
    if isinstance(mask.type, ir.VectorType):
        word = ir.IntType(mask.type.count)
        needed = b.icmp_unsigned("!=", b.bitcast(mask.ir, word), word(0))
    else:
        needed = mask.ir
    before = b.block
    with b.if_then(needed, likely=False):
        result = b.call(function, [x.ir])
        inside = [
            select(mask, Lane(b, b.extract_value(result, i)), y)
            for i, y in enumerate(otherwise)
        ]
        end = b.block
    merged = []
    for slow, fast in zip(inside, otherwise, strict=True):
        phi = b.phi(fast.type)
        phi.add_incoming(fast.ir, before)
        phi.add_incoming(slow.ir, end)
        merged.append(Lane(b, phi))
    return tuple(merged)


def _outlined(
    module: ir.Module,
    name: str,
    compute: Callable[[Lane], tuple[Lane, ...]],
    argument: Any,
    results: list[Any],
) -> ir.Function:
    """`compute` as an internal function of the module, made on first use.

    On more lanes than a register holds it works piece by piece, because LLVM takes
    long over so much code with so many values alive.
    """
    if isinstance(argument, ir.VectorType):
        suffix = f"v{argument.count}{argument.element}"
    else:
        suffix = str(argument)
    full_name = f"onescan.{name}.{suffix}"
    existing = module.globals.get(full_name)
    if existing is not None:
        return existing
    result = ir.LiteralStructType(results)
    function = ir.Function(module, ir.FunctionType(result, [argument]), full_name)
    function.linkage = "internal"
    function.attributes.add("noinline")
    function.attributes.add("cold")
    b: Any = ir.IRBuilder(function.append_basic_block())
    x = Lane(b, function.args[0])
    lanes = _register_bits(x.b) // x.format.bits
    if isinstance(argument, ir.VectorType) and argument.count > lanes:
        kinds = [vector(kind.element, lanes) for kind in (argument, *results)]
        piece = _outlined(module, name, compute, kinds[0], kinds[1:])
        _return(b, result, _in_pieces(x, piece, kinds))
    else:
        _return(b, result, [value.ir for value in compute(x)])
    return function


def _register_bits(b: Any) -> int:
    """Of the widest register there is."""
    if features.has(b, features.AVX512):
        return 512
    return 256 if features.is_x86(b) else 128


def _in_pieces(x: Lane, piece: ir.Function, kinds: list[Any]) -> list[Any]:
    """What `piece` gives for all lanes, a few at a time.

    The last piece ends where the vector ends, over lanes that were done before where
    it has to.
    """
    b: Any = x.b
    count, lanes = x.type.count, kinds[0].count
    start, loop, done = b.block, *map(b.append_basic_block, ("loop", "done"))
    places = [b.alloca(vector(kind.element, count)) for kind in kinds]
    for place in places:
        place.type = ir.PointerType()  # to any of the elements, too
    given, *places = places
    b.store(x.ir, given)
    b.branch(loop)
    b.position_at_end(loop)
    k = b.phi(I64)
    k.add_incoming(integer(0), start)
    last = integer(count - lanes)
    first = b.select(b.icmp_signed("<", k, last), k, last)

    def at(place: Any, kind: Any) -> Any:
        return b.gep(place, [first], source_etype=kind.element)

    argument = b.load(at(given, kinds[0]), typ=kinds[0], align=4)
    found = b.call(piece, [argument])
    for i, (place, kind) in enumerate(zip(places, kinds[1:], strict=True)):
        b.store(b.extract_value(found, i), at(place, kind), align=4)
    following = b.add(k, integer(lanes))
    k.add_incoming(following, loop)
    b.cbranch(b.icmp_signed("<", following, integer(count)), loop, done)
    b.position_at_end(done)
    return [b.load(place) for place in places]


def _return(b: Any, kind: Any, values: list[Any]) -> None:
    """Return several values at once."""
    together = ir.Constant(kind, ir.Undefined)
    for i, value in enumerate(values):
        together = b.insert_value(together, value, i)
    b.ret(together)
