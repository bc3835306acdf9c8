"""Every block of code in the documentation runs, and prints what stands below it."""

import io
import linecache
import re
from contextlib import redirect_stdout
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
BLOCK = re.compile(r"^```(python|text)\n(.*?)^```", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("name", ["understanding-scan"])
def test_blocks_run_and_print_what_they_say(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    blocks = BLOCK.findall((DOCS / f"{name}.md").read_text(encoding="utf-8"))
    assert len(blocks) > 10
    namespace, printed = {"__name__": name}, ""
    for i, (kind, text) in enumerate(blocks):
        if kind == "text":
            assert _has(printed.splitlines(), text.splitlines()), f"{text}\n{printed}"
            continue
        file = f"<{name} block {i}>"
        linecache.cache[file] = len(text), None, text.splitlines(True), file
        out = io.StringIO()
        with redirect_stdout(out):
            exec(compile(text, file, "exec"), namespace)
        printed = out.getvalue()
    assert (tmp_path / "loop.html").exists()


def _has(lines, wanted):
    """Whether these lines stand there one after the other, or are the ends of some."""
    starts = range(len(lines) - len(wanted) + 1)
    return any(
        all(lines[i + k].rstrip().endswith(w) for k, w in enumerate(wanted))
        for i in starts
    )


def test_pictures_are_there():
    text = (DOCS / "understanding-scan.md").read_text(encoding="utf-8")
    pictures = re.findall(r"!\[[^\]]+\]\(([^)]+)\)", text)
    assert len(pictures) == 3
    assert all((DOCS / picture).is_file() for picture in pictures)


def test_the_loop_that_is_followed():
    blocks = BLOCK.findall((DOCS / "following-a-loop.md").read_text(encoding="utf-8"))
    (_, code), (_, jaxpr), (_, plan), *_ = blocks
    file, namespace = "<following>", {"__name__": "following"}
    linecache.cache[file] = len(code), None, code.splitlines(True), file
    with redirect_stdout(io.StringIO()):
        exec(compile(code, file, "exec"), namespace)
    stages = namespace["stages"]
    assert _has(stages["jaxpr"].splitlines(), jaxpr.splitlines())
    assert plan.splitlines()[1] in stages["plan"]
    assert {"llvm", "assembly"} <= set(stages)


@pytest.mark.parametrize("page", sorted(DOCS.rglob("*.md")), ids=lambda p: p.stem)
def test_links_lead_somewhere(page):
    targets = re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8"))
    files = [t for t in targets if not t.startswith(("http", "mailto"))]
    assert all((page.parent / target).exists() for target in files), files
