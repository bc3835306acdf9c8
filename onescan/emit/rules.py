"""The rule table: for each primitive the kernel can run, how it is emitted.

A rule takes the emitter, the equation and an `Array` for each operand, and
gives an `Array` for each result.  What is not in this table runs through XLA.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from onescan.emit import (
    across,
    arg_extreme,
    control,
    cumulative,
    dot,
    elementwise,
    fft,
    indexing,
    linalg,
    random,
    reduce,
    sort,
    structural,
    top_k,
)
from onescan.emit.arrays import Array
from onescan.emit.emitter import Emitter
from onescan.primitives import IDENTITIES

Rule = Callable[[Emitter, Any, list[Array]], list[Array]]

RULES: dict[str, Rule] = {
    **dict.fromkeys(elementwise.OPS, elementwise.rule),
    **dict.fromkeys(IDENTITIES, structural.identity),
    **structural.RULES,
    **reduce.RULES,
    **arg_extreme.RULES,
    **cumulative.RULES,
    **dot.RULES,
    **indexing.RULES,
    **across.RULES,
    **control.RULES,
    **random.RULES,
    **sort.RULES,
    **top_k.RULES,
    **linalg.RULES,
    **fft.RULES,
}
