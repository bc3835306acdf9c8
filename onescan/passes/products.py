"""Products of two matrices that passes take out of a loop.

They are equations of their own, `product_p`, which mean what `lax.dot_general` means:
that is how every platform runs them that registers nothing better.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jax import lax
from jax.core import ShapedArray
from jax.extend.core import Primitive
from jax.interpreters import mlir

#: numbers along each side from which a product may be more than XLA's
FEWEST = 16

product_p = Primitive("onescan_product")


def product(x: Any, y: Any, contracted: tuple[int, int], how: dict[str, Any]) -> Any:
    """``lax.dot_general(x, y)`` of matrices, along a dimension of each.

    `how` has the precision and the type of the result.
    """
    along_x, along_y = contracted
    wanted = how["preferred_element_type"]
    types = {x.dtype, y.dtype, jnp.dtype(x.dtype if wanted is None else wanted)}
    plain = len(types) == 1 and x.dtype in (jnp.float32, jnp.float64)
    if not plain or min(*x.shape, *y.shape) < FEWEST:
        return lax.dot_general(x, y, (((along_x,), (along_y,)), ((), ())), **how)
    if along_y == 1:  # a copy, next to nothing beside the product
        y = y.T
    return product_p.bind(x, y, transposed=along_x == 0, precision=how["precision"])


@product_p.def_impl
def _by_dot_general(x: Any, y: Any, *, transposed: bool, precision: Any) -> Any:
    numbers = (((1 - transposed,), (0,)), ((), ()))
    return lax.dot_general(x, y, numbers, precision=precision)


@product_p.def_abstract_eval
def _type(x: Any, y: Any, *, transposed: bool, precision: Any) -> ShapedArray:
    return ShapedArray((x.shape[transposed], y.shape[1]), x.dtype)


by_xla = mlir.lower_fun(_by_dot_general, multiple_results=False)
mlir.register_lowering(product_p, by_xla)
