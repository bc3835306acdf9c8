"""Element by element: operands of rank 0 and dimensions of size 1 are spread."""

from __future__ import annotations

from onescan.loop import Equation
from onescan.primitives.axes import Axes
from onescan.primitives.record import Primitive


def joined(eqn: Equation, axes: Axes) -> None:
    for out in eqn.outvars:
        for x in eqn.invars:
            if len(x.aval.shape) != len(out.aval.shape):
                continue
            for i, (n, m) in enumerate(zip(x.aval.shape, out.aval.shape, strict=True)):
                if n == m:
                    axes.join(x, i, out, i)


def _bitcast(eqn: Equation) -> str | None:
    (x,), (out,) = eqn.invars, eqn.outvars
    same = x.aval.dtype.itemsize == out.aval.dtype.itemsize
    return None if same else "changes the width"


def _reduce_precision(eqn: Equation) -> str | None:
    bits = eqn.params["exponent_bits"], eqn.params["mantissa_bits"]
    return None if min(bits) > 0 else f"asks for {bits} bits"


#: operations of one element, where that is not 1
COSTS = {
    **dict.fromkeys("bitcast_convert_type convert_element_type neg not".split(), 0),
    **dict.fromkeys("cos exp exp2 log log2 logistic sin tanh".split(), 16),
    **dict.fromkeys("erf erf_inv erfc expm1 log1p tan".split(), 25),
    **dict.fromkeys("acos asin atan cosh sinh".split(), 25),
    **dict.fromkeys("acosh asinh atan2 atanh cbrt digamma lgamma pow".split(), 40),
    "div": 4,
    "onescan_quotient": 4,
    "polynomial": 8,
    "rem": 20,
    "rsqrt": 8,
    "sqrt": 6,
    "threefry2x32": 110,
}
NAMES = """
    abs acos acosh add add_any and asin asinh atan atan2 atanh bitcast_convert_type cbrt
    ceil clamp clz convert_element_type cos cosh digamma div eq eq_to erf erf_inv erfc
    exp exp2 expm1 floor ge gt integer_pow is_finite le le_to lgamma log log1p log2
    logistic lt lt_to max min mul ne neg nextafter not one_minus_square onescan_quotient
    or polynomial population_count pow reduce_precision rem round rsqrt select_n
    shift_left shift_right_arithmetic shift_right_logical sign sin sinh sqrt square sub
    tan tanh threefry2x32 xor
""".split()
LINEAR = {"add", "add_any", "neg", "sub"}
EXACT = {"abs", "bitcast_convert_type", "ceil", "clamp", "floor", "max", "min", "neg"}
EXACT |= {"round", "select_n", "sign"}
LIGHT = "add integer_pow max min mul neg one_minus_square square sub".split()
COLLECTS = {
    **dict.fromkeys(("add", "add_any", "sub"), "sum"),
    **{name: name for name in ("max", "min", "and", "or", "xor")},
    "mul": "product",
}
REFUSALS = {"bitcast_convert_type": _bitcast, "reduce_precision": _reduce_precision}
WORDS = {
    "onescan_quotient": ("part of a quotient", "parts of quotients"),
    "threefry2x32": ("draw of random bits", "draws of random bits"),
}

RECORDS = [
    Primitive(
        name=name,
        kind="elementwise",
        cost=COSTS.get(name, 1),
        axes=joined,
        refuses=REFUSALS.get(name),
        linear=name in LINEAR,
        exact=name in EXACT,
        light=name in LIGHT,
        collects=COLLECTS.get(name),
        words=WORDS.get(name),
    )
    for name in NAMES
]
