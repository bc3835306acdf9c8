"""What only shows its operands differently, beside each other, or makes them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from onescan.loop import Equation
from onescan.primitives.axes import Axes, reshape_groups
from onescan.primitives.record import Primitive, results, strike_all


def same(eqn: Equation, axes: Axes) -> None:
    """What comes out is what goes in."""
    for x, y in zip(eqn.invars, eqn.outvars, strict=True):
        axes.join_all(x, y)


def _broadcast(eqn: Equation, axes: Axes) -> None:
    x, (out,) = eqn.invars[0], eqn.outvars
    for i, j in enumerate(eqn.params["broadcast_dimensions"]):
        if x.aval.shape[i] == out.aval.shape[j]:
            axes.join(x, i, out, j)


def _reshape(eqn: Equation, axes: Axes) -> None:
    x, (out,) = eqn.invars[0], eqn.outvars
    if eqn.params.get("dimensions") is not None or 0 in x.aval.shape:
        return strike_all(eqn, axes)
    for left, right in reshape_groups(x.aval.shape, out.aval.shape):
        if len(left) == len(right) == 1:
            axes.join(x, left[0], out, right[0])
            continue
        for i in left:
            axes.strike(x, i)
        for j in right:
            axes.strike(out, j)
    return None


def _transpose(eqn: Equation, axes: Axes) -> None:
    (x,), (out,) = eqn.invars, eqn.outvars
    for j, i in enumerate(eqn.params["permutation"]):
        axes.join(x, i, out, j)


def _squeeze(eqn: Equation, axes: Axes) -> None:
    (x,), (out,) = eqn.invars, eqn.outvars
    rank = len(x.aval.shape)
    gone = {d % rank for d in eqn.params["dimensions"]}
    for j, i in enumerate(i for i in range(rank) if i not in gone):
        axes.join(x, i, out, j)


def _expand_dims(eqn: Equation, axes: Axes) -> None:
    (x,), (out,) = eqn.invars, eqn.outvars
    rank = len(out.aval.shape)
    new = {d % rank for d in eqn.params["dimensions"]}
    for i, j in enumerate(j for j in range(rank) if j not in new):
        axes.join(x, i, out, j)


def same_size(eqn: Equation, axes: Axes, operands: Sequence[Any]) -> None:
    """Dimensions taken whole walk together; those that change size are mixed."""
    (out,) = eqn.outvars
    for x in operands:
        for i, (n, m) in enumerate(zip(x.aval.shape, out.aval.shape, strict=True)):
            if n == m:
                axes.join(x, i, out, i)
            else:
                axes.strike(x, i)
                axes.strike(out, i)


def whole_dimensions(eqn: Equation, axes: Axes) -> None:
    same_size(eqn, axes, eqn.invars[:1])


def _concatenate(eqn: Equation, axes: Axes) -> None:
    same_size(eqn, axes, eqn.invars)
    axes.strike(eqn.outvars[0], eqn.params["dimension"])


def _pad(eqn: Equation, axes: Axes) -> None:
    x, (out,) = eqn.invars[0], eqn.outvars
    for i, config in enumerate(eqn.params["padding_config"]):
        if tuple(config) == (0, 0, 0):
            axes.join(x, i, out, i)
        else:
            axes.strike(x, i)
            axes.strike(out, i)


def along(eqn: Equation, axes: Axes, mixed: set[int]) -> None:
    """Same shape in and out, with some dimensions mixed."""
    for x in eqn.invars:
        for out in eqn.outvars:
            axes.join_all(x, out)
            for i in mixed:
                axes.strike(out, i)


def _rev(eqn: Equation, axes: Axes) -> None:
    along(eqn, axes, set(eqn.params["dimensions"]))


def _split(eqn: Equation, axes: Axes) -> None:
    (x,) = eqn.invars
    for out in eqn.outvars:
        axes.join_all(x, out)
        axes.strike(out, eqn.params["axis"])


def _unstack(eqn: Equation, axes: Axes) -> None:
    (x,) = eqn.invars
    gone = eqn.params["axis"] % len(x.aval.shape)
    axes.strike(x, gone)
    for out in eqn.outvars:
        for j in range(len(out.aval.shape)):
            axes.join(x, j + (j >= gone), out, j)


def _stack(eqn: Equation, axes: Axes) -> None:
    (out,) = eqn.outvars
    new = eqn.params["axis"] % len(out.aval.shape)
    axes.strike(out, new)
    for x in eqn.invars:
        for i in range(len(x.aval.shape)):
            axes.join(x, i, out, i + (i >= new))


def _nothing(eqn: Equation, axes: Axes) -> None:
    """Dimensions that stand alone."""


def _permutes(eqn: Equation) -> str | None:
    return None if eqn.params.get("dimensions") is None else "permutes"


def one_each(eqn: Equation) -> tuple[int, float]:
    """What is put somewhere, element by element."""
    return results(eqn), 1.0


def _view(name: str, axes: Any, linear: bool = False, **more: Any) -> Primitive:
    return Primitive(
        name=name, kind="view", cost=0, axes=axes, linear=linear, exact=True, **more
    )


def _joined(name: str, axes: Any, linear: bool = False, **more: Any) -> Primitive:
    return Primitive(
        name=name, kind="joined", axes=axes, linear=linear, work=one_each, **more
    )


RECORDS = [
    _view("broadcast_in_dim", _broadcast, linear=True),
    _view("expand_dims", _expand_dims, linear=True),
    _view("reshape", _reshape, linear=True, refuses=_permutes),
    _view("rev", _rev, linear=True),
    _view("slice", whole_dimensions, linear=True),
    _view("split", _split, linear=True),
    _view("squeeze", _squeeze, linear=True),
    _view("transpose", _transpose, linear=True),
    _view("unstack", _unstack, linear=True),
    _joined("concatenate", _concatenate, linear=True, exact=True),
    _joined("pad", _pad, linear=True, exact=True),
    _joined("stack", _stack, linear=True),
    _joined("tile", whole_dimensions, linear=True),
    Primitive(name="empty", kind="source", axes=_nothing, work=one_each),
    Primitive(name="empty2", kind="source", axes=_nothing, work=one_each),
    Primitive(name="iota", kind="source", cost=0, axes=_nothing, exact=True),
    Primitive(name="iota_2x32_shape", kind="source", axes=_nothing, work=one_each),
    Primitive(name="copy", kind="identity", axes=same, linear=True, exact=True),
    *(
        Primitive(name=name, kind="identity", axes=same, exact=exact, work=one_each)
        for name, exact in {
            "copy_p": True,
            "optimization_barrier": True,
            "pvary": True,
            "reshard": False,
            "sharding_constraint": False,
        }.items()
    ),
]
