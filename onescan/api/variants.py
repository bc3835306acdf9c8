"""`map`, `fori_loop` and `associative_scan`: JAX's own, as loops of ours.

Their arguments and results are JAX's, and so is what they raise.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextlib import suppress
from functools import wraps
from typing import Any
from weakref import WeakKeyDictionary, ref

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from onescan import compat
from onescan.api.scan import scan
from onescan.naming import function_name


def map(f: Callable[..., Any], xs: Any, *, batch_size: int | None = None) -> Any:
    """`jax.lax.map`: f of each element along the leading axes of `xs`, stacked.

    With `batch_size`, f is vectorised over so many elements at a time.

    >>> import jax.numpy as jnp, onescan
    >>> print(onescan.map(lambda x: x**2, jnp.arange(4)))
    [0 1 4 9]
    """
    if batch_size is not None:
        with compat.marked((), xs):
            return lax.map(_unmarked(f), xs, batch_size=batch_size)

    def step(nothing: tuple[()], x: Any) -> tuple[tuple[()], Any]:
        return nothing, f(x)

    return scan(_named_after(f, step), (), xs)[1]


def fori_loop(
    lower: Any,
    upper: Any,
    body_fun: Callable[[Any, Any], Any],
    init_val: Any,
    *,
    unroll: int | bool | None = None,
) -> Any:
    """`jax.lax.fori_loop`: ``val = body_fun(i, val)`` for i from lower to upper - 1.

    With bounds that are known when the loop is compiled it is a scan, and so a kernel;
    other bounds make it a `jax.lax.while_loop`, a kernel without a gradient.

    >>> import onescan
    >>> print(onescan.fori_loop(0, 5, lambda i, total: total + i, 0))
    10
    """
    with compat.marked(init_val):
        return lax.fori_loop(lower, upper, _unmarked(body_fun), init_val, unroll=unroll)


def associative_scan(
    fn: Callable[[Any, Any], Any], elems: Any, reverse: bool = False, axis: int = 0
) -> Any:
    """`jax.lax.associative_scan`: all prefixes of `elems` under an associative fn.

    On a CPU the prefixes are made one after the other, in one kernel: as many calls of
    fn as there are elements, and one pass over memory. Elsewhere they are made as JAX
    does it, in parallel.

    >>> import jax.numpy as jnp, onescan
    >>> print(onescan.associative_scan(jnp.add, jnp.arange(5)))
    [ 0  1  3  6 10]
    """
    leaves, tree = jax.tree.flatten(elems)
    if jax.default_backend() != "cpu" or not _has_one_length(leaves, axis):
        return lax.associative_scan(fn, elems, reverse=reverse, axis=axis)
    axis %= np.ndim(leaves[0])
    # fn sees elements that have the axis, with one of them along it
    stacks = [jnp.expand_dims(jnp.moveaxis(x, axis, 0), axis + 1) for x in leaves]
    first = stacks[0].shape[0] - 1 if reverse else 0

    def step(total: list[Any], x: list[Any]) -> tuple[list[Any], list[Any]]:
        after = fn(tree.unflatten(total), tree.unflatten(x))
        return jax.tree.leaves(after), jax.tree.leaves(after)

    rest = [x[:-1] if reverse else x[1:] for x in stacks]
    init = [x[first] for x in stacks]
    _, ys = scan(_named_after(fn, step), init, rest, reverse=reverse)
    pieces = [
        (y, a[None]) if reverse else (a[None], y) for a, y in zip(init, ys, strict=True)
    ]
    results = [jnp.squeeze(jnp.concatenate(pair), axis + 1) for pair in pieces]
    return tree.unflatten([jnp.moveaxis(x, 0, axis) for x in results])


def _has_one_length(leaves: list[Any], axis: int) -> bool:
    """Whether all leaves have this axis, of one length; if not, JAX says why."""
    if not leaves or any(not -np.ndim(x) <= axis < np.ndim(x) for x in leaves):
        return False
    lengths = {np.shape(x)[axis] for x in leaves}
    return len(lengths) == 1 and min(lengths) > 1


def _named_after(f: Any, step: Callable[..., Any]) -> Callable[..., Any]:
    """A body that errors and the report call by the user's function."""
    if callable(f):
        signature = inspect.signature(step)
        step = wraps(f, assigned=(), updated=())(step)
        step.__signature__ = signature  # type: ignore[attr-defined]
    return step


class Unmarked:
    """A function without our mark on the loops inside it.

    It holds the function weakly: JAX keeps its traces by function, and they are to go
    away together with it.
    """

    def __init__(self, f: Any, get: Callable[[], Any]) -> None:
        self.get = get
        self.__name__, code = function_name(f)
        if code is not None:
            self.__code__ = code  # where JAX reads the file and line

    def __call__(self, *args: Any) -> Any:
        with compat.unmarked():
            return self.get()(*args)


_functions: WeakKeyDictionary[Any, Unmarked] = WeakKeyDictionary()


def _unmarked(f: Callable[..., Any]) -> Callable[..., Any]:
    """The one `Unmarked` of a function."""
    if not callable(f):
        return f  # JAX refuses it
    with suppress(TypeError):  # not hashable, or without weak references
        if f not in _functions:
            _functions[f] = Unmarked(f, ref(f))
        return _functions[f]
    return Unmarked(f, lambda: f)
