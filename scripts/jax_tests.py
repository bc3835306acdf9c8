"""Run JAX's own scan tests with onescan installed, and compare with stock JAX.

JAX's source distributions hold no tests, so they come from JAX's repository, at
the tag of the installed version.  Everything with "scan" in its name in the files
that have such tests is run twice, once stock and once with `onescan.install()`; a
test that passes stock must pass with onescan.  Checkouts and the stock results are
kept under build/jax-tests.  Exit code 1 on a regression.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections import Counter
from pathlib import Path

import jax
from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build" / "jax-tests"
REPOSITORY = "https://github.com/jax-ml/jax"

KNOWN = {
    "test_scan_unroll": "compares the sizes of emitted programs",
    "scan.*_stack": "reads name stacks in the emitted program",
}

Results = dict[str, str]  # test -> "passed", "failed" or "skipped"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--repository", default=REPOSITORY, help="JAX's, or a copy")
    parser.add_argument("--ref", default=f"jax-v{jax.__version__}", help="tag to test")
    parser.add_argument("-k", default="scan", help="which tests, as for pytest")
    options = parser.parse_args()

    source = checkout(options.repository, options.ref)
    folder = BUILD / f"jax-{jax.__version__}"
    folder.mkdir(parents=True, exist_ok=True)
    tag = re.sub(r"\W+", "-", f"{options.ref} {options.k}")
    kept = folder / f"stock-{tag}.json"
    if kept.exists():
        stock: Results = json.loads(kept.read_text())
    else:
        stock = run_tests(source, options.k, folder / f"stock-{tag}.xml")
        kept.write_text(json.dumps(stock, indent=1))
    ours = run_tests(
        source, options.k, folder / f"onescan-{tag}.xml", "-p", "jax_plugin"
    )
    return compare(stock, ours, f"tests of {options.ref} on JAX {jax.__version__}")


def checkout(repository: str, ref: str) -> Path:
    """The tests of JAX's repository at one tag, fetched once."""
    folder = BUILD / f"source-{ref}"
    if not (folder / "tests").exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        only = ["--depth", "1", "--filter=blob:none", "--no-checkout", "--quiet"]
        clone = ["git", "clone", *only, "--branch", ref, repository, folder]
        subprocess.run(clone, check=True)
        parts = ["tests", "conftest.py", "pyproject.toml"]
        subprocess.run(
            ["git", "checkout", "HEAD", "--", *parts], cwd=folder, check=True
        )
    return folder


def run_tests(source: Path, keyword: str, xml: Path, *plugin: str) -> Results:
    """Run the tests in a process of their own; what became of each."""
    files = [
        file.name
        for file in sorted((source / "tests").glob("*_test.py"))
        if re.search(r"def test\w*scan", file.read_text(), re.IGNORECASE)
    ]
    # from tests/, so that the JAX of the checkout does not hide the installed one
    subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-q", "-n", "2", "--tb=short"),
            *("-c", source / "pyproject.toml", f"--junitxml={xml}", "-k", keyword),
            *plugin,
            *files,
        ],
        cwd=source / "tests",
        env=os.environ
        | {
            "JAX_PLATFORMS": "cpu",
            "PYTHONPATH": str(ROOT / "scripts"),
            "XLA_FLAGS": "--xla_force_host_platform_device_count=8",
        },
    )
    results: Results = {}
    for case in ElementTree.parse(xml).iter("testcase"):
        kinds = {child.tag for child in case}
        failed = kinds & {"failure", "error"}
        outcome = "failed" if failed else "skipped" if "skipped" in kinds else "passed"
        results[f"{case.get('classname')}.{case.get('name')}"] = outcome
    return results


def compare(stock: Results, ours: Results, title: str) -> int:
    """Show both, name the regressions, and say whether there are any."""
    console = Console()
    table = Table("", "passed", "failed", "skipped", title=title)
    for name, results in {"stock JAX": stock, "onescan": ours}.items():
        counts = Counter(results.values())
        table.add_row(name, *(str(counts[k]) for k in ("passed", "failed", "skipped")))
    console.print(table)
    passing = [test for test, outcome in stock.items() if outcome == "passed"]
    lost = [test for test in passing if ours.get(test) != "passed"]
    known = {
        test: reason
        for test in lost
        for pattern, reason in KNOWN.items()
        if re.search(pattern, test)
    }
    for test in lost:
        what = f"known: {known[test]}" if test in known else "REGRESSION"
        console.print(f"{test}: {ours.get(test, 'not run')} ({what})", markup=False)
    regressions = len(lost) - len(known)
    console.print(
        f"{len(passing) - len(lost)} of {len(passing)} tests that pass with stock JAX "
        f"pass with onescan; {len(known)} known, {regressions} regressions."
    )
    return 1 if regressions or not passing else 0


if __name__ == "__main__":
    sys.exit(main())
