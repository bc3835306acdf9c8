"""The source: the body line by line, with where each line runs in the margin."""

from __future__ import annotations

import io
import keyword
import tokenize
from collections import defaultdict
from typing import TYPE_CHECKING

from onescan.explain.page.elements import Html, joined, tag
from onescan.explain.places import PLACES, Place
from onescan.explain.source import Function, Line, short
from onescan.explain.words import percent

if TYPE_CHECKING:
    from onescan.explain.view import Explanation

INTRO = (
    "The body and the functions that it calls. The margin says where the work of a "
    "line is done, and how much of a step's operations it is."
)
NO_SOURCE = "The body was not written in a Python file, so there is no source to show."


def source_part(told: Explanation) -> Html:
    shown = {p.name: told.functions[p.platform] for p in told.run.platforms}
    first = told.run.default.name
    if not any(shown.values()):
        return tag("p", NO_SOURCE)
    names = [first] if len(set(map(_key, shown.values()))) == 1 else list(shown)
    panels = [
        tag(
            "div",
            _legend(shown[name]),
            *map(_function, shown[name]),
            class_="on-platform",
            data_platform=name,
        )
        for name in names
    ]
    choice = [_choice(names, first)] if len(names) > 1 else []
    return joined(tag("p", INTRO), *choice, *panels)


def _key(functions: list[Function]) -> tuple[Function, ...]:
    return tuple(functions)


def _choice(names: list[str], first: str) -> Html:
    options = [
        tag("option", f"on a {n}", value=n, selected="" if n == first else None)
        for n in names
    ]
    return tag(
        "p", tag("label", "Where it runs ", tag("select", *options, id="platform"))
    )


def _legend(functions: list[Function]) -> Html:
    used = {place for f in functions for line in f.lines for place in line.places}
    items = [
        tag("li", _mark(place), f" {told.name}: {told.meaning}")
        for place, told in PLACES.items()
        if place in used
    ]
    return tag("ul", *items, class_="legend long")


def _function(function: Function) -> Html:
    pieces = _highlighted([line.text for line in function.lines])
    rows = [_row(line, html) for line, html in zip(function.lines, pieces, strict=True)]
    first = function.lines[0].number if function.lines else 0
    title = f"{short(function.file)}:{first}"
    return joined(
        tag("h3", tag("code", function.name), " ", tag("small", title)),
        tag(
            "div",
            tag("table", tag("tbody", *rows), class_="source"),
            class_="scroll",
            tabindex=0,
            role="region",
            aria_label=f"Source of {function.name}",
        ),
    )


def _row(line: Line, code: Html) -> Html:
    main = max(line.shares, key=lambda s: s[1], default=None)
    share = percent(line.share) if line.share >= 0.01 else ""
    return tag(
        "tr",
        tag("td", *map(_mark, line.places), class_="margin"),
        tag("td", share, class_="share"),
        tag("td", str(line.number), class_="line"),
        tag("td", code, class_="code"),
        class_=f"main-{main[0]}" if main else None,
    )


def _mark(place: Place) -> Html:
    told = PLACES[place]
    return tag(
        "span", told.letter, class_=f"mark place-{place}", title=told.name, role="img",
        aria_label=told.name,
    )  # fmt: skip


def _highlighted(lines: list[str]) -> list[Html]:
    """Keywords, strings, comments and numbers in their colours."""
    spans = defaultdict(list)
    try:
        text = "\n".join(lines) + "\n"
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            kind = _kind(token)
            for row in range(token.start[0], token.end[0] + 1) if kind else ():
                start = token.start[1] if row == token.start[0] else 0
                end = token.end[1] if row == token.end[0] else len(lines[row - 1])
                spans[row].append((start, end, kind))
    except (tokenize.TokenError, SyntaxError, IndexError):
        pass  # a piece of a statement: what was read so far has its colours
    return [_coloured(line, spans[row]) for row, line in enumerate(lines, 1)]


def _kind(token: tokenize.TokenInfo) -> str | None:
    if token.type == tokenize.NAME and keyword.iskeyword(token.string):
        return "keyword"
    name = tokenize.tok_name[token.type]
    if name == "STRING" or name.startswith("FSTRING"):
        return "string"
    return {"COMMENT": "comment", "NUMBER": "literal"}.get(name)


def _coloured(line: str, spans: list[tuple[int, int, str]]) -> Html:
    parts: list[str] = []
    at = 0
    for start, end, kind in spans:
        parts += [line[at:start], tag("span", line[start:end], class_=kind)]
        at = end
    return joined(*parts, line[at:])
