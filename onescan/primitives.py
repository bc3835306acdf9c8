"""What kinds of primitive there are, for every stage that asks.

An elementwise primitive computes each element of its results from the elements
at the same place of its operands; operands of rank 0 and dimensions of size 1
are spread over the others.
"""

from __future__ import annotations

ELEMENTWISE = frozenset(
    """
    abs acos acosh add add_any and asin asinh atan atan2 atanh bitcast_convert_type
    cbrt ceil clamp clz convert_element_type cos cosh digamma div eq eq_to erf
    erf_inv erfc exp exp2 expm1 floor ge gt integer_pow is_finite le le_to lgamma
    log log1p logistic lt lt_to max min mul ne neg nextafter not one_minus_square or
    polynomial population_count pow reduce_precision rem round rsqrt select_n shift_left
    shift_right_arithmetic shift_right_logical sign sin sinh sqrt square sub tan
    tanh threefry2x32 xor
    """.split()
)

REDUCTIONS = frozenset(
    """
    reduce_sum reduce_prod reduce_max reduce_min reduce_and reduce_or reduce_xor
    argmax argmin
    """.split()
)

CUMULATIVE = frozenset("cumsum cumprod cummax cummin cumlogsumexp".split())

#: primitives that give back their operand, as far as a kernel is concerned
IDENTITIES = frozenset(
    "copy copy_p optimization_barrier sharding_constraint pvary reshard".split()
)

#: primitives with bodies of their own
CONTROL = frozenset("cond scan while".split())
