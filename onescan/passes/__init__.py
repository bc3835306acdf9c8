"""From loop to smaller loop: what does not belong in a loop is taken out of it.

In the order they run.  Accumulators go first, because a product that is only
summed must not be computed for each step before it is; `in_place` sees the sums that
stay, and `inside` those of loops inside; `ahead` frees what `hoist` then takes;
`simplify` comes before the others to show them less, and after them to drop what nobody
reads any more.
"""

from functools import partial

from onescan.passes.accumulate import accumulate
from onescan.passes.ahead import ahead
from onescan.passes.borders import borders
from onescan.passes.collapse import collapse
from onescan.passes.common import common
from onescan.passes.constants import constants
from onescan.passes.derive import derive
from onescan.passes.few_bits import few_bits
from onescan.passes.hoist import hoist
from onescan.passes.in_place import in_place
from onescan.passes.inside import inside
from onescan.passes.invariants import invariants
from onescan.passes.lanewise import lanewise
from onescan.passes.lifted import lifted
from onescan.passes.linear import linear
from onescan.passes.masked import masked
from onescan.passes.narrow import narrow
from onescan.passes.orient import orient
from onescan.passes.pairs import pairs
from onescan.passes.partial_sums import partial_sums
from onescan.passes.pieces import pieces
from onescan.passes.placed import placed
from onescan.passes.simplify import simplify
from onescan.passes.sink import sink
from onescan.passes.split import Pass
from onescan.passes.spread import spread
from onescan.passes.superwords import superwords
from onescan.passes.updates import updates
from onescan.passes.whiles import unchanged
from onescan.passes.windows import windows
from onescan.passes.worth import Draws


def _out(draws: Draws, sums: bool = False, batches: bool = True) -> tuple[Pass, ...]:
    """What takes work out of a loop, with such draws of random bits."""
    return (
        partial(ahead, draws=draws, batches=batches),
        partial(hoist, draws=draws, sums=sums, batches=batches),
        *(partial(sink, draws=True, batches=batches), simplify),
    )


#: for a loop that becomes a kernel of a CPU
PASSES = (
    *(constants, simplify, lifted),
    *(partial_sums, inside, updates, accumulate, in_place, masked),
    *(ahead, hoist, sink),
    *(derive, simplify, spread, orient, few_bits, collapse),
)
#: for one of a CPU at last
LAST_PASSES = (
    lifted,
    placed,
    partial(inside, passes=(placed, superwords)),
    superwords,
)
#: for one that becomes a kernel of a device with more threads than it may have lanes
WIDE_PASSES = (
    *(constants, simplify, inside, updates, accumulate, in_place, masked),
    *_out("all", True),
)
_accumulators = (simplify, partial(accumulate, reductions=True))
#: for one that XLA runs, where every accumulator is work too
XLA_PASSES = (*_accumulators, *_out("all", batches=False))
#: the same on a wide device
XLA_WIDE_PASSES = (*_accumulators, *_out("small"))
#: afterwards, on wide devices, unless the order of steps matters
PARALLEL_PASSES = (linear, simplify)
#: at last, for every kernel
KERNEL_PASSES = (windows, pieces, borders, pairs, narrow)
#: for a while loop
WHILE_PASSES = (constants, inside, pairs, common, unchanged, invariants, lanewise)
#: for one that XLA runs, which takes little out of it by itself
XLA_WHILE_PASSES = (common, unchanged, invariants)
