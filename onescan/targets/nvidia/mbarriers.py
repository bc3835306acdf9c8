"""What the blocks of a team send each other, without a barrier for all.

A barrier of a whole team waits for everything that its threads have under way, also
for loads and stores of the GPU's memory that have nothing to do with it.  A letter
box (an `mbarrier` in the memory of each block) counts the bytes that arrive, and
those who need them wait for just these.  There are two boxes, used in turns, one for
each place of the carries; a block writes into a place again only after it has heard
from all others that they have read it, because they answered.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from onescan.emit import types as ty

#: bytes of one letter box
BOX = 8


class Mbarriers:
    """The letter boxes of a team, and how a thread reaches them."""

    def __init__(self, b: ty.Builder, base: ty.Value, boxes: ty.Value, team: int):
        """`base` and `boxes` point into the shared memory of this block."""
        start = b.ptrtoint(base, ty.I64)
        generic = b.ptrtoint(b.addrspacecast(base, ty.PTR), ty.I64)
        here = b.trunc(start, ty.I32)
        self.boxes = b.trunc(b.ptrtoint(boxes, ty.I64), ty.I32)
        kind = ir.FunctionType(ty.I32, [ty.I32, ty.I32])
        text = "mapa.shared::cluster.u32 $0, $1, $2;"
        there = [
            b.asm(kind, text, "=r,r,r", [here, ir.Constant(ty.I32, rank)], False)
            for rank in range(team)
        ]
        self.distances = [b.sub(address, here) for address in there]
        # from a pointer to the address in each block
        self.shift = b.sub(here, b.trunc(generic, ty.I32))

    def set_up(self, b: ty.Builder) -> None:
        """Make the boxes ready; one thread of each block does it."""
        for number in range(2):
            box = b.add(self.boxes, ir.Constant(ty.I32, number * BOX))
            _do(b, "mbarrier.init.shared::cta.b64 [$0], 1;", "r", [box])
        _do(b, "fence.mbarrier_init.release.cluster;", "", [])

    def box(self, b: ty.Builder, step: ty.Value) -> ty.Value:
        """The box for what is sent in a step."""
        odd = b.and_(b.add(b.trunc(step, ty.I32), _word(1)), _word(1))
        return b.add(self.boxes, b.mul(odd, _word(BOX)))

    def expect(self, b: ty.Builder, box: ty.Value, size: int) -> None:
        """Say how many bytes will come; one thread of each block does it."""
        text = "mbarrier.arrive.expect_tx.shared::cta.b64 _, [$0], $1;"
        _do(b, text, "r,r", [box, _word(size)])

    def send(self, b: ty.Builder, value: ty.Value, pointer: Any, box: ty.Value) -> None:
        """Put a number of four bytes into the same place of every block."""
        text = "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.b32 "
        bits = value if value.type == ty.I32 else b.bitcast(value, ty.I32)
        here = b.add(b.trunc(b.ptrtoint(pointer, ty.I64), ty.I32), self.shift)
        for far in self.distances:
            address, to = b.add(here, far), b.add(box, far)
            _do(b, text + "[$0], $1, [$2];", "r,r,r", [address, bits, to])

    def wait(self, b: ty.Builder, box: ty.Value, step: ty.Value) -> None:
        """Go on when everything that was sent in a step is here."""
        turn = b.lshr(b.trunc(step, ty.I32), _word(1))
        parity = b.and_(turn, _word(1))
        text = (
            "{ .reg .pred done; AGAIN: "
            "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 done, [$0], $1; "
            "@done bra READY; bra AGAIN; READY: }"
        )
        _do(b, text, "r,r", [box, parity])


def _do(b: ty.Builder, text: str, constraints: str, args: list[ty.Value]) -> None:
    kind = ir.FunctionType(ir.VoidType(), [a.type for a in args])
    clobbers = ",".join(filter(None, [constraints, "~{memory}"]))
    b.asm(kind, text, clobbers, args, True)


def _word(n: int) -> ty.Value:
    return ir.Constant(ty.I32, n)
