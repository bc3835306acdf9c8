"""threefry2x32: JAX's counter-based hash, twenty rounds in registers."""

from __future__ import annotations

from collections.abc import Callable

from onescan.emit import types as ty
from onescan.emit.arrays import Array, Index
from onescan.emit.elementwise import spread
from onescan.emit.emitter import Emitter
from onescan.loop import Equation

#: the constants of the hash
ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
PARITY = 0x1BD11BDA

Hash = Callable[..., tuple[ty.Value, ty.Value]]


def threefry2x32(
    e: Emitter, eqn: Equation, operands: list[Array], hashes: Hash | None = None
) -> list[Array]:
    shape = eqn.outvars[0].aval.shape
    targets = [e.fresh(out) for out in eqn.outvars]
    hashes = hashes or _hash

    def visit(index: tuple[Index, ...]) -> None:
        values = [
            a.at(spread(v.aval.shape, shape, index))
            for a, v in zip(operands, eqn.invars, strict=True)
        ]
        hashed = hashes(e.b, *ty.match(e.b, *values))
        for target, value in zip(targets, hashed, strict=True):
            assert target.memory is not None
            target.memory.store(e.b, index, value)

    e.nest(targets[0].shape, targets[0].lanes, visit, cost=110)
    return targets


def _hash(
    b: ty.Builder, key0: ty.Value, key1: ty.Value, x0: ty.Value, x1: ty.Value
) -> tuple[ty.Value, ty.Value]:
    width = ty.width_of(x0)
    word = lambda n: ty.constant(ty.I32, n, width)
    keys = [key0, key1, b.xor(b.xor(key0, key1), word(PARITY))]
    x0, x1 = b.add(x0, key0), b.add(x1, key1)
    for group in range(5):
        for rotation in ROTATIONS[group % 2]:
            x0 = b.add(x0, x1)
            left = b.shl(x1, word(rotation))
            right = b.lshr(x1, word(32 - rotation))
            x1 = b.xor(x0, b.or_(left, right))
        x0 = b.add(x0, keys[(group + 1) % 3])
        x1 = b.add(b.add(x1, keys[(group + 2) % 3]), word(group + 1))
    return x0, x1


RULES = {"threefry2x32": threefry2x32}
