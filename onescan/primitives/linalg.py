"""Factors of matrices and solutions with them, matrix by matrix."""

from __future__ import annotations

from dataclasses import replace
from math import prod

from onescan.loop import Equation
from onescan.primitives.axes import Axes
from onescan.primitives.record import Primitive

#: rows or columns up to which a kernel has a matrix
LARGEST = 64
#: rows up to which a thread has few of them in reflections, which wait for each other
#: (`benchmarks/linalg.py`: 16 rows take 0.8 times as long as LAPACK, 32 twice as long)
FEW, ALONE = 8, 16
#: the same of complex ones (`--complex`: 12 rows take 0.7 times as long, 14 as long)
COMPLEX_ALONE = 12
#: the same in sweeps of rotations (8 rows take 0.6 times as long as LAPACK, 16 twice)
SWEPT_ALONE = 8
#: operations that a root or a quotient counts
ROOT = 10


def _batched(eqn: Equation, axes: Axes, inner: int = 2) -> None:
    """Leading dimensions walk together; those of the matrices mix their positions."""
    first = eqn.invars[0]
    batch = len(first.aval.shape) - inner
    for var in [*eqn.invars, *eqn.outvars]:
        for i in range(len(var.aval.shape)):
            if i >= batch:
                axes.strike(var, i)
            elif var is not first:
                axes.join(first, i, var, i)


def _one_row(eqn: Equation, axes: Axes) -> None:
    _batched(eqn, axes, inner=1)


def _triangular(eqn: Equation, axes: Axes) -> None:
    """Columns (or rows, from the right) of the other side are solved by themselves."""
    (a, b), (out,) = eqn.invars, eqn.outvars
    rank = len(out.aval.shape)
    unknowns = rank - 2 if eqn.params["left_side"] else rank - 1
    for i in range(rank):
        if i < rank - 2:
            axes.join(a, i, out, i)
        else:
            axes.strike(a, i)
        axes.join(b, i, out, i)
    axes.strike(out, unknowns)


def _sizes(eqn: Equation) -> tuple[int, int, int]:
    *batch, rows, columns = eqn.invars[0].aval.shape
    return prod(batch), rows, columns


def _cholesky_work(eqn: Equation) -> tuple[int, float]:
    count, n, _ = _sizes(eqn)
    return count * n, n * n / 6 + n / 2 + 2 * ROOT


def _solve_work(eqn: Equation) -> tuple[int, float]:
    n = eqn.invars[0].aval.shape[-1]
    return prod(eqn.outvars[0].aval.shape), n / 2 + ROOT / 2


def _lu_work(eqn: Equation) -> tuple[int, float]:
    """Elimination, and the exchange of rows."""
    count, rows, columns = _sizes(eqn)
    steps = min(rows, columns)
    return count * steps, rows * columns / 3 + 2 * rows * columns / 2 + 2 * ROOT


def _qr_work(eqn: Equation) -> tuple[int, float]:
    """Reflections of all columns, and their product."""
    count, rows, columns = _sizes(eqn)
    width = columns + eqn.outvars[0].aval.shape[-1]
    return count * min(rows, columns), 2.0 * rows * width + 4 * ROOT


def _qr_unfit(eqn: Equation) -> str | None:
    if eqn.params.get("pivoting"):
        return "exchanges columns"
    return None


def _reflected_work(eqn: Equation) -> tuple[int, float]:
    """Reflections of all columns: of the matrix itself, or of another."""
    *_, rows, columns = eqn.outvars[0].aval.shape
    count, _, width = _sizes(eqn)
    return count * min(rows, width), 2.0 * rows * columns + 2 * ROOT


def _ormqr_unfit(eqn: Equation) -> str | None:
    return None if eqn.params["left"] else "multiplies from the right"


def _eigh_work(eqn: Equation) -> tuple[int, float]:
    """Of a library: to tridiagonal form, rotations of that, and the vectors."""
    count, n, _ = _sizes(eqn)
    return count * n, 2.0 * n * n + 100 * n + 500


def _swept_unfit(eqn: Equation) -> str | None:
    """What options ask for that a kernel does not do."""
    count = min(eqn.invars[0].aval.shape[-2:])
    if eqn.params.get("subset_by_index") not in (None, (0, count)):
        return "asks for some of them only"
    if eqn.params.get("algorithm") is not None:
        return "asks for an algorithm of a library"
    return None


