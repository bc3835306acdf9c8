"""`onescan.scan`.

JAX runs the loop and decides what is an error; this file marks the loop as ours
on its way into JAX, and tells JAX's refusals in the user's terms on the way out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax

from onescan import compat, reference
from onescan.arguments import checked
from onescan.body import Call, body_of, forget
from onescan.errors import ScanTypeError


def scan(
    f: Callable[[Any, Any], tuple[Any, Any]],
    init: Any,
    xs: Any = None,
    length: int | None = None,
    reverse: bool = False,
    unroll: int | bool = 1,
) -> tuple[Any, Any]:
    """Run ``carry, y = f(carry, x)`` for each x of `xs`; give the last carry, all ys.

    This is `jax.lax.scan`: the same arguments, the same results, under the same
    transformations, with the whole loop compiled into one native kernel where that
    is possible and gains. `onescan.reference.scan` is its meaning as a plain loop.

    Args:
        f: a function ``(carry, x) -> (carry, y)`` that JAX can trace. The carry it
            returns has the containers, shapes and dtypes of the carry it got.
        init: the carry of the first step: arrays and numbers in any containers.
        xs: arrays with one entry per step along their leading axis, in any
            containers; the function sees each without that axis. A flat list,
            tuple or range of Python or NumPy numbers is the sequence of its
            elements.
        length: the number of steps; needed only where there are no `xs`.
        reverse: go from the last step to the first; ys keep the order of `xs`.
        unroll: how many steps to unroll in the compiled loop; 0 and True mean all.

    Returns:
        The last carry, and the ys stacked along a new leading axis, both in the
        containers that the function returned them in.

    Raises:
        ScanTypeError, ScanValueError: with the function, the leaf and the way out;
            also a TypeError or ValueError, as JAX raises in the same place.

    The sum so far, and the sum before each step:

    >>> import onescan
    >>> def step(total, x):
    ...     return total + x, total
    >>> total, before = onescan.scan(step, 0, [1, 2, 3])
    >>> print(total, before)
    6 [0 1 3]

    Containers of any kind, backwards, under `jax.grad`:

    >>> import jax, jax.numpy as jnp
    >>> def discounted(gamma, rewards):
    ...     step = lambda value, x: (x["reward"] + gamma * value, value)
    ...     return onescan.scan(step, 0.0, {"reward": rewards}, reverse=True)[0]
    >>> print(jax.grad(discounted)(0.5, jnp.ones(3)))
    2.0
    """
    xs, steps, unroll = checked(f, init, xs, length, unroll)
    if steps == 0 and compat.jit_disabled():
        return reference.scan(f, init, xs, steps)  # JAX refuses this one combination
    call = Call(f)
    try:
        with call, compat.marked(init, xs):
            return jax.lax.scan(body_of(f), init, xs, steps, reverse, unroll)
    except (TypeError, ValueError):
        forget(f)
        if call.trouble is None:
            raise
        raise ScanTypeError(call.trouble) from None
