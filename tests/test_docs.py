"""Every block of code in the documentation runs, and prints what stands below it."""

import io
import linecache
import re
from contextlib import redirect_stdout
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[1] / "docs"
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
