"""orient: a product that is only read transposed is computed transposed.

In goes a loop; out comes one in which ``(x @ y).T`` is ``y.T @ x.T``: the same product
with its operands in the other order, which contracts the same dimensions.  So JAX has
the gradient of a matrix of weights.  A kernel would otherwise read the product along
its columns, number by number.

Right, because every element of the result is the sum of the same products in the same
order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from math import prod
from typing import Any

from jax.extend.core import JaxprEqn

from onescan.loop import Equation, Loop
from onescan.passes.split import Split, parts_of, rebuilt, unchanged, variables
from onescan.primitives import record_of

#: elements of a product from which its order matters; a kernel unrolls smaller ones
FEWEST = 256


def orient(loop: Loop) -> Split | None:
    """Turn transposed products around."""
    parts = parts_of(loop)
    makers = {v: eqn for eqn in parts.eqns for v in eqn.outvars}
    uses = Counter(v for eqn in parts.eqns for v in variables(eqn.invars))
    uses.update(variables(parts.results))
    eqns: list[JaxprEqn] = []
    gone: set[Any] = set()
    for eqn in parts.eqns:
        product = _transposed_product(eqn, makers, uses)
        if product is None:
            eqns.append(eqn)
        else:
            eqns.append(_other_way_round(product, eqn))
            gone.update(product.outvars)
    if not gone:
        return None
    count = len(gone)
    what = "1 product that is" if count == 1 else f"{count} products that are"
    return Split(
        name="orient",
        loop=rebuilt(
            loop,
            parts.replace(eqns=tuple(e for e in eqns if gone.isdisjoint(e.outvars))),
        ),
        before=unchanged,
        after=lambda args, results: results,
        notes=(f"computed {what} read transposed in that order",),
    )


def _transposed_product(
    eqn: Equation, makers: Mapping[Any, Any], uses: Counter[Any]
) -> Any:
    """The product of two matrices that an equation alone reads, and transposes."""
    if eqn.primitive.name != "transpose" or tuple(eqn.params["permutation"]) != (1, 0):
        return None
    maker = makers.get(eqn.invars[0])
    if maker is None or uses[eqn.invars[0]] != 1 or record_of(maker).kind != "product":
        return None
    is_plain = not any(maker.params["dimension_numbers"][1])
    matrices = all(len(v.aval.shape) == 2 for v in maker.invars)
    is_large = prod(eqn.outvars[0].aval.shape) >= FEWEST
    return maker if is_plain and matrices and is_large else None


def _other_way_round(product: Any, transpose: Any) -> Any:
    x, y = product.invars
    (cx, cy), batch = product.params["dimension_numbers"]
    precision = product.params["precision"]
    if isinstance(precision, tuple):
        precision = precision[::-1]
    params = {
        **product.params,
        "dimension_numbers": ((cy, cx), batch),
        "precision": precision,
    }
    return product.replace(invars=[y, x], outvars=transpose.outvars, params=params)
