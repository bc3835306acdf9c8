"""The direction of imports: data flows one way, and no file needs one that needs it."""

from __future__ import annotations

import ast
from graphlib import TopologicalSorter
from pathlib import Path

import onescan

ROOT = Path(onescan.__file__).parent
FILES = {
    ".".join(("onescan", *path.relative_to(ROOT).with_suffix("").parts)).removesuffix(
        ".__init__"
    ): path
    for path in ROOT.rglob("*.py")
}
#: what a room may know of the others that compile: those in front of it
ORDER = ["loop", "primitives", "plan", "passes", "emit", "tune", "targets", "lowering"]


def imported(path: Path) -> set[str]:
    """The modules of ours that a file imports when it is imported."""
    found = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.ImportFrom) and node.module:
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= {name if name in FILES else node.module for name in names}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return found & set(FILES) - {"onescan"}


GRAPH = {name: imported(path) for name, path in FILES.items()}


def test_no_two_files_need_each_other() -> None:
    graph = {name: needs - {name} for name, needs in GRAPH.items()}
    order = list(TopologicalSorter(graph).static_order())
    assert len(order) >= len(FILES) - 5  # scripts that nobody imports


def test_stages_know_only_those_before_them() -> None:
    place = {room: i for i, room in enumerate(ORDER)}
    wrong = [
        (name, needed)
        for name, needs in GRAPH.items()
        for needed in needs
        if (room := name.split(".")[1:2]) and room[0] in place
        if (other := needed.split(".")[1]) in place
        if place[other] > place[room[0]]
    ]
    assert wrong == []


def test_targets_do_not_know_each_other() -> None:
    """But for the interpreter, which runs the plans of the CPU."""
    folder = lambda name: name.split(".")[2] if name.count(".") > 2 else ""
    wrong = [
        (name, needed)
        for name, needs in GRAPH.items()
        for needed in needs
        if name.startswith("onescan.targets.") and needed.startswith("onescan.targets.")
        if {folder(name), folder(needed)} >= {"cpu", "nvidia"}
    ]
    assert wrong == []


def test_only_one_folder_imports_private_jax() -> None:
    private = [name for name, p in FILES.items() if "jax._src" in p.read_text()]
    assert private
    assert all(name.startswith("onescan.compat") for name in private)
