"""`onescan.scan`.

JAX runs the loop and decides what is an error. A plain loop goes into JAX as it is,
marked as ours (`plain.py`); one with options is cut into several first (`long/`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from onescan import long
from onescan.api import plain
from onescan.api.arguments import checked


def scan(
    f: Callable[[Any, Any], tuple[Any, Any]],
    init: Any,
    xs: Any = None,
    length: int | None = None,
    reverse: bool = False,
    unroll: int | bool = 1,
    *,
    checkpoint: int | str | None = None,
    progress: Any = None,
    metrics: Callable[[Any, Any], dict[str, Any]] | None = None,
    until: Callable[[Any], Any] | None = None,
    where: Any = None,
    check: str | None = None,
) -> tuple[Any, ...]:
    """Run ``carry, y = f(carry, x)`` for each x of `xs`; give the last carry, all ys.

    This is `jax.lax.scan`: the same arguments, the same results, under the same
    transformations, with the whole loop compiled into one native kernel where that
    is possible and gains. `onescan.api.reference.scan` is its meaning as a plain loop.

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

    Options, which all combine (docs/long-loops.md has an example of each):
        checkpoint: what a gradient may keep: a number of segments, "sqrt", "log", or a
            budget such as "100MB".
        progress: True, a description, or a bar like that of tqdm.
        metrics: a function ``(carry, y) -> {name: number}`` of what the bar shows.
        until: a function of the carry; the loop ends before the first step for which
            it is true. The carry stays as it is, and the ys that are missing are zeros.
        where: one bool per step; a step where it is False keeps the carry, and its y
            is zeros.
        check: "finite" raises `NonFiniteError` at the first NaN or infinity in a carry
            or y, with the step, the leaf and the line of code that made it.

    Returns:
        The last carry, and the ys stacked along a new leading axis, both in the
        containers that the function returned them in. With `until`, the number of
        steps taken as a third.

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
    options = checkpoint, progress, metrics, until, where, check
    if any(option is not None for option in options):
        chosen = long.Options(f, steps, *options)
        return long.scan(f, init, xs, steps, reverse, unroll, chosen)
    return plain.scan(f, init, xs, steps, reverse, unroll)
