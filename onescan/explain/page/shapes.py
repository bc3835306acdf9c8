"""The shapes: as stacked, and as the body sees them, side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jax

from onescan.explain.layout import show
from onescan.explain.page.elements import Html, joined, tag
from onescan.explain.words import plural, size
from onescan.naming import type_name

if TYPE_CHECKING:
    from onescan.explain.view import Explanation

WIDTH = 44  # columns of a listing
INTRO = (
    "Everything in xs has one entry for each step along its first axis, {time} here. "
    "The body sees one entry at a time, without that axis; what it returns as y is "
    "stacked the same way. The carry keeps its shape."
)


def shapes_part(told: Explanation) -> Html:
    shapes = told.shapes
    before, after = INTRO.split("{time}")
    time = tag("b", str(shapes.length), class_="time")
    return joined(
        tag("p", before, time, after),
        tag(
            "div",
            _listing("xs, as stacked", shapes.xs, "x", stacked=True),
            _listing("x, in the body", shapes.x, "x"),
            _listing("carry, in and out of every step", shapes.carry, "carry"),
            _listing("y, from the body", shapes.y, "y"),
            _listing("ys, as stacked", shapes.ys, "y", stacked=True),
            class_="listings",
        ),
    )


def _listing(title: str, tree: Any, kind: str, stacked: bool = False) -> Html:
    text = show(tree, _marked if stacked else type_name, WIDTH)
    return tag(
        "section",
        tag("h3", title),
        tag("pre", _timed(text) if stacked else text, tabindex=0),
        tag("p", _total(tree), class_="quiet"),
        class_=f"listing {kind}",
    )


def _marked(leaf: Any) -> str:
    """A type whose first dimension is found again when the text is finished."""
    first, *rest = map(str, leaf.shape)
    return f"{leaf.dtype.name}[\0{first}\0{''.join(',' + n for n in rest)}]"


def _timed(text: str) -> Html:
    pieces = text.split("\0")
    return joined(
        *(tag("b", p, class_="time") if i % 2 else p for i, p in enumerate(pieces))
    )


def _total(tree: Any) -> str:
    leaves = jax.tree.leaves(tree)
    if not leaves:
        return "nothing"
    count = sum(leaf.size for leaf in leaves)
    held = sum(leaf.size * getattr(leaf.dtype, "itemsize", 4) for leaf in leaves)
    arrays = plural(len(leaves), "array")
    return f"{arrays}, {plural(count, 'number')}, {size(held)}"
