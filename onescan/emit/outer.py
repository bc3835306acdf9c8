"""Outer products: nothing is summed, so each result is computed where it is read."""

from __future__ import annotations

import numpy as np

from onescan.emit import elementwise as el
from onescan.emit import types as ty
from onescan.emit.arrays import Array, Index
from onescan.emit.emitter import Emitter
from onescan.loop import Equation


def is_outer(eqn: Equation) -> bool:
    """Whether each result is one product of floats, and no sum."""
    ((cx, _), _), x = eqn.params["dimension_numbers"], eqn.invars[0].aval
    types = {np.dtype(v.aval.dtype) for v in (*eqn.invars, *eqn.outvars)}
    alike = len(types) == 1 and types <= {np.dtype("float32"), np.dtype("float64")}
    return alike and all(x.shape[i] == 1 for i in cx)


def outer(e: Emitter, eqn: Equation, operands: list[Array]) -> list[Array]:
    """Such products, computed where they are pulled."""
    contracted, batch = eqn.params["dimension_numbers"]
    arrays = list(map(e.once, operands))
    frees = [
        [i for i in range(len(array.shape)) if i not in {*c, *b}]
        for array, c, b in zip(arrays, contracted, batch, strict=True)
    ]
    rows = len(batch[0]), len(batch[0]) + len(frees[0])

    def at(index: tuple[Index, ...]) -> ty.Value:
        factors = []
        for array, c, b, free, first in zip(
            arrays, contracted, batch, frees, rows, strict=True
        ):
            place: dict[int, Index] = dict.fromkeys(c, 0)
            place.update(zip(b, index, strict=False))
            place.update(zip(free, index[first:], strict=False))
            factors.append(array.at(tuple(place[i] for i in range(len(place)))))
        return e.b.fmul(*ty.match(e.b, *factors), flags=el.CONTRACT)

    return [e.lazy(eqn.outvars[0], at, arrays, 1)]