def _svd_work(eqn: Equation) -> tuple[int, float]:
    """Of a library: to bidiagonal form, rotations of that, and both sides."""
    count, rows, columns = _sizes(eqn)
    n = min(rows, columns)
    sides = 2.0 if eqn.params["compute_uv"] else 1.0
    return count * n, sides * (2.0 * rows * columns + 100 * n + 500)


def _exchanges(eqn: Equation) -> tuple[int, float]:
    (out,) = eqn.outvars
    return prod(out.aval.shape), float(eqn.invars[0].aval.shape[-1])


def _too_large(eqn: Equation, most: int = LARGEST) -> str | None:
    _, rows, columns = _sizes(eqn)
    if max(rows, columns) <= most:
        return None
    return f"is of a {rows} x {columns} matrix, which a library does as well"


#: what is said of some of them, real or complex
UNFIT = {
    "qr": _qr_unfit,
    "geqrf": _qr_unfit,
    "householder_product": _qr_unfit,
    "ormqr": _ormqr_unfit,
    "eigh": _swept_unfit,
    "svd": _swept_unfit,
}


def unfit(eqn: Equation) -> str | None:
    """Why no kernel has these factors, whatever the type of the matrix."""
    special = UNFIT.get(eqn.primitive.name)
    return (special(eqn) if special else None) or _too_large(eqn)


def unfit_alone(eqn: Equation) -> str | None:
    """Why no thread has them of few matrices."""
    swept = eqn.primitive.name in ("eigh", "svd")
    reflected = COMPLEX_ALONE if eqn.invars[0].aval.dtype.kind == "c" else ALONE
    few = _sizes(eqn)[0] < FEW
    return _too_large(eqn, SWEPT_ALONE if swept else reflected) if few else None


def _refused(eqn: Equation) -> str | None:
    dtype = eqn.invars[0].aval.dtype
    if (reason := unfit(eqn)) or dtype.name in ("float32", "float64"):
        return reason
    return unfit_alone(eqn) or f"works on {dtype}"


RECORDS = [
    Primitive(
        name="cholesky",
        kind="matrix",
        axes=_batched,
        work=_cholesky_work,
        refuses=_refused,
        words=("Cholesky factor", "Cholesky factors"),
    ),
    Primitive(
        name="triangular_solve",
        kind="matrix",
        axes=_triangular,
        work=_solve_work,
        refuses=_refused,
        words=("triangular solution", "triangular solutions"),
    ),
    Primitive(
        name="lu",
        kind="matrix",
        axes=_batched,
        work=_lu_work,
        refuses=_refused,
        words=("LU factor", "LU factors"),
    ),
    Primitive(
        name="qr",
        kind="matrix",
        axes=_batched,
        work=_qr_work,
        refuses=_refused,
        refuses_alone=unfit_alone,
        words=("QR factor", "QR factors"),
    ),
    Primitive(
        name="geqrf",
        kind="matrix",
        axes=_batched,
        work=_reflected_work,
        refuses=_refused,
        refuses_alone=unfit_alone,
        words=("QR factor", "QR factors"),
    ),
    Primitive(
        name="ormqr",
        kind="matrix",
        axes=_batched,
        work=_reflected_work,
        refuses=_refused,
        words=("product of reflections", "products of reflections"),
    ),
    Primitive(
        name="eigh",
        kind="matrix",
        axes=_batched,
        work=_eigh_work,
        refuses=_refused,
        refuses_alone=unfit_alone,
        words=("eigenvalue problem", "eigenvalue problems"),
    ),
    Primitive(
        name="svd",
        kind="matrix",
        axes=_batched,
        work=_svd_work,
        refuses=_refused,
        refuses_alone=unfit_alone,
        words=("singular value problem", "singular value problems"),
    ),
    Primitive(
        name="lu_pivots_to_permutation",
        kind="matrix",
        axes=_one_row,
        work=_exchanges,
        exact=True,
    ),
]
#: of the parts of complex matrices
OF_PARTS = ("qr", "geqrf", "ormqr", "eigh", "svd")
RECORDS += [
    replace(record, name=f"onescan_{record.name}", refuses=None, refuses_alone=None)
    for record in RECORDS
    if record.name in OF_PARTS
]
