"""Make the pictures of docs/understanding-scan.md from its own code.

Runs the page's blocks, saves the explanations it makes, opens them in a headless
Chromium and takes the pictures.
"""

from __future__ import annotations

import contextlib
import io
import linecache
import re
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "helpers")]

from browser import Browser, missing  # noqa: E402

import onescan  # noqa: E402

DOCS = ROOT / "docs"
#: name, the call that is explained, the tab, and the size of the window
PICTURES = (
    ("three-numbers", "add, 0, [1, 2, 3]", "walk", (960, 960)),
    ("decoder-shapes", "layer, array(2048, 4096), blocks", "shapes", (960, 900)),
    (
        "recurrent-source",
        "recurrent, jnp.zeros((8, 64)), jnp.ones((200, 8, 64))",
        "source",
        (960, 540),
    ),
)


def names_of_the_page() -> dict[str, object]:
    """What the blocks of the page define."""
    page = (DOCS / "understanding-scan.md").read_text(encoding="utf-8")
    names: dict[str, object] = {}
    code = "\n".join(re.findall(r"^```python\n(.*?)^```", page, re.M | re.S))
    file = "model.py"
    linecache.cache[file] = len(code), None, code.splitlines(True), file
    with contextlib.redirect_stdout(io.StringIO()):
        exec(compile(code, file, "exec"), names)
    return names


def main() -> None:
    if reason := missing():
        sys.exit(reason)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        with contextlib.chdir(folder):
            names = names_of_the_page()
        browser = Browser(Path(folder) / "profile")
        try:
            for name, call, tab, size in PICTURES:
                told = eval(f"onescan.explain({call})", {**names, "onescan": onescan})
                browser.size(*size)
                browser.open(told.save(Path(folder) / f"{name}.html"))
                browser.click(f"#tab-{tab}")
                if tab == "walk":
                    browser.click("#on")
                (DOCS / "images").mkdir(exist_ok=True)
                browser.screenshot(DOCS / "images" / f"{name}.png")
        finally:
            browser.close()


if __name__ == "__main__":
    main()
