"""`scan_layers`: a block, or a pattern of blocks, over all layers in one loop."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from onescan.api.scan import scan
from onescan.errors import ScanTypeError, ScanValueError
from onescan.layers.body import Block, Group, group_of, takes
from onescan.layers.differences import is_stackable
from onescan.layers.remat import Policy, policy_of
from onescan.layers.stacking import count_layers, pattern_groups
from onescan.naming import function_name, is_array, leaf_paths, thing_name


def scan_layers(
    block: Block | Sequence[Block],
    params: Any,
    x: Any,
    *,
    key: Any = None,
    cache: Any = None,
    remat: str | Policy | None = None,
    unroll: int | bool = 1,
    reverse: bool = False,
) -> tuple[Any, Any]:
    """Run ``x, y = block(layer, x, key=..., cache=...)`` over all layers, in one loop.

    Compiled once for one layer, however many there are.

    Args:
        block: gives the next x, of the type it got, and a y for this layer: its new
            cache, an auxiliary loss, anything, or None. `key` and `cache` are handed
            to blocks that take them. A sequence of blocks is a pattern that repeats.
        params: the layers as `stack` gives them: every array has a leading axis of
            layers. Other leaves go to every layer as they are. For a pattern, as
            ``stack(blocks, period=...)`` gives them.
        x: what runs through the layers, in any containers.
        key: a random key or None. Every layer gets a key of its own, split off in the
            order in which layers run; with None every layer gets None.
        cache: arrays with a leading axis of layers; every layer gets its own entry.
            For a pattern, a tuple with one such tree for each place.
        remat: what layers keep for the gradient: ``"none"``, ``"dots"``,
            ``"save-names"``, ``"offload"``, ``"full"``, or a policy of
            `jax.checkpoint_policies`.
        unroll: layers (or groups of a pattern) to write out in each step of the loop.
        reverse: run the last layer first; ys keep the order of the layers.

    Returns:
        The last x, and the ys stacked along a leading axis of layers (for a pattern,
        a tuple with one such tree for each place).

    >>> import jax, jax.numpy as jnp
    >>> from onescan.layers import scan_layers
    >>> def block(layer, x, *, key):
    ...     noise = 0 if key is None else jax.random.normal(key, x.shape)
    ...     return layer["scale"] * x + noise, None
    >>> params = {"scale": jnp.arange(1.0, 4.0)}
    >>> print(scan_layers(block, params, jnp.ones(2))[0])
    [6. 6.]
    >>> noisy, _ = scan_layers(block, params, jnp.ones(2), key=jax.random.key(0))

    A pattern: even layers add, odd layers multiply, five layers in all.

    >>> pattern = (lambda w, x: (x + w, None), lambda w, x: (x * w, None))
    >>> params = (jnp.array([1.0, 2.0, 3.0]), jnp.array([10.0, 100.0]))
    >>> print(scan_layers(pattern, params, 0.0)[0])
    1203.0
    """
    is_pattern = isinstance(block, tuple | list)
    blocks: tuple[Any, ...] = tuple(block) if is_pattern else (block,)
    params = _places("params", params, blocks) if is_pattern else (params,)
    cache = _places("cache", cache, blocks) if is_pattern else (cache,)
    _check_blocks(blocks, key, cache)
    _check_arrays(x)
    counts = _count(params, cache, is_pattern)
    groups = pattern_groups("scan_layers", "params", counts)

    arrays, group = group_of(blocks, params, policy_of(remat), unroll, reverse)
    xs = (arrays, cache)
    if sum(counts) == groups * len(blocks):
        (_, x), ys = scan(group, (key, x), xs, reverse=reverse, unroll=unroll)
    else:
        x, ys = _with_tail(group, (key, x), xs, counts, unroll)
    return x, (ys if is_pattern else ys[0])


def _with_tail(
    group: Group, carry: Any, xs: Any, counts: Sequence[int], unroll: int | bool
) -> tuple[Any, Any]:
    """Whole groups in a loop, and the layers of the last, incomplete one written out.

    The tail is the end of the sequence of layers, so backwards it runs first.
    """
    groups = counts[-1]
    tail = sum(counts) - groups * len(counts)
    whole = jax.tree.map(lambda leaf: leaf[:groups], xs)
    last = jax.tree.map(lambda leaf: leaf[groups], [part[:tail] for part in xs])
    last = tuple(tuple(part) for part in last)
    if group.reverse:
        carry, last_ys = group(carry, last)
        carry, ys = scan(group, carry, whole, reverse=True, unroll=unroll)
    else:
        carry, ys = scan(group, carry, whole, unroll=unroll)
        carry, last_ys = group(carry, last)
    joined = [
        jax.tree.map(lambda many, one: jnp.concatenate([many, one[None]]), *pair)
        for pair in zip(ys[:tail], last_ys, strict=True)
    ]
    return carry[1], (*joined, *ys[tail:])


def _places(name: str, tree: Any, blocks: tuple[Block, ...]) -> tuple[Any, ...]:
    if name == "cache" and tree is None:
        return (None,) * len(blocks)
    if type(tree) not in (tuple, list) or len(tree) != len(blocks):
        raise ScanTypeError(
            f"scan_layers: block is a pattern of {len(blocks)} blocks, so {name} must "
            f"be a tuple of {len(blocks)} stacks, but it is {thing_name(tree)}. "
            f"stack(blocks, period={len(blocks)}) makes one."
        )
    return tuple(tree)


def _check_blocks(blocks: tuple[Block, ...], key: Any, cache: tuple[Any, ...]) -> None:
    if not blocks:
        raise ScanValueError(
            "scan_layers: block is an empty pattern. Give one block for each place."
        )
    for block, own_cache in zip(blocks, cache, strict=True):
        if not callable(block):
            raise ScanTypeError(
                f"scan_layers: block must be a function (layer, x) -> (x, y), or a "
                f"tuple of them, but it is {block!r}. The order is "
                "scan_layers(block, params, x)."
            )
        for name, value in (("key", key), ("cache", own_cache)):
            if value is not None and not takes(block, name):
                raise ScanTypeError(
                    f"scan_layers: there is a {name}, but {function_name(block)} does "
                    f"not take one. Give it an argument `{name}`, or leave {name} out."
                )


def _check_arrays(x: Any) -> None:
    for index, leaf in enumerate(jax.tree.leaves(x)):
        if not is_array(leaf):
            raise ScanTypeError(
                f"scan_layers: {leaf_paths('x', x)[index]} = {leaf!r}, of type "
                f"{type(leaf).__name__}, is not an array. Only arrays and numbers run "
                "through the layers; let the block close over everything else."
            )


def _count(
    params: tuple[Any, ...], cache: tuple[Any, ...], is_pattern: bool
) -> list[int]:
    counts = []
    for place, (own, own_cache) in enumerate(zip(params, cache, strict=True)):
        at = f"[{place}]" if is_pattern else ""
        counts.append(count_layers("scan_layers", f"params{at}", own))
        if not any(map(is_stackable, jax.tree.leaves(own_cache))):
            continue
        cached = count_layers("scan_layers", f"cache{at}", own_cache)
        if cached != counts[-1]:
            raise ScanValueError(
                f"scan_layers: cache{at} is for {cached} layers, and params{at} has "
                f"{counts[-1]}. Give the cache one entry for each layer."
            )
    return counts
