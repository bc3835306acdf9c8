"""What of a training state is computed, and what only travels along.

Arrays are. Functions, strings and the like (an Equinox module has them) are not. A
Python number is if the step changes it: a step counter is, the rate of a dropout layer
is not.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from onescan.errors import ScanTypeError
from onescan.naming import function_name, leaf_paths, thing_name, type_name


@dataclass(frozen=True)
class Division:
    """A state taken apart, and how to put it together again."""

    structure: Any
    paths: tuple[str, ...]  # of all leaves
    computed: tuple[bool, ...]  # for each leaf
    fixed: tuple[Any, ...]  # the leaves that are not computed

    def arrays(self, state: Any) -> list[Any]:
        leaves = jax.tree.leaves(state)
        return [leaf for leaf, c in zip(leaves, self.computed, strict=True) if c]

    def join(self, arrays: Any) -> Any:
        arrays, fixed = iter(arrays), iter(self.fixed)
        leaves = [next(arrays) if c else next(fixed) for c in self.computed]
        return jax.tree.unflatten(self.structure, leaves)

    def array_paths(self) -> list[str]:
        return [path for path, c in zip(self.paths, self.computed, strict=True) if c]


class Divided(NamedTuple):
    """A state taken apart, and what one trace of the step showed."""

    division: Division
    arrays: list[Any]  # copies, to be given away to the compiled loop
    metrics: Any  # types
    jaxpr: Any


def divided(step: Callable[..., Any], state: Any, batch: Any) -> Divided:
    """Take a state apart by trying the step on it, given the types of a batch."""
    leaves, structure = jax.tree.flatten(state)
    paths = tuple(leaf_paths("state", state))
    computed = [
        isinstance(leaf, jax.Array | np.ndarray | np.generic) for leaf in leaves
    ]
    while True:
        fixed = tuple(leaf for leaf, c in zip(leaves, computed, strict=True) if not c)
        division = Division(structure, paths, tuple(computed), fixed)
        arrays = [_own(leaf) for leaf in division.arrays(state)]
        try:
            changed, metrics, jaxpr = _trial(step, division, arrays, batch)
        except Exception:
            numbers = [i for i in range(len(leaves)) if _is_number(leaves[i])]
            if all(computed[i] for i in numbers):
                raise
            changed = numbers  # a step that is written for arrays
        else:
            if not changed:
                return Divided(division, arrays, metrics, jaxpr)
        for index in changed:
            if not _is_number(leaves[index]):
                raise ScanTypeError(
                    f"onescan.train.fit: {function_name(step)} changes "
                    f"{paths[index]}, which is {thing_name(leaves[index])}. Only "
                    "arrays and numbers of a state can change; keep the rest as it is."
                )
            computed[index] = True


def stepper(step: Callable[..., Any], division: Division) -> Callable[..., Any]:
    """The step on the arrays alone: ``(arrays, batch) -> (arrays, metrics)``."""

    def run(arrays: list[Any], batch: Any) -> tuple[list[Any], Any]:
        state, metrics = step(division.join(arrays), batch)
        after = division.arrays(state)
        return [_as(new, old) for new, old in zip(after, arrays, strict=True)], metrics

    return run


def _trial(
    step: Callable[..., Any], division: Division, arrays: list[Any], batch: Any
) -> tuple[list[int], Any, Any]:
    """Which fixed leaves a step changes, its metrics and its jaxpr; or an error."""
    changed: list[int] = []

    def run(arrays: list[Any], batch: Any) -> Any:
        result = step(division.join(arrays), batch)
        if type(result) not in (tuple, list) or len(result) != 2:
            raise ScanTypeError(
                f"onescan.train.fit: {function_name(step)} must return a pair "
                f"(state, metrics), but it returned {thing_name(result)}. Return "
                "`state, None` when there is nothing to measure."
            )
        state, metrics = result
        if jax.tree.structure(state) != division.structure:
            raise ScanTypeError(_other_containers(step, division, state))
        before = jax.tree.leaves(division.join(arrays))
        after = jax.tree.leaves(state)
        for index, (old, new) in enumerate(zip(before, after, strict=True)):
            if division.computed[index]:
                _check_type(step, division.paths[index], old, new)
            elif not _same(old, new):
                changed.append(index)
        return division.arrays(state), metrics

    jaxpr, (_, metrics) = jax.make_jaxpr(run, return_shape=True)(arrays, batch)
    return changed, metrics, jaxpr.jaxpr


def _other_containers(step: Callable[..., Any], division: Division, state: Any) -> str:
    head = f"onescan.train.fit: {function_name(step)} returns another state than it got"
    before, after = set(division.paths), set(leaf_paths("state", state))
    if missing := sorted(before - after):
        return f"{head}: {missing[0]} is missing. Return every part of the state."
    if added := sorted(after - before):
        return f"{head}: {added[0]} is new. Put it into the first state too."
    return (
        f"{head}: {jax.tree.structure(state)} instead of {division.structure}. Return "
        "the state in the containers it came in."
    )


def _check_type(step: Callable[..., Any], path: str, old: Any, new: Any) -> None:
    before, after = jax.typeof(old), jax.typeof(new)
    if (before.shape, before.dtype) == (after.shape, after.dtype):
        return
    fix = "keep its shape"
    if before.shape == after.shape:
        fix = f"cast it back with .astype({path}.dtype), or begin with {after.dtype}"
    raise ScanTypeError(
        f"onescan.train.fit: {function_name(step)} changes {path} from "
        f"{type_name(before)} to {type_name(after)}. Every step must leave the types "
        f"as they were: {fix}."
    )


def _is_number(leaf: Any) -> bool:
    return isinstance(leaf, bool | int | float | complex)


def _same(old: Any, new: Any) -> bool:
    if old is new:
        return True
    if isinstance(new, jax.Array) or type(old) is not type(new):
        return False
    try:
        return bool(old == new)
    except Exception:  # an object that cannot be compared
        return False


def _own(leaf: Any) -> jax.Array:
    """A copy on the device, of a definite type."""
    if isinstance(leaf, jax.Array):
        return _as(leaf.copy(), leaf)
    return _as(jnp.array(leaf, copy=True), jnp.asarray(leaf))


def _as(new: Any, old: Any) -> Any:
    """`new` with the dtype of `old`, and not weakly typed."""
    kind = jax.typeof(new)
    if getattr(kind, "weak_type", False) or not isinstance(new, jax.Array):
        return jax.lax.convert_element_type(new, jax.typeof(old).dtype)
    return new
