"""The arguments of `scan`: what is refused, and with which words.

JAX's own checks, made before anything is traced and told in the user's terms.
What JAX accepts keeps its meaning, with two exceptions: a length such as 3.7 or
-1, which JAX quietly takes as 3 or 0, is an error; and a flat sequence of
numbers, which JAX refuses, is taken as `as_sequence` says.
"""

from __future__ import annotations

import operator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from onescan import compat
from onescan.errors import (
    NoLeadingAxisError,
    ScanTypeError,
    ScanValueError,
    TracedNumberError,
)
from onescan.naming import function_name, is_array, leaf_paths, type_name

TRACED = (
    jax.errors.ConcretizationTypeError,
    jax.errors.TracerIntegerConversionError,
)


def checked(
    f: Any, init: Any, xs: Any, length: Any, unroll: Any
) -> tuple[Any, int, int | bool]:
    """`xs` as arrays, the number of steps, and `unroll`; or an error."""
    if not callable(f):
        raise ScanTypeError(
            f"onescan.scan: f must be a function (carry, x) -> (carry, y), but it is "
            f"{f!r}, of type {type(f).__name__}. The order is scan(f, init, xs)."
        )
    xs = as_sequence(xs)
    _check_arrays(f, "init", init)
    _check_arrays(f, "xs", xs)
    return xs, _steps(f, xs, length), _unroll(f, unroll)


def as_sequence(xs: Any) -> Any:
    """A flat list, tuple or range of numbers as one array; all else unchanged.

    Python numbers keep their weak type, as they would in a plain loop; numbers of
    different types are promoted together.
    """
    if isinstance(xs, range):
        return compat.weak(jnp.arange(xs.start, xs.stop, xs.step))
    if type(xs) not in (list, tuple) or not xs or not all(map(_is_number, xs)):
        return xs
    one_of_each_type = list({type(x): x for x in xs}.values())
    common = jax.eval_shape(lambda: jnp.stack(one_of_each_type))
    array = jnp.asarray(np.array(xs, common.dtype))
    return compat.weak(array) if common.weak_type else array


def _is_number(x: Any) -> bool:
    return isinstance(x, int | float | complex | np.generic) and is_array(x)


def _check_arrays(f: Any, root: str, tree: Any) -> None:
    for index, leaf in enumerate(jax.tree.leaves(tree)):
        if not is_array(leaf):
            raise ScanTypeError(
                f"onescan.scan: {leaf_paths(root, tree)[index]} = {leaf!r}, given to "
                f"{function_name(f)}, is of type {type(leaf).__name__}, not an array. "
                f"Keep only arrays and numbers in {root}; let the function close over "
                "everything else."
            )


def _steps(f: Any, xs: Any, length: Any) -> int:
    leaves = jax.tree.leaves(xs)
    kinds = [jax.typeof(leaf) for leaf in leaves]
    for index, kind in enumerate(kinds):
        if getattr(kind, "shape", None) == ():
            raise _no_leading_axis(f, xs, leaves, index)
    sizes = [kind.shape[0] for kind in kinds if hasattr(kind, "shape")]
    if length is not None:
        steps = _length(f, length)
        if any(size != steps for size in sizes):
            raise ScanValueError(
                f"onescan.scan: length={steps} for {function_name(f)} disagrees with "
                f"xs, whose leading axes are: {_sizes(xs)}. Leave length out, or cut "
                f"xs to {steps} steps."
            )
        return steps
    if not sizes:
        raise ScanValueError(
            f"onescan.scan: {function_name(f)} has neither xs nor length, so the "
            "number of steps is unknown. Give length=..., or arrays with a leading "
            "axis as xs."
        )
    if len(set(sizes)) > 1:
        raise ScanValueError(
            f"onescan.scan: the leaves of xs for {function_name(f)} disagree in "
            f"length: {_sizes(xs)}. All leading axes must be the same, one entry per "
            "step."
        )
    return sizes[0]


def _sizes(xs: Any) -> str:
    leaves = zip(leaf_paths("xs", xs), jax.tree.leaves(xs), strict=True)
    return ", ".join(f"{path} has {np.shape(leaf)[0]}" for path, leaf in leaves)


def _no_leading_axis(
    f: Any, xs: Any, leaves: list[Any], index: int
) -> NoLeadingAxisError:
    path = leaf_paths("xs", xs)[index]
    found = f"onescan.scan: {path} for {function_name(f)}"
    if path == "xs" and isinstance(xs, int):
        fix = f"To run {xs} steps, write length={xs}."
    elif isinstance(xs, list | tuple) and len(leaves) > 1:
        fix = (
            "xs is a container of arrays, each with one entry per step; if its "
            "elements are the steps, stack them first: jnp.stack(xs)."
        )
    else:
        fix = (
            "Every leaf of xs has one entry per step; a value that is the same in "
            "every step does not belong in xs: let the function close over it."
        )
    return NoLeadingAxisError(
        f"{found} is {type_name(jax.typeof(leaves[index]))}, with no leading axis to "
        f"scan over. {fix}"
    )


def _length(f: Any, length: Any) -> int:
    wanted = f"onescan.scan: length for {function_name(f)} must be an integer >= 0"
    fix = "It is the number of steps."
    try:
        steps = int(length)
    except TRACED:
        raise TracedNumberError(
            f"{wanted} that is known when the loop is compiled, but it is a traced "
            f"{type_name(jax.typeof(length))}. Mark it static (static_argnums of "
            "jax.jit), or use jax.lax.while_loop or fori_loop for a number of steps "
            "that changes."
        ) from None
    except TypeError:
        raise ScanTypeError(f"{wanted}, but it is {length!r}. {fix}") from None
    except (ValueError, OverflowError):
        raise ScanValueError(f"{wanted}, but it is {length!r}. {fix}") from None
    if steps != length or steps < 0:
        raise ScanValueError(f"{wanted}, but it is {length!r}. {fix}")
    return steps


def _unroll(f: Any, unroll: Any) -> int | bool:
    wanted = f"onescan.scan: unroll for {function_name(f)} must be a bool or an integer"
    if isinstance(unroll, bool | np.bool_):
        return bool(unroll)
    try:
        steps = operator.index(unroll)
    except TRACED:
        raise TracedNumberError(
            f"{wanted} that is known when the loop is compiled, but it is a traced "
            f"{type_name(jax.typeof(unroll))}. Mark it static (static_argnums of "
            "jax.jit)."
        ) from None
    except TypeError:
        raise ScanTypeError(
            f"{wanted} >= 0, but it is {unroll!r}. unroll=1 is an ordinary loop."
        ) from None
    if steps < 0:
        raise ScanValueError(
            f"{wanted} >= 0, but it is {steps}. unroll=1 is an ordinary loop."
        )
    return steps
