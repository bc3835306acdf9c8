"""The cases of a benchmark that its command line asks for."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from typing import Any


def chosen(
    cases: Callable[[], Mapping[str, Any]], about: str | None, examples: str
) -> dict[str, Any]:
    """Those whose names contain what stands behind `--only`; all without that."""
    parser = argparse.ArgumentParser(
        description=about,
        epilog=examples,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--only", nargs="+", metavar="NAME", default=[""])
    only = parser.parse_args().only
    return {n: case for n, case in cases().items() if any(part in n for part in only)}
