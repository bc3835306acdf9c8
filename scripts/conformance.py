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
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "helpers"))
sys.path.insert(0, str(Path(__file__).parents[1]))

import jax
from conformance import arrays, elementwise
from conformance.compared import Found
from engines import FLOATS, INTS

PAGE = Path(__file__).parents[1] / "docs" / "conformance.md"
TYPES = (*FLOATS, *INTS, "bool")
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

SMALL = """
## Numbers too small to be normal

XLA's CPU threads read subnormal numbers as zero, and its functions differ in whether
they give back such a number or zero; so do ours, and the table above does not count it.
`pow`, `atan2` and `lgamma` read them as they are. Where results differ:
"""


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
    used = [t for t in types if any(t in row for row in rows.values())]
    lines = ["| | " + " | ".join(SHORT.get(t, t) for t in used) + " |"]
    lines.append("|---" * (len(used) + 1) + "|")
    for name, row in rows.items():
        lines.append(f"| {name} | " + " | ".join(row.get(t, "") for t in used) + " |")
    return lines


def page(single: list[Found], whole: list[Found], types: list[str]) -> str:
    """All of it, as a page of the documentation."""
    backend, version = jax.default_backend(), jax.__version__
    lines = [HEAD, f"JAX {version}, {backend}.\n", "## Elementwise\n"]
    floats = [t for t in types if t in FLOATS]
    others = [t for t in types if t not in FLOATS]
    lines += [*table([f for f in single if f.dtype in FLOATS], floats), ""]
    lines += [*table([f for f in single if f.dtype not in FLOATS], others), ""]
    lines += ["## Arrays\n", *table(whole, types), ""]
    if wrong := [f for f in [*single, *whole] if f.different]:
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
    single: list[Found] = []
    whole: list[Found] = []
    for dtype in types:
        start = time.perf_counter()
        names = [n for n in elementwise.names() if not chosen or n in chosen]
        single += elementwise.measured(dtype, names, options.count)
        if dtype in arrays.NUMBERS:
            names = [n for n in arrays.names() if not chosen or n in chosen]
            whole += arrays.measured(dtype, names)
        print(f"{dtype}: {time.perf_counter() - start:.0f} s", file=sys.stderr)
        if not (options.gpu or chosen):
            PAGE.write_text(page(single, whole, types))
    if options.gpu or chosen:
        print(page(single, whole, types))
    return 0


if __name__ == "__main__":
    sys.exit(main())
