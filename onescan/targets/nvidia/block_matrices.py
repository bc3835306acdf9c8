"""Some matrices that the threads of a block share: memory for them, and loops."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from onescan.emit import types as ty
from onescan.emit.arrays import Array, Index
from onescan.emit.reduce import KINDS
from onescan.plan.plan import Lane
from onescan.targets.nvidia.block_emitter import BlockEmitter
from onescan.targets.nvidia.block_reductions import Place, sums


@dataclass(frozen=True)
class Matrices:
    """A batch of them; places in it come first in every index."""

    e: BlockEmitter
    batch: tuple[int, ...]
    lanes: tuple[Lane | None, ...]

    def around(self, *shape: int) -> tuple[tuple[int, ...], tuple[Lane | None, ...]]:
        """The shape of so many numbers for each matrix, and its lanes."""
        return (*self.batch, *shape), (*self.lanes, *(None for _ in shape))

    def scratch(self, dtype: Any, *shape: int) -> Any:
        return self.e.scratch(*self.around(*shape), dtype)

    def nest(self, shape: tuple[int, ...], visit: Callable[..., None]) -> None:
        """Run ``visit(batch, *index)`` for each index below `shape`."""
        rank = len(self.batch)
        self.e.nest(
            *self.around(*shape), lambda place: visit(place[:rank], *place[rank:])
        )

    def reduced(
        self,
        name: str,
        dtype: Any,
        kept: tuple[int, ...],
        sizes: list[int],
        term: Callable[..., ty.Value],
    ) -> Array:
        """Reductions of ``term(batch, *kept, *index)`` over indices below `sizes`."""
        combine, start = KINDS[name][0], ty.constant(ty.register_type(dtype), 0)
        shape, lanes = self.around(*kept)
        target = self.e.stored(self.e.scratch(shape, lanes, dtype), shape, lanes)
        rank = len(self.batch)

        def take(total: ty.Value, place: Place, index: tuple[Index, ...]) -> ty.Value:
            found = term(place[:rank], *place[rank:], *index)
            return combine(self.e.b, dtype, total, found)

        sums(self.e, target, sizes, start, take, combine)
        return target
