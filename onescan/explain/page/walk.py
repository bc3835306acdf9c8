"""The walk: the diagram of the loop and the table of its steps.

The table holds the values; the script shows one row of it at a time in the diagram.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jax

from onescan.explain.layout import by_path, show, value_text
from onescan.explain.page.elements import Html, joined, quoted, tag
from onescan.naming import type_name

if TYPE_CHECKING:
    from onescan.explain.steps import Step
    from onescan.explain.view import Explanation

SHORT = 12  # columns that never break
WIDE = 28  # columns up to which a tree stands on one line
MEANING = (
    "Each step calls {call}. What it returns first is the carry of the next step; what "
    "it returns second is kept, and all of them, stacked, are ys."
)
NO_VALUES = (
    "Only the shapes of this loop are known, so its types stand where values would. "
    "Give onescan.explain arrays to walk through it with numbers."
)


def walk_part(told: Explanation) -> Html:
    before, after = MEANING.split("{call}")
    call = tag("code", f"carry, y = {told.name}(carry, x)")
    intro = tag("p", before, call, after)
    if not told.steps:
        why = quoted(told.about_values or NO_VALUES)
        return joined(intro, tag("p", why, class_="quiet"), _types(told))
    which = told.about_values
    shown = [tag("p", quoted(which), class_="quiet")] if which else []
    return joined(intro, *shown, _table(told), _returned(told))


def _table(told: Explanation) -> Html:
    header = [tag("th", name, scope="col") for name in told.header]
    rows = []
    for row, gap in told.walk():
        if gap:
            rows.append(tag("tr", *([tag("td", "⋮")] * len(told.header)), class_="gap"))
        rows.append(_row(row, told.reverse))
    return _framed(
        tag("thead", tag("tr", *header)), tag("tbody", *rows), told.shapes.length
    )


def _types(told: Explanation) -> Html:
    """One row of types, for the diagram alone."""
    shapes = told.shapes
    cells = {"carry-in": shapes.carry, "x": shapes.x, "carry-out": shapes.carry}
    cells["y"] = shapes.y
    parts = [_cell(name, value, type_name) for name, value in cells.items()]
    head = [tag("th", name, scope="col") for name in ("carry in", "x", "carry out")]
    return _framed(
        tag("thead", tag("tr", *head, tag("th", "y", scope="col"))),
        tag("tbody", tag("tr", *parts)),
        shapes.length,
    )


def _framed(head: Html, body: Html, length: int) -> Html:
    table = tag("table", head, body, id="steps", data_length=length)
    return tag(
        "div", table, class_="scroll", tabindex=0, role="region", aria_label="Steps"
    )


def _row(row: Step, reverse: bool) -> Html:
    number = tag("button", str(row.step), type="button", class_="go")
    index = [tag("td", str(row.index), class_="index")] if reverse else []
    cells = [
        _cell("carry-in", row.carry_in, value_text),
        _cell("x", row.x, value_text),
        _cell("carry-out", row.carry_out, value_text),
        _cell("y", row.y, value_text),
    ]
    return tag(
        "tr",
        tag("th", number, scope="row"),
        *index,
        *cells,
        data_step=row.step,
        data_index=row.index,
    )


def _cell(kind: str, value: Any, leaf: Any) -> Html:
    """A value: on one line, or leaf by leaf with its path."""
    flat = show(value, leaf, width=10_000)
    leaves = jax.tree.leaves(value)
    if len(flat) <= WIDE or len(leaves) < 2:
        name = "short" if len(flat) <= SHORT else None
        return tag("td", tag("span", flat, class_=name), class_=kind)
    paths = [path for path, _ in by_path(value)]
    lines = [
        tag("span", tag("i", path), " ", leaf(found), class_="leaf")
        for path, found in zip(paths, leaves, strict=True)
    ]
    return tag("td", tag("div", *lines, class_="leaves"), class_=f"{kind} tree")


def _returned(told: Explanation) -> Html:
    text = show(told.returns(), value_text)
    return joined(tag("h3", "What the loop returns"), tag("pre", text, tabindex=0))
