"""masked: an update that may not count writes what was there.

In goes a body with ``where(p, c.at[i].set(u), c)``, which needs both arrays, the old
and the new, and goes through all of them in every step.  Out comes
``c.at[i].set(where(p, u, c[i]))``: a few elements, in the carry's own memory.

Right, because the places are those of the update, clamped or dropped alike, and an
array in which something is set to what it is there is the same array; one to which
-0 is added, too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend.core import JaxprEqn, Var
from jax.extend.core.primitives import dynamic_slice_p

from onescan import compat
from onescan.loop import Equation, Loop
from onescan.passes.split import Split, parts_of, rebuilt, unchanged, variables
from onescan.passes.traced import traced
from onescan.primitives import is_refused

UPDATES = ("dynamic_update_slice", "scatter", "scatter-add")


def masked(loop: Loop) -> Split | None:
    """Select what is written, not one of two arrays."""
    parts = parts_of(loop)
    makers = {v: eqn for eqn in parts.eqns for v in eqn.outvars}
    uses = Counter(v for eqn in parts.eqns for v in variables(eqn.invars))
    uses.update(variables(parts.results))
    eqns: list[JaxprEqn] = []
    count = 0
    for eqn in parts.eqns:
        found = _update(eqn, makers, uses)
        changed = found and traced(*found, eqn)
        count += bool(changed)
        eqns += changed or [eqn]
    if not count:
        return None
    what = "1 update" if count == 1 else f"{count} updates"
    return Split(
        name="masked",
        loop=rebuilt(loop, parts.replace(eqns=tuple(eqns))),
        before=unchanged,
        after=lambda args, results: results,
        notes=(f"selected what {what} would write, not one of two arrays",),
    )


def _update(
    eqn: Equation, makers: Mapping[Any, Equation], uses: Counter[Any]
) -> tuple[Callable[..., Sequence[Any]], list[Any]] | None:
    """An array, or that array updated, as a function that updates it."""
    if eqn.primitive.name != "select_n" or len(eqn.invars) != 3:
        return None
    which, *cases = eqn.invars
    choice = _number(which, makers)
    if choice is None:
        return None
    for where, (old, new) in enumerate((cases, cases[::-1])):
        update = makers.get(new) if isinstance(new, Var) else None
        if update is None or update.primitive.name not in UPDATES:
            continue
        if update.invars[0] is old and uses[new] == 1 and not is_refused(update):
            apply = partial(_selected, update, counts=where == 0)
            return apply, [choice, *update.invars]
    return None


def _number(which: Any, makers: Mapping[Any, Equation]) -> Any:
    """The one truth by which all elements are chosen, if it is one."""
    maker = makers.get(which) if isinstance(which, Var) else None
    if maker is not None and maker.primitive.name == "broadcast_in_dim":
        which = maker.invars[0]
    aval: Any = which.aval
    single = isinstance(which, Var) and aval.shape == ()
    return which if single and aval.dtype == bool else None


def _selected(
    update: Equation, choice: Any, array: Any, *given: Any, counts: bool
) -> Sequence[Any]:
    """An update of a few elements that are new if the choice is that it `counts`."""
    if update.primitive.name == "dynamic_update_slice":
        new, *places = given
        old = dynamic_slice_p.bind(array, *places, slice_sizes=new.shape)
    elif update.primitive.name == "scatter":
        places, new = given
        old = _gathered(update, array, places, new)
    else:
        places, new = given
        old = lax.full_like(new, -0.0 if jnp.issubdtype(new.dtype, np.inexact) else 0)
    chosen = lax.select_n(choice, *((old, new) if counts else (new, old)))
    operands = (chosen, *places) if isinstance(places, list) else (places, chosen)
    return compat.bind(update, [array, *operands])


def _gathered(update: Equation, array: Any, places: Any, new: Any) -> Any:
    """What is where an update sets something."""
    numbers = update.params["dimension_numbers"]
    hidden = {*numbers.inserted_window_dims, *numbers.operand_batching_dims}
    windows = iter(new.shape[i] for i in numbers.update_window_dims)
    return lax.gather(
        array,
        places,
        lax.GatherDimensionNumbers(
            offset_dims=numbers.update_window_dims,
            collapsed_slice_dims=numbers.inserted_window_dims,
            start_index_map=numbers.scatter_dims_to_operand_dims,
            operand_batching_dims=numbers.operand_batching_dims,
            start_indices_batching_dims=numbers.scatter_indices_batching_dims,
        ),
        [1 if i in hidden else next(windows) for i in range(array.ndim)],
        indices_are_sorted=update.params["indices_are_sorted"],
        unique_indices=update.params["unique_indices"],
        mode=update.params["mode"],
        fill_value=0,
    )
