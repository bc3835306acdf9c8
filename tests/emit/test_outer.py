"""Products without a sum: outer products, in any order of dimensions."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from kernels import by_kernel, by_xla, inputs_of, kernel_of, loop_in, plan_of

FORMS = {
    "vectors": ("i,j->ij", (9,), (20,)),
    "turned": ("i,j->ji", (9,), (20,)),
    "columns": ("ik,kj->ij", (9, 1), (1, 20)),
    "rows": ("ki,kj->ij", (1, 9), (1, 20)),
    "batched": ("bi,bj->bij", (3, 9), (3, 20)),
    "batch behind": ("ib,jb->bij", (9, 3), (20, 3)),
    "three": ("i,jk->ijk", (9,), (4, 5)),
    "numbers": ("i,->i", (9,), ()),
}


@pytest.mark.parametrize("form", FORMS)
def test_outer_products_are_not_stored(form: str):
    how, left, right = FORMS[form]
    product = lambda x, y: jnp.einsum(how, x, y, preferred_element_type=x.dtype)
    shape = jax.eval_shape(product, jnp.zeros(left), jnp.zeros(right)).shape

    def f(c: jax.Array, xs: Any) -> Any:
        return jax.lax.scan(lambda c, x: (c / 2 + product(*x), None), c, xs)

    xs = jnp.zeros((4, *left)), jnp.zeros((4, *right))
    loop = loop_in(f, jnp.zeros(shape), xs)
    inputs = inputs_of(loop)
    got = by_kernel(plan_of(loop), inputs)
    for mine, theirs in zip(got, by_xla(loop, inputs), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-6, atol=1e-6)


def test_a_long_vector_takes_no_memory():
    def f(c: jax.Array, xs: Any) -> Any:
        outer = lambda x: jnp.einsum("i,j->ij", x[:300], x[300:])
        return jax.lax.scan(lambda c, x: (c.T + outer(x), None), c, xs)

    loop = loop_in(f, jnp.zeros((300, 300)), jnp.zeros((4, 600)))
    kernel = kernel_of(plan_of(loop))
    assert kernel.profile is not None
    assert kernel.profile.held < 2 * 300 * 300 * 4
