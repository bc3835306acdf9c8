"""From loop to smaller loop: what does not belong in a loop is taken out of it.

In the order they run.  Accumulators go first, because a product that is only
summed must not be computed for each step before it is; `simplify` comes before the
others to show them less, and after them to drop what nobody reads any more.
"""

from functools import partial

from onescan.passes.accumulate import accumulate
from onescan.passes.hoist import hoist
from onescan.passes.linear import linear
from onescan.passes.simplify import simplify
from onescan.passes.sink import sink

#: for a loop that becomes a kernel
PASSES = (simplify, accumulate, hoist, sink, simplify)
#: for a loop that XLA runs, for which every accumulator is work
XLA_PASSES = (simplify, partial(accumulate, reductions=True), hoist, sink, simplify)
#: afterwards, for devices that want more lanes than a loop has
PARALLEL_PASSES = (linear, simplify)
