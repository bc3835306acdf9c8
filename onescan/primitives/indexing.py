"""Elements taken from and put at positions that are computed."""

from __future__ import annotations

from math import prod

from onescan.loop import Equation
from onescan.primitives.axes import Axes
from onescan.primitives.record import Primitive
from onescan.primitives.views import same_size, whole_dimensions


def _update(eqn: Equation, axes: Axes) -> None:
    same_size(eqn, axes, eqn.invars[:2])


def _gather(eqn: Equation, axes: Axes) -> None:
    (x, indices), (out,) = eqn.invars, eqn.outvars
    numbers, sizes = eqn.params["dimension_numbers"], eqn.params["slice_sizes"]
    batching = tuple(numbers.operand_batching_dims)
    hidden = {*numbers.collapsed_slice_dims, *batching}
    window = [i for i in range(len(x.aval.shape)) if i not in hidden]
    for i, j in zip(window, numbers.offset_dims, strict=True):
        if sizes[i] == x.aval.shape[i]:
            axes.join(x, i, out, j)
        else:
            axes.strike(x, i)
            axes.strike(out, j)
    for i in numbers.collapsed_slice_dims:
        axes.strike(x, i)
    rank = len(out.aval.shape)
    batch = [j for j in range(rank) if j not in numbers.offset_dims]
    for i, j in enumerate(batch):
        axes.join(indices, i, out, j)
    for i, k in zip(batching, numbers.start_indices_batching_dims, strict=True):
        axes.join(x, i, indices, k)
    axes.strike(indices, len(indices.aval.shape) - 1)


def _scatter(eqn: Equation, axes: Axes) -> None:
    (x, indices, updates), (out,) = eqn.invars, eqn.outvars
    numbers = eqn.params["dimension_numbers"]
    batching = tuple(numbers.operand_batching_dims)
    axes.join_all(x, out)
    hidden = {*numbers.inserted_window_dims, *batching}
    window = [i for i in range(len(x.aval.shape)) if i not in hidden]
    for i, j in zip(window, numbers.update_window_dims, strict=True):
        if updates.aval.shape[j] == x.aval.shape[i]:
            axes.join(x, i, updates, j)
        else:
            axes.strike(x, i)
            axes.strike(updates, j)
    for i in numbers.inserted_window_dims:
        axes.strike(x, i)
    rank = len(updates.aval.shape)
    batch = [j for j in range(rank) if j not in numbers.update_window_dims]
    matched = dict(zip(numbers.scatter_indices_batching_dims, batching, strict=True))
    for k, j in enumerate(batch):
        axes.join(indices, k, updates, j)
        if k in matched:
            axes.join(x, matched[k], indices, k)
        else:  # several updates may land on one element
            axes.strike(updates, j)
    axes.strike(indices, len(indices.aval.shape) - 1)


def _updates(eqn: Equation) -> tuple[int, float]:
    """What is changed, not the whole operand."""
    return prod(eqn.invars[-1].aval.shape or (1,)), 6.0


def applies(eqn: Equation) -> str | None:
    """Why a scatter is none that sets numbers: it applies a function to them."""
    update = eqn.params.get("update_jaxpr")
    jaxpr = getattr(update, "jaxpr", update)
    replaces = jaxpr is None or (not jaxpr.eqns and jaxpr.outvars[0] is jaxpr.invars[1])
    return None if replaces else "applies a function"


RECORDS = [
    Primitive(
        name="dynamic_slice", kind="view", cost=0, axes=whole_dimensions, exact=True
    ),
    Primitive(
        name="dynamic_update_slice",
        kind="update",
        axes=_update,
        work=_updates,
        exact=True,
    ),
    Primitive(name="gather", kind="gather", cost=6, axes=_gather, exact=True),
    *(
        Primitive(
            name=name,
            kind="update",
            axes=_scatter,
            work=_updates,
            refuses=applies if name == "scatter" else None,
            exact=name == "scatter",
        )
        for name in (
            "scatter scatter-add scatter-max scatter-min scatter-mul scatter-sub"
        ).split()
    ),
]
