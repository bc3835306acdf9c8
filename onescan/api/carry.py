"""Why JAX refuses what a body function returned, in the user's own terms.

`trouble_with` looks at what one trace of the function got and gave back.  It
decides nothing: its text is used only when JAX has raised.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
from jax.tree_util import keystr, tree_flatten_with_path

from onescan import compat
from onescan.naming import (
    function_name,
    is_array,
    leaf_paths,
    thing_name,
    type_name,
)


def trouble_with(
    carry: Any, result: Any, f: Callable[..., Any], first: bool
) -> str | None:
    """What is wrong with the `result` of ``f(carry, x)``, or None.

    In the `first` trace of a loop, Python numbers in `init` may still be promoted
    to what the function returns, so those differences are no trouble.
    """
    if type(result) not in (tuple, list) or len(result) != 2:
        return (
            f"onescan.scan: {function_name(f)} must return a pair (carry, y), but it "
            f"returned {thing_name(result)}. Return exactly two values: "
            "`return carry, y`, or `return carry, None` when there is nothing to stack."
        )
    if not_array := _not_array(result):
        return f"onescan.scan: {function_name(f)} {not_array}"
    if compat.jit_disabled():  # a plain loop, in which the carry may change
        return None
    after, y = result
    if jax.tree.structure(carry) != jax.tree.structure(after):
        lines = list(_structure_changes("carry", carry, after))
        lines.append(
            f"Make {function_name(f).name} return its carry in the container it came "
            "in."
        )
    else:
        lines = list(_type_changes(carry, after, function_name(f).name, first))
    if not lines:
        return None
    if jax.tree.leaves(carry) and _same_types(carry, y):
        lines.append(
            "What it returns second does have the types of the carry: "
            "if the two are swapped, write `return carry, y`."
        )
    head = f"onescan.scan: {function_name(f)} changes the type of its carry:"
    return "\n  ".join([head, *lines])


def _not_array(result: Any) -> str | None:
    for root, tree in zip(("carry", "y"), result, strict=True):
        for index, leaf in enumerate(jax.tree.leaves(tree)):
            if not is_array(leaf):
                return (
                    f"returned {leaf_paths(root, tree)[index]} = {leaf!r}, of type "
                    f"{type(leaf).__name__}, which is not an array. Return arrays and "
                    "numbers only, in any containers."
                )
    return None


def _type_changes(carry: Any, after: Any, f: str, first: bool) -> Iterator[str]:
    pairs = zip(jax.tree.leaves(carry), jax.tree.leaves(after), strict=True)
    for index, (old, new) in enumerate(pairs):
        old, new = jax.typeof(old), jax.typeof(new)
        if _shape_and_dtype(old) == _shape_and_dtype(new):
            continue
        if first and getattr(old, "weak_type", False):
            continue  # JAX promotes it, and traces again
        path = leaf_paths("", carry)[index]
        yield (
            f"carry{path} goes in as {type_name(old)} and comes out as "
            f"{type_name(new)}. {_fix(path, old, new, f)}"
        )


def _shape_and_dtype(kind: Any) -> tuple[Any, Any]:
    return getattr(kind, "shape", None), getattr(kind, "dtype", None)


def _fix(path: str, old: Any, new: Any, f: str) -> str:
    if _is_number(old.dtype) != _is_number(new.dtype):
        return (
            "A random key stays a key: jax.random.key_data gives its numbers, and "
            "jax.random.wrap_key_data takes them."
        )
    if old.shape != new.shape:
        if _broadcasts(old, new):
            return f"Start from jnp.broadcast_to(init{path}, {new.shape})."
        return (
            "The carry keeps its shape: return what grows or shrinks as y, "
            "which is stacked."
        )
    if not all(_is_number(kind.dtype) for kind in (old, new)):
        return "The carry keeps its type from step to step."
    cast = f"Return carry{path}.astype(jnp.{_scalar_type(old)}) from {f}"
    if jnp.promote_types(old.dtype, new.dtype) != new.dtype:
        return f"{cast}."
    return f"{cast}, or start from jnp.asarray(init{path}, jnp.{_scalar_type(new)})."


def _broadcasts(old: Any, new: Any) -> bool:
    try:
        return jnp.broadcast_shapes(old.shape, new.shape) == new.shape
    except ValueError:
        return False


def _is_number(dtype: Any) -> bool:
    return not jnp.issubdtype(dtype, jax.dtypes.extended)


def _scalar_type(kind: Any) -> str:
    return "bool_" if kind.dtype == bool else kind.dtype.name


def _structure_changes(path: str, old: Any, new: Any) -> Iterator[str]:
    """Where two containers first differ, from the outside in."""
    if jax.tree.structure(old) == jax.tree.structure(new):
        return
    old_parts, new_parts = _parts(old), _parts(new)
    changed = f"{path} goes in as {thing_name(old)} and comes out as {thing_name(new)}."
    if type(old) is not type(new) or old_parts is None or new_parts is None:
        yield changed
        return
    if old_parts.keys() == new_parts.keys():
        for key in old_parts:
            yield from _structure_changes(path + key, old_parts[key], new_parts[key])
        if all(map(_same_structure, old_parts.values(), new_parts.values())):
            yield f"{path} comes out as {thing_name(new)} with other static fields."
        return
    for key in old_parts:
        if key not in new_parts:
            yield f"{path}{key} goes in but does not come out."
    for key in new_parts:
        if key not in old_parts:
            yield f"{path}{key} comes out but did not go in."


def _parts(node: Any) -> dict[str, Any] | None:
    """The children of a container by what the user writes to reach them."""
    if jax.tree_util.all_leaves([node]):
        return None
    parts, _ = tree_flatten_with_path(node, is_leaf=lambda child: child is not node)
    return {keystr(path): child for path, child in parts}


def _same_structure(a: Any, b: Any) -> bool:
    return jax.tree.structure(a) == jax.tree.structure(b)


def _same_types(a: Any, b: Any) -> bool:
    def types(tree: Any) -> list[tuple[Any, Any]]:
        return [_shape_and_dtype(jax.typeof(leaf)) for leaf in jax.tree.leaves(tree)]

    return _same_structure(a, b) and types(a) == types(b)
