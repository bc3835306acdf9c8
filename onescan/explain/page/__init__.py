"""An explanation as one self-contained page.

The parts are plain HTML, made here, and readable without a script; `loop.js` adds
the tabs, the slider and the diagram that moves.  Nothing is loaded from anywhere.
"""

from __future__ import annotations

from html import escape
from importlib.resources import files
from string import Template
from typing import TYPE_CHECKING

from onescan.explain.page.run import run_part
from onescan.explain.page.shapes import shapes_part
from onescan.explain.page.source import source_part
from onescan.explain.page.walk import walk_part

if TYPE_CHECKING:
    from onescan.explain.view import Explanation

HEIGHT = 720  # of the page in a notebook, in pixels
NO_LOOP = "<p>JAX makes no loop of this call, so there is nothing to run.</p>"


def page(told: Explanation) -> str:
    """The whole page."""
    has_loop = told.loop is not None
    return Template(_file("loop.html")).substitute(
        title=escape(told.title),
        name=escape(told.name),
        place=escape(told.place),
        about=escape(told.about),
        badges=_badges(told) if has_loop else "",
        style=_file("loop.css"),
        script=_file("loop.js"),
        walk=walk_part(told),
        shapes=shapes_part(told),
        run=run_part(told.run) if has_loop else NO_LOOP,
        source=source_part(told) if has_loop else NO_LOOP,
    )


def in_notebook(told: Explanation) -> str:
    """The page in a frame of its own, so that a notebook's styles do not meet ours."""
    return (
        f'<iframe title="{escape(told.title)}" srcdoc="{escape(page(told))}" '
        f'style="width:100%;height:{HEIGHT}px;border:0"></iframe>'
    )


def _badges(told: Explanation) -> str:
    return " ".join(
        f'<span class="badge {p.engine}">{escape(p.name)}: {_engine(p.engine)}</span>'
        for p in told.run.platforms
    )


def _engine(name: str) -> str:
    return "one kernel" if name == "native" else "XLA"


def _file(name: str) -> str:
    return (files(__name__) / name).read_text(encoding="utf-8")
