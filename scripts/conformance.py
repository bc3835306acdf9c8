"""Every primitive in every type against eager JAX: `make conformance`.

Writes `docs/conformance.md`.  ``--gpu`` is for a machine with a GPU: fewer random
numbers, the table on standard output.  ``--types`` and ``--only`` choose.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "helpers"))
sys.path.insert(0, str(Path(__file__).parents[1]))

import jax
from conformance import arrays, complexes, elementwise, matrices
from conformance.compared import Found
from conformance.matrices import Errors
from engines import FLOATS, INTS

PAGE = Path(__file__).parents[1] / "docs" / "conformance.md"
TYPES = (*FLOATS, *INTS, "bool", *complexes.TYPES)
SHORT = {"bfloat16": "bf16", "float16": "f16", "float32": "f32", "float64": "f64"}

HEAD = """\
# Conformance

Made by `make conformance`. Every primitive with a native rule is run in a loop, in
every type it takes, and compared with eager JAX, one operation at a time, on the same
numbers: all there are for operations of one operand of 8 or 16 bits, all pairs for two
of 8 bits, and else zeros, infinities, NaN, subnormal, smallest and largest numbers,
powers of two and their neighbours, and random ones. Integers include divisions by zero,
INT_MIN / -1 and shifts too far; conversions include floats out of range. Arrays are
empty, of one element and of odd shapes; indices of gathers and scatters are out of
range.

"exact" is bit for bit (any NaN is NaN). A number is the largest distance from eager JAX
in units in the last place. "53 (1)" means that eager JAX and the loop are 53 units
apart where they are furthest apart, and that the loop is within 1 of the exact result
there: XLA is the one that is off. "n !" counts results that are another integer, NaN,
infinity or sign; each such operation is listed below with an example.
"""

COMPLEX = """\
## Complex numbers

Distances are in units in the last place of the larger part. Zeros, infinities and NaN
are in either part, and all pairs of such numbers in products and quotients. What of
`integer_pow` differs overflows on the way, where XLA rounds once and kernels twice.
"""

MATRICES = """\
## Matrices and transforms

The largest backward error (how far the product of the factors is from the matrix,
relative to it; of a transform, how far it is from the exact one), in units of the
type's rounding: in kernels / by the libraries that XLA calls. Matrices have 1 to 33
rows and conditions up to 10,000 (f32) and 10,000,000,000 (f64), in lanes and alone.
"""

SMALL = """
## Numbers too small to be normal

XLA's CPU threads read subnormal numbers as zero, and its functions differ in whether
they give back such a number or zero; so do ours, and the table above does not count it.
`pow`, `atan2` and `lgamma` read them as they are. Where results differ:
"""


@dataclass
class Results:
    """What was found, by kind of operation."""

    single: list[Found] = field(default_factory=list)
    whole: list[Found] = field(default_factory=list)
    complexes: list[Found] = field(default_factory=list)
    matrices: list[Errors] = field(default_factory=list)


def cell(found: Found) -> str:
    """A result in a word."""
    wrong = f", {found.different:,} !" if found.different else ""
    if not found.ulps:
        return "exact" if not wrong else wrong[2:]
    ours = f" ({found.ours:,})" if found.ours is not None else ""
    return f"{found.ulps:,}{ours}{wrong}"


def table(results: Iterable[Found], types: Iterable[str]) -> list[str]:
    """Primitives by types, in Markdown."""
    rows: dict[str, dict[str, str]] = defaultdict(dict)
    for found in results:
        rows[found.name][found.dtype] = cell(found)
    return written(rows, types)


def written(rows: dict[str, dict[str, str]], types: Iterable[str]) -> list[str]:
    """Names by types, in Markdown."""
    used = [t for t in types if any(t in row for row in rows.values())]
    lines = ["| | " + " | ".join(SHORT.get(t, t) for t in used) + " |"]
    lines.append("|---" * (len(used) + 1) + "|")
    for name, row in rows.items():
        lines.append(f"| {name} | " + " | ".join(row.get(t, "") for t in used) + " |")
    return lines


def errors(results: Iterable[Errors], types: Iterable[str]) -> list[str]:
    """Operations on matrices by types, in Markdown."""
    rows: dict[str, dict[str, str]] = defaultdict(dict)
    for found in results:
        rows[found.name][found.dtype] = f"{found.ours:.1f} / {found.theirs:.1f}"
    return written(rows, types)


def page(results: Results, types: list[str]) -> str:
    """All of it, as a page of the documentation."""
    single, whole = results.single, results.whole
    backend, version = jax.default_backend(), jax.__version__
    lines = [HEAD, f"JAX {version}, {backend}.\n", "## Elementwise\n"]
    floats = [t for t in types if t in FLOATS]
    others = [t for t in types if t not in FLOATS]
    lines += [*table([f for f in single if f.dtype in FLOATS], floats), ""]
    lines += [*table([f for f in single if f.dtype not in FLOATS], others), ""]
    lines += ["## Arrays\n", *table(whole, types), ""]
    lines += [COMPLEX, *table(results.complexes, types), ""]
    lines += [MATRICES, *errors(results.matrices, types), ""]
    if wrong := [f for f in [*single, *whole, *results.complexes] if f.different]:
        lines += ["## Results that differ in kind\n"]
        lines += [f"- `{f.name}` {f.dtype} {f.example}" for f in wrong]
    lines.append(SMALL)
    lines += [
        f"- `{f.name}` {f.dtype}: {f.small:,}, such as {f.small_example}"
        for f in single
        if f.small
    ]
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gpu", action="store_true", help="a GPU, in four minutes")
    parser.add_argument("--types", default=",".join(TYPES), help="such as float32,int8")
    parser.add_argument("--only", default="", help="operations, such as sin,cos")
    parser.add_argument("--count", type=int, default=20_000, help="random numbers")
    options = parser.parse_args()
    if options.gpu:
        assert jax.default_backend() == "gpu", "JAX sees no GPU"
        elementwise.TOGETHER, options.count = 24, 2_000
    types, chosen = options.types.split(","), set(filter(None, options.only.split(",")))
    results = Results()
    picked = lambda names: [n for n in names if not chosen or n in chosen]
    for dtype in types:
        start = time.perf_counter()
        if dtype in complexes.TYPES:
            names = picked(complexes.names())
            results.complexes += complexes.measured(dtype, names, options.count // 4)
        else:
            names = picked(elementwise.names())
            results.single += elementwise.measured(dtype, names, options.count)
        if dtype in arrays.NUMBERS:
            results.whole += arrays.measured(dtype, picked(arrays.names()))
        if not options.gpu:
            results.matrices += matrices.measured(dtype, picked(matrices.names()))
        print(f"{dtype}: {time.perf_counter() - start:.0f} s", file=sys.stderr)
        if not (options.gpu or chosen):
            PAGE.write_text(page(results, types))
    if options.gpu or chosen:
        print(page(results, types))
    return 0


if __name__ == "__main__":
    sys.exit(main())
