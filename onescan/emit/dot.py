"""dot_general: products with a block of results held in registers.

Each result is a sum over the contracted positions in order; a block of results
(a few rows times a few columns, or vectors of columns) is summed at a time, so
that every element pulled is used several times.  Where the vectors of the kernel
can only lie along the contracted dimension, each vector position sums its own
share and the shares are joined pairwise at the end.  A matrix that many rows are
multiplied with so, such as the weights in the gradient of a product, is transposed
first, into memory of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain, product
from math import prod
from typing import Any

from llvmlite import ir

from onescan.emit import types as ty
from onescan.emit.across_vectors import joined, widened
from onescan.emit.arrays import Array, Index, Vec, add, scale
from onescan.emit.convert import convert, rounded
from onescan.emit.emitter import Emitter
from onescan.emit.terms import addition, multiply_add, read_often
from onescan.emit.transposition import transposed
from onescan.loop import Equation
from onescan.plan.plan import SHORTEST, is_across

#: registers that a block of results may take, and results that may share a pull
REGISTERS = 16
ROWS = 8
#: sums that a block should have under way, so that none waits for the one before
UNDER_WAY = 8
#: positions of the contraction that are summed one after the other
FEW = 4
#: blocks of a product among which fetching ahead is divided
FEWEST_BLOCKS = 8
#: rows from which a matrix is transposed for them, and the most bytes that it has
TRANSPOSED_ROWS = 8
TRANSPOSED_BYTES = 1 << 18
#: a product whose operands have at most this many elements is unrolled whole
UNROLLED = 64


def dot_general(e: Emitter, eqn: Equation, operands: list[Array]) -> list[Array]:
    x, y = operands
    numbers, target = eqn.params["dimension_numbers"], e.fresh(eqn.outvars[0])
    (along, _), (batch, _) = numbers
    terms = prod(x.shape[i] for i in (*along, *batch))
    rows, columns = (prod(a.shape) // max(terms, 1) for a in operands)
    x = read_often(e, x, columns // (2 * e.plan.inner_width))
    y = read_often(e, y, rows // (2 * ROWS))
    return [Product(e, numbers, x, y, target).emit()]


class Product:
    """Two arrays whose product fills a third.

    Their dimensions are numbered as in JAX's `dot_general`, but that what is a batch
    for y may be none for x, which all of it shares.
    """

    def __init__(
        self, e: Emitter, numbers: Any, x: Array, y: Array, target: Array
    ) -> None:
        self.e, self.x, self.y, self.target = e, x, y, target
        (self.cx, self.cy), (self.bx, self.by) = numbers
        self.fx = [
            i for i in range(len(x.shape)) if i not in self.cx and i not in self.bx
        ]
        self.fy = [
            i for i in range(len(y.shape)) if i not in self.cy and i not in self.by
        ]
        self.dtype = target.dtype
        self.plus = addition(self.dtype)
        self.sizes = [x.shape[i] for i in self.cx]
        self.rows = len(self.by), len(self.by) + len(self.fx)  # of the result
        self.columns = self.rows[1], self.rows[1] + len(self.fy)

    #: positions of the contraction for one round of a loop
    at_once = FEW

    def emit(self) -> Array:
        shape, lanes = self.target.shape, self.target.lanes
        if 0 in shape:
            return self.target
        if self._is_worth_transposing():
            self.y = transposed(self.e, self.y, self.cy[0], self.fy[0])
        held = next((i for i, l in enumerate(lanes) if l and l.vector), None)
        if held is not None:
            self._blocks(held, [(0, 1, shape[held])], wide=shape[held])
        elif self.e.plan.inner_width < 2 or not self._long_enough():
            if self._lengthwise():
                self._blocks(None, [], wide=0, lengthwise=True)
            else:
                self._blocks(None, [], wide=0)
        elif self._lengthwise():
            self._blocks(None, [], wide=0, lengthwise=True)
        else:
            along = self._along()
            segments = self.e.stretches(shape[along])
            self._blocks(along, segments, wide=self.e.plan.inner_width)
        return self.target

    def _along(self) -> int:
        """The last dimension of the result that is longer than one."""
        shape = self.target.shape
        return max((i for i, n in enumerate(shape) if n > 1), default=len(shape) - 1)

    def _long_enough(self) -> bool:
        shape = self.target.shape
        return bool(shape) and shape[self._along()] >= SHORTEST

    def _lengthwise(self) -> bool:
        """Whether vectors lie better along the contraction than the result."""
        if self.e.plan.inner_width < 2 or len(self.cx) != 1 or self.sizes[0] < 4:
            return False
        if not self._long_enough():
            return True
        along = self._along()
        if along < self.rows[0]:
            return False
        if along < self.rows[1]:
            stride = self.x.stride(self.fx[along - self.rows[0]])
        else:
            stride = self.y.stride(self.fy[along - self.columns[0]])
        contracted = self.x.stride(self.cx[0]), self.y.stride(self.cy[0])
        is_last = along == len(self.target.shape) - 1
        return stride != 1 and (contracted == (1, 1) or not is_last)

    def _is_worth_transposing(self) -> bool:
        """Whether vectors would lie along the contraction for many rows of results."""
        y, width = self.y, self.e.plan.inner_width
        if is_across((*y.lanes, *self.target.lanes)):
            return False
        if width < 2 or len(self.cy) != 1 or len(self.fy) != 1:
            return False
        stands = y.memory is not None or y.apart is not None
        if not stands or y.stride(self.cy[0]) != 1:
            return False
        rows = prod(self.x.shape[i] for i in self.fx)
        matrix = y.shape[self.cy[0]], y.shape[self.fy[0]]
        fits = prod(y.shape) * y.dtype.itemsize <= TRANSPOSED_BYTES
        large = min(matrix) >= width and fits
        return large and rows >= TRANSPOSED_ROWS and self._lengthwise()

    def _blocks(
        self,
        along: int | None,
        segments: Sequence[tuple[int, int, int]],
        wide: int,
        lengthwise: bool = False,
    ) -> None:
        """Walk the result in blocks; `along` is the dimension that vectors cover."""
        e, shape = self.e, self.target.shape
        width = wide if not lengthwise else e.plan.inner_width
        per = max(1, width * max(self.dtype.itemsize, 4) // (4 * e.plan.inner_width))
        budget = max(1, REGISTERS // per)
        row = self._last(self.rows, along)
        column = self._last(self.columns, None if segments else along)
        if column is None and segments:
            column = along
        steps = [1] * len(shape)
        if row is not None:
            steps[row] = min(shape[row], ROWS if column is not None else budget, budget)
        if column is not None:
            least = budget // (steps[row] if row is not None else 1)
            steps[column] = max(1, min(self._count(column, along, segments), least))
        for part in self._parts(along, segments, steps):
            self._part(along, part, lengthwise)

    def _last(self, span: tuple[int, int], along: int | None) -> int | None:
        """The last dimension of a span that may be blocked."""
        dims = [i for i in range(*span) if i != along and self.target.shape[i] > 1]
        return dims[-1] if dims else None

    def _count(self, i: int, along: int | None, segments: Any) -> int:
        if i == along and segments:
            return max(count for _, count, _ in segments)
        return self.target.shape[i]

    def _parts(
        self, along: int | None, segments: Any, steps: list[int]
    ) -> Iterator[list[tuple[int, int, int, int]]]:
        """For each dimension (start, blocks, block size, width) of a uniform part."""
        choices = []
        for i, n in enumerate(self.target.shape):
            runs = segments if i == along else [(0, n, 1)]
            options = []
            for start, count, width in runs:
                step = min(steps[i], count)
                if count // step:
                    options.append((start, count // step, step, width))
                if left := count % step:
                    begin = start + (count - left) * width
                    options.append((begin, 1, left, width))
            choices.append(options)
        yield from map(list, product(*choices))

    def _part(self, along: int | None, part: Any, lengthwise: bool) -> None:
        e = self.e

        fetch = self._fetcher(part)

        def visit(blocks: tuple[Index, ...]) -> None:
            fetch(blocks)
            places: list[list[Index]] = []
            for i, (block, (start, _, step, width)) in enumerate(
                zip(blocks, part, strict=True)
            ):
                options: list[Index] = []
                for k in range(step):
                    if isinstance(block, int):
                        base: Index = start + (block * step + k) * width
                    else:
                        scaled = e.b.mul(block, ir.Constant(ty.I64, step * width))
                        base = add(e.b, scaled, start + k * width)
                    is_vector = i == along and (width > 1 or self._held(i))
                    options.append(Vec(base, width) if is_vector else base)
                places.append(options)
            self._sum(list(product(*places)), lengthwise)

        # unrolled, the addresses of a large operand would be constants, and LLVM would
        # load all of it before the loop over time, into registers that are not there
        e.for_each(
            [blocks for _, blocks, _, _ in part], visit, 1 if self._is_small() else 999
        )

    def _fetcher(self, part: Any) -> Any:
        """Code that, block by block, fetches what the next step will need."""
        e = self.e
        counts = [blocks for _, blocks, _, _ in part]
        ahead, total = e.ahead, prod(counts)
        if not ahead or total < FEWEST_BLOCKS or self._is_small():
            return lambda blocks: None
        e.ahead = []

        def fetch(blocks: tuple[Index, ...]) -> None:
            number: Index = 0
            for count, block in zip(counts, blocks, strict=True):
                number = add(e.b, scale(e.b, number, count), block)
            for span in ahead:
                span.fetch(e.b, number, total)

        return fetch

    def _held(self, i: int) -> bool:
        lane = self.target.lanes[i]
        return bool(lane and lane.vector)

    def _sum(self, places: list[tuple[Index, ...]], lengthwise: bool) -> None:
        """The results at `places`, summed together."""
        e, memory = self.e, self.target.memory
        assert memory is not None
        if not lengthwise:
            width = next((i.width for i in places[0] if isinstance(i, Vec)), 0)
            for place, total in zip(
                places, self._totals(places, self.sizes, 0, 0, width), strict=True
            ):
                memory.store(e.b, place, self.finished(place, total))
            return
        (start, count, widest), *others = e.stretches(*self.sizes)
        sums = self._totals(places, [count], start, widest, widest)
        for start, count, width in others:
            rest = self._totals(places, [count], start, width, width)
            sums = self._plus(sums, [widened(e.b, total, widest) for total in rest])
        sums = joined(e.b, sums, self.plus, self.dtype)
        for place, total in zip(places, sums, strict=True):
            memory.store(e.b, place, self.finished(place, total))

    def _totals(
        self,
        places: list[tuple[Index, ...]],
        sizes: list[int],
        start: int,
        stretch: int,
        width: int,
    ) -> list[ty.Value]:
        e = self.e
        width = width if width > 1 else 0
        zero = ty.constant(ty.register_type(self.dtype), 0, width)
        chains = self._chains(len(places))
        cells = [[e.entry.alloca(zero.type) for _ in places] for _ in range(chains)]
        for cell in chain.from_iterable(cells):
            e.b.store(zero, cell)

        def step(index: tuple[Index, ...], number: int = 0) -> None:
            if stretch:
                (block,) = index
                if isinstance(block, int):
                    base: Index = start + block * stretch
                else:
                    base = add(e.b, e.b.mul(block, ir.Constant(ty.I64, stretch)), start)
                index = (Vec(base, stretch) if stretch > 1 else base,)
            left: dict[Any, ty.Value] = {}
            right: dict[Any, ty.Value] = {}
            for place, cell in zip(places, cells[number % chains], strict=True):
                a = self._pull(left, self.x, self.bx, self.fx, self.cx, place, index, 0)
                c = self._pull(
                    right, self.y, self.by, self.fy, self.cy, place, index, 1
                )
                held = e.b.load(cell)
                e.b.store(self.meet(a, c, held), cell)

        if 0 in sizes or not sizes or self._is_small():
            for index in product(*map(range, sizes)):
                step(index)
        else:
            self._long_sum(sizes, step)
        sums = [[e.b.load(cell) for cell in of_chain] for of_chain in cells]
        while len(sums) > 1:
            half = len(sums) // 2
            sums = [
                self._plus(*two) for two in zip(sums[:half], sums[half:], strict=True)
            ]
        return sums[0]

    def meet(self, x: ty.Value, y: ty.Value, total: ty.Value) -> ty.Value:
        """A sum with the product of two numbers."""
        return multiply_add(self.e.b, self.dtype, x, y, total)

    def finished(self, place: tuple[Index, ...], total: ty.Value) -> ty.Value:
        """A result, as it is stored."""
        return rounded(self.e.b, total, self.dtype)

    def _plus(self, left: list[ty.Value], right: list[ty.Value]) -> list[ty.Value]:
        pairs = zip(left, right, strict=True)
        return [self.plus(self.e.b, self.dtype, x, y) for x, y in pairs]

    def _chains(self, results: int) -> int:
        """How many sums each of some results is taken in, added up in the end."""
        long = bool(self.sizes) and self.sizes[-1] >= 2 * FEW
        if not long or self._is_small() or not ty.is_float(self.dtype):
            return 1
        return max(k for k in (1, 2, FEW) if k == 1 or k * results <= UNDER_WAY)

    def _is_small(self) -> bool:
        """Whether the product is unrolled whole: all operands fit in registers."""
        sizes = (
            prod(
                n for n, l in zip(a.shape, a.lanes, strict=True) if not (l and l.vector)
            )
            for a in (self.x, self.y, self.target)
        )
        return max(sizes) <= (UNROLLED // 4 if self.e.plan.vector else UNROLLED)

    def _long_sum(self, sizes: list[int], step: Any) -> None:
        """Run `step` over the contraction, a few positions at a time."""
        e, (*outer, n) = self.e, sizes
        few = next(k for k in (self.at_once, 2, 1) if n >= k)

        def visit(index: tuple[Index, ...]) -> None:
            *front, block = index
            for k in range(few):
                if isinstance(block, int):
                    step((*front, block * few + k), k)
                else:
                    base = e.b.mul(block, ir.Constant(ty.I64, few))
                    step((*front, add(e.b, base, k)), k)

        e.for_each([*outer, n // few], visit, 999)
        for k in range(n - n % few, n):
            e.for_each(outer, lambda index, k=k: step((*index, k)), 999)

    def _pull(
        self,
        seen: dict[Any, ty.Value],
        array: Array,
        batch: Any,
        free: Any,
        contracted: Any,
        place: tuple[Index, ...],
        index: tuple[Index, ...],
        side: int,
    ) -> ty.Value:
        first = self.rows[0] if side == 0 else self.columns[0]
        where: dict[int, Index] = dict(zip(batch, place, strict=False))
        where.update(zip(free, place[first:], strict=False))
        where.update(zip(contracted, index, strict=True))
        full = tuple(where[i] for i in range(len(array.shape)))
        key = tuple(map(_identity, full))
        if key not in seen:
            value = array.at(full)
            seen[key] = convert(self.e.b, value, array.dtype, self.dtype)
        return seen[key]


def _identity(i: Index) -> Any:
    if isinstance(i, Vec):
        return ("vec", _identity(i.base), i.width)
    return i if isinstance(i, int) else id(i)


RULES = {"dot_general": dot_general}
