"""`Group`: the body of a loop over layers, one layer or one turn of a pattern."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax

from onescan.errors import ScanTypeError
from onescan.layers.differences import first_difference, is_stackable
from onescan.layers.remat import Policy
from onescan.naming import function_name, is_array, thing_name

Block = Callable[..., Any]


class Template(NamedTuple):
    """The parameters of a layer without its arrays."""

    structure: Any
    others: tuple[tuple[int, Any], ...]  # leaves that are no arrays, and their places

    def fill(self, arrays: list[Any]) -> Any:
        """The parameters with these arrays."""
        leaves = list(arrays)
        for index, leaf in self.others:
            leaves.insert(index, leaf)
        return jax.tree.unflatten(self.structure, leaves)


@dataclass(frozen=True)
class Group:
    """``((key, x), (arrays, caches)) -> ((key, x), ys)`` for one turn of a pattern.

    Equal groups are one function to JAX, so a loop over layers that is called twice
    is traced once.
    """

    blocks: tuple[Block, ...]
    templates: tuple[Template, ...]
    policy: Policy | None
    prevent_cse: bool
    reverse: bool

    @property
    def __wrapped__(self) -> Block:
        """The user's function, for messages and the report."""
        return self.blocks[0]

    def __call__(self, carry: Any, xs: Any) -> tuple[Any, tuple[Any, ...]]:
        key, x = carry
        arrays, caches = xs
        ys = [None] * len(arrays)  # the last turn may be cut short
        places = range(len(arrays))
        for place in reversed(places) if self.reverse else places:
            key, own_key = split_key(key)
            layer = functools.partial(self._layer, place)
            if self.policy is not None:
                layer = jax.checkpoint(
                    layer, policy=self.policy, prevent_cse=self.prevent_cse
                )
            x, ys[place] = layer(arrays[place], x, own_key, caches[place])
        return (key, x), tuple(ys)

    def _layer(self, place: int, arrays: Any, x: Any, key: Any, cache: Any) -> Any:
        block = self.blocks[place]
        given = {"key": key, "cache": cache}
        given = {name: value for name, value in given.items() if takes(block, name)}
        result = block(self.templates[place].fill(arrays), x, **given)
        _check_result(block, x, result)
        return result


def group_of(
    blocks: tuple[Block, ...],
    params: tuple[Any, ...],
    policy: Policy | None,
    unroll: int | bool,
    reverse: bool,
) -> tuple[tuple[list[Any], ...], Group]:
    """The arrays of the parameters for each place, and the body that takes them."""
    arrays, templates = zip(*map(_separate, params), strict=True)
    # Between two loops nothing is shared; where layers are written out, XLA would
    # find the values computed again equal to the first ones, and keep those.
    prevent_cse = unroll is True or unroll != 1
    parts = (blocks, templates, policy, prevent_cse, bool(reverse))
    try:
        return arrays, _cached_group(*parts)
    except TypeError:  # something is not hashable
        return arrays, Group(*parts)


@functools.lru_cache(maxsize=64)
def _cached_group(*parts: Any) -> Group:
    return Group(*parts)


def _separate(params: Any) -> tuple[list[Any], Template]:
    leaves, structure = jax.tree.flatten(params)
    arrays = [leaf for leaf in leaves if is_stackable(leaf)]
    others = enumerate(leaves)
    return arrays, Template(
        structure,
        tuple((index, leaf) for index, leaf in others if not is_stackable(leaf)),
    )


def split_key(key: Any) -> tuple[Any, Any]:
    """Two keys from one, or two times None.

    >>> split_key(None)
    (None, None)
    """
    if key is None:
        return None, None
    first, second = jax.random.split(key)
    return first, second


def takes(block: Block, name: str) -> bool:
    """Whether a block has a keyword argument of this name."""
    try:
        parameters = inspect.signature(block).parameters
    except (TypeError, ValueError):  # not known for some builtins
        return False
    kinds = {parameter.kind for parameter in parameters.values()}
    return name in parameters or inspect.Parameter.VAR_KEYWORD in kinds


def _check_result(block: Block, x: Any, result: Any) -> None:
    if type(result) not in (tuple, list) or len(result) != 2:
        raise ScanTypeError(
            f"scan_layers: {function_name(block)} must return a pair (x, y), but it "
            f"returned {thing_name(result)}. Write `return x, y`, or `return x, None` "
            "when there is nothing to collect."
        )
    difference = first_difference(_types(x), _types(result[0]))
    if difference is not None and not _is_weak(x):
        raise ScanTypeError(
            f"scan_layers: {function_name(block)} gets x{difference.path} as "
            f"{difference.first} and returns it as {difference.other}. What runs "
            "through the layers keeps its type: cast it, or return it as y."
        )


def _types(tree: Any) -> Any:
    return jax.tree.map(lambda leaf: jax.typeof(leaf) if is_array(leaf) else leaf, tree)


def _is_weak(tree: Any) -> bool:
    """Whether JAX may still promote a Python number among the leaves."""
    kinds = map(jax.typeof, jax.tree.leaves(tree))
    return any(getattr(kind, "weak_type", False) for kind in kinds)
