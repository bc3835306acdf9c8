"""Every primitive in every type against eager JAX: `make conformance`.

Writes `docs/conformance.md`, or on a GPU, with fewer random numbers,
`docs/conformance-gpu.md`.  ``--types`` and ``--only`` choose, for a look: what they
find is printed.  Types are measured side by side.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import time
from collections import defaultdict
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "helpers"))
sys.path.insert(0, str(Path(__file__).parents[1]))
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # many share a GPU

import jax
from conformance import arrays, complexes, elementwise, matrices
from conformance.compared import Found
from conformance.matrices import Errors
from engines import FLOATS, INTS

from onescan.targets.cpu import available

DOCS = Path(__file__).parents[1] / "docs"
PAGES = {"cpu": DOCS / "conformance.md", "gpu": DOCS / "conformance-gpu.md"}
#: random numbers for each operation
COUNT = {"cpu": 20_000, "gpu": 2_000}
#: processes that share a GPU
ON_A_GPU = 7
TYPES = (*FLOATS, *INTS, "bool", *complexes.TYPES)
SHORT = {"bfloat16": "bf16", "float16": "f16", "float32": "f32", "float64": "f64"}

HEAD = """\
# Conformance{where}

Made by `make conformance`{how}. Every primitive with a native rule is run in a loop, in
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

{readers} read subnormal numbers as zero, and functions differ in whether they give back
such a number or zero; so do ours, and the table above does not count it. `pow`, `atan2`
and `lgamma` read them as they are. Where results differ:
"""
READERS = {"cpu": "XLA's CPU threads", "gpu": "Some of XLA's functions"}


@dataclass
class Results:
    """What was found, by kind of operation."""

    single: list[Found] = field(default_factory=list)
    whole: list[Found] = field(default_factory=list)
    complexes: list[Found] = field(default_factory=list)
    matrices: list[Errors] = field(default_factory=list)

    def add(self, others: Results) -> None:
        for mine, found in zip(vars(self).values(), vars(others).values(), strict=True):
            mine.extend(found)


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
    backend, device = jax.default_backend(), jax.devices()[0].device_kind
    gpu = backend == "gpu"
    head = HEAD.format(
        where=" on a GPU" if gpu else "",
        how=", whose `ARGS` are `--gpu`" if gpu else "",
    )
    lines = [head, f"JAX {jax.__version__}, {device}.\n", "## Elementwise\n"]
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
    lines.append(SMALL.format(readers=READERS[backend]))
    lines += [
        f"- `{f.name}` {f.dtype}: {f.small:,}, such as {f.small_example}"
        for f in single
        if f.small
    ]
    return "\n".join(lines) + "\n"


def measured(dtype: str, chosen: set[str], backend: str) -> Results:
    """All operations of one type, in a process of its own."""
    assert jax.default_backend() == backend
    start, count, results = time.perf_counter(), COUNT[backend], Results()
    if backend == "gpu":
        elementwise.TOGETHER = 24
    picked = lambda names: [n for n in names if not chosen or n in chosen]
    if dtype in complexes.TYPES:
        names = picked(complexes.names())
        results.complexes += complexes.measured(dtype, names, count // 4)
    else:
        names = picked(elementwise.names())
        results.single += elementwise.measured(dtype, names, count)
    if dtype in arrays.NUMBERS:
        results.whole += arrays.measured(dtype, picked(arrays.names()))
    results.matrices += matrices.measured(dtype, picked(matrices.names()))
    print(f"{dtype}: {time.perf_counter() - start:.0f} s", file=sys.stderr)
    return results


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gpu", action="store_true", help="on a GPU")
    parser.add_argument("--types", default=",".join(TYPES), help="such as float32,int8")
    parser.add_argument("--only", default="", help="operations, such as sin,cos")
    options = parser.parse_args()
    backend = "gpu" if options.gpu else "cpu"
    assert jax.default_backend() == backend, f"JAX runs on {jax.default_backend()}"
    types, chosen = options.types.split(","), set(filter(None, options.only.split(",")))
    jobs = ON_A_GPU if options.gpu else available.cores()
    results = Results()
    # a process that has started JAX must not fork
    with ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn")) as pool:
        of_type = partial(measured, chosen=chosen, backend=backend)
        for found in pool.map(of_type, types):
            results.add(found)
    if chosen or types != list(TYPES):
        print(page(results, types))
    else:
        PAGES[backend].write_text(page(results, types))
    return 0


if __name__ == "__main__":
    sys.exit(main())
