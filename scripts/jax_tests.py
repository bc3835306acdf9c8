"""Run JAX's own scan tests with onescan installed, and compare with stock JAX.

Everything with "scan" in its name, in the files of JAX that have such tests, is run
twice, once stock and once with `onescan.install()`; a test that passes stock must
pass with onescan, or be in the table `KNOWN`, which says why it cannot.

The tests come, in this order, from the folder given with --source, from the source
distribution that pip has of the installed version (of late they hold no tests), or
from JAX's repository at the tag of that version.  They and the stock results are
kept under build/jax-tests.  Exit code 1 on a regression, 2 where there are no tests.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tarfile
import xml.etree.ElementTree as ElementTree
from collections import Counter
from pathlib import Path

import jax
from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build" / "jax-tests"
REPOSITORY = "https://github.com/jax-ml/jax"

NAMES = "looks for `while/body` and the body's names in the program: one call has none"
#: tests that pass with stock JAX and cannot with onescan, and why
KNOWN = {
    "LaxControlFlowTest.test_scan_unroll": (
        "wants a longer program for a larger `unroll`: one call does not grow"
    ),
    "NameStackControlFlowTest.test_scan_body_should_not_have_name_stack": NAMES,
    "NameStackControlFlowTest.test_vmap_of_scan_should_transform_stack": NAMES,
    "NameStackControlFlowTest.test_jvp_of_scan_should_transform_stack": NAMES,
    "NameStackControlFlowTest.test_grad_of_scan_should_transform_stack": NAMES,
    "NameStackControlFlowTest.test_vmap_of_grad_of_scan_should_transform_stack": NAMES,
    "LaxControlFlowTest.testScanLinearize_jit_scan=True_jit_f=True_impl=unroll0": (
        "allows a relative error of 1e-4 from XLA's float32, which is 3e-4 off the "
        "float64 result where ours is 5e-5 off; passes in float64"
    ),
}

Results = dict[str, str]  # test -> "passed", "failed" or "skipped"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--source", type=Path, help="a folder that holds JAX's tests/")
    parser.add_argument("--repository", default=REPOSITORY, help="JAX's, or a copy")
    parser.add_argument("--ref", default=f"jax-v{jax.__version__}", help="its tag")
    parser.add_argument("-k", default="scan", help="which tests, as for pytest")
    parser.add_argument("-n", default="2", help="how many at a time")
    options = parser.parse_args()

    source = tests_of(options)
    if source is None:
        print(no_tests(options), file=sys.stderr)
        return 2
    folder = BUILD / f"jax-{jax.__version__}"
    folder.mkdir(parents=True, exist_ok=True)
    name = options.source.resolve() if options.source else options.ref
    tag = re.sub(r"\W+", "-", f"{name} {options.k}")
    kept = folder / f"stock-{tag}.json"
    if kept.exists():
        stock: Results = json.loads(kept.read_text())
    else:
        stock = run_tests(source, options, folder / f"stock-{tag}.xml")
        kept.write_text(json.dumps(stock, indent=1))
    ours = run_tests(source, options, folder / f"onescan-{tag}.xml", "-p", "jax_plugin")
    return compare(stock, ours, f"tests of {name} on JAX {jax.__version__}")


def tests_of(options: argparse.Namespace) -> Path | None:
    """A folder with JAX's tests in it, if there is one to be had."""
    if options.source:
        found = options.source.resolve()
        return found if (found / "tests").is_dir() else None
    for get in (distribution, checkout):
        found = get(options)
        if (found / "tests").is_dir():
            return found
    return None


def no_tests(options: argparse.Namespace) -> str:
    """What was tried, and what to pass instead."""
    if options.source:
        return f"--source {options.source} holds no folder tests/"
    return (
        f"no tests of JAX {jax.__version__}: pip's source distribution has none and "
        f"{options.repository} gave no {options.ref}; pass --source FOLDER or "
        '--repository URL --ref TAG, as in make test-jax ARGS="--source ../jax"'
    )


def distribution(options: argparse.Namespace) -> Path:
    """The source distribution of the installed JAX, downloaded once."""
    folder = BUILD / "distribution"
    unpacked = folder / f"jax-{jax.__version__}"
    if options.repository != REPOSITORY or unpacked.exists():
        return unpacked
    what = ["--no-binary", ":all:", "--no-deps", f"jax=={jax.__version__}"]
    pip = [sys.executable, "-m", "pip", "download", "-q", "-d", folder, *what]
    if subprocess.run(pip, capture_output=True).returncode == 0:
        with tarfile.open(folder / f"{unpacked.name}.tar.gz") as archive:
            archive.extractall(folder, filter="data")
    return unpacked


def checkout(options: argparse.Namespace) -> Path:
    """The tests of JAX's repository at one tag, fetched once."""
    folder = BUILD / f"source-{options.ref}"
    if not (folder / "tests").exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        only = ["--depth", "1", "--filter=blob:none", "--no-checkout", "--quiet"]
        clone = ["git", "clone", *only, "--branch", options.ref, options.repository]
        parts = ["tests", "conftest.py", "pyproject.toml"]
        if subprocess.run([*clone, folder], capture_output=True).returncode == 0:
            subprocess.run(["git", "checkout", "HEAD", "--", *parts], cwd=folder)
    return folder


def run_tests(
    source: Path, options: argparse.Namespace, xml: Path, *plugin: str
) -> Results:
    """Run the tests in a process of their own; what became of each."""
    files = [
        file.name
        for file in sorted((source / "tests").glob("*_test.py"))
        if re.search(r"def test\w*scan", file.read_text(), re.IGNORECASE)
    ]
    # from tests/, so that the JAX of the checkout does not hide the installed one
    subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-q", "-n", options.n, "--tb=short"),
            *("-c", source / "pyproject.toml", f"--junitxml={xml}", "-k", options.k),
            *plugin,
            *files,
        ],
        cwd=source / "tests",
        env=os.environ
        | {
            "JAX_PLATFORMS": "cpu",
            "PYTHONPATH": os.pathsep.join(map(str, (ROOT / "scripts", ROOT))),
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
    """Show both, name what differs, and say whether there are regressions."""
    console = Console()
    table = Table("", "passed", "failed", "skipped", title=title)
    for name, results in {"stock JAX": stock, "onescan": ours}.items():
        counts = Counter(results.values())
        table.add_row(name, *(str(counts[k]) for k in ("passed", "failed", "skipped")))
    console.print(table)
    passing = [test for test, outcome in stock.items() if outcome == "passed"]
    lost = [test for test in passing if ours.get(test) != "passed"]
    reasons = {test: why for test in passing if (why := reason(test))}
    known = [test for test in lost if test in reasons]
    regressions = [test for test in lost if test not in reasons]
    for test in known:
        console.print(f"known to fail: {test}: {reasons[test]}", markup=False)
    for test in sorted(set(reasons) - set(known)):
        console.print(f"passes, though known to fail: {test}", markup=False)
    for test in regressions:
        console.print(f"REGRESSION: {test}: {ours.get(test, 'not run')}", markup=False)
    console.print(
        f"{len(passing) - len(lost)} of {len(passing)} tests that pass with stock JAX "
        f"pass with onescan; {len(known)} known not to, {len(regressions)} regressions."
    )
    return 1 if regressions or not passing else 0


def reason(test: str) -> str | None:
    """Why a test cannot pass, if it is one of those."""
    return KNOWN.get(".".join(test.split(".")[-2:]))


if __name__ == "__main__":
    sys.exit(main())
