"""The source of a body, line by line, each line with where its work runs.

Every operation knows the lines that led to it, from the innermost call outwards.
The body's own function comes first; the user's other functions that it calls follow
in the order in which it calls them, and a line that calls one is marked with what
runs in there.
"""

from __future__ import annotations

import ast
import functools
import linecache
import os
import sysconfig
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onescan import compat
from onescan.explain.places import PLACES, Place, Placed

#: functions that are shown; a program may call hundreds
MOST = 12
#: lines of one function that are shown
LONGEST = 200


@dataclass(frozen=True)
class Line:
    """A line of source, and the share of a step's operations in each place."""

    number: int
    text: str
    shares: tuple[tuple[Place, float], ...] = ()

    @property
    def places(self) -> tuple[Place, ...]:
        return tuple(place for place, _ in self.shares)

    @property
    def share(self) -> float:
        """Of all operations of a step, those of this line."""
        return sum(share for _, share in self.shares)


@dataclass(frozen=True)
class Function:
    """A function of the user's, or the part of it that fits."""

    name: str
    file: str
    lines: tuple[Line, ...]


@dataclass(frozen=True)
class Span:
    """Where a function stands in its file."""

    name: str
    file: str
    first: int
    last: int

    def holds(self, position: compat.Position) -> bool:
        return position.file == self.file and self.first <= position.line <= self.last


def marked_source(source: str | None, placed: Sequence[Placed]) -> list[Function]:
    """The body defined at `source` ("file.py:12") and what it calls, marked."""
    total = sum(p.operations for p in placed) or 1.0
    body = _span_at(source)
    marks: dict[Span, dict[int, dict[Place, float]]] = {}
    if body is not None:
        marks[body] = {}
    for p in placed:
        for span, line in _lines_of(compat.positions_of(p.eqn), body):
            there = marks.setdefault(span, {}).setdefault(line, defaultdict(float))
            there[p.place] += p.operations / total
    shown = list(marks.items())[:MOST]
    return [_function(span, lines) for span, lines in shown]


def _lines_of(
    positions: Sequence[compat.Position], body: Span | None
) -> Iterator[tuple[Span, int]]:
    """The functions, each once, through which the body came to an operation."""
    inside = list(positions)
    if body is not None:
        depth = [i for i, p in enumerate(inside) if body.holds(p)]
        inside = inside[: depth[-1] + 1] if depth else inside[:1]
    seen: set[Span] = set()
    for position in reversed(inside):
        span = body if body and body.holds(position) else _span_of(position)
        if span is not None and span not in seen and (span == body or _is_users(span)):
            seen.add(span)
            yield span, position.line


def _function(span: Span, marks: dict[int, dict[Place, float]]) -> Function:
    last = min(span.last, span.first + LONGEST - 1)
    texts = [linecache.getline(span.file, n) for n in range(span.first, last + 1)]
    lines = []
    order = list(PLACES)
    for number, text in enumerate(_dedented(texts), span.first):
        found = marks.get(number, {})
        told: dict[Place, float] = {
            p: s for p, s in found.items() if p != "nowhere" or len(found) == 1
        }
        shares = sorted(told.items(), key=lambda m: order.index(m[0]))
        lines.append(Line(number, text, tuple(shares)))
    return Function(span.name, span.file, tuple(lines))


def _dedented(lines: list[str]) -> list[str]:
    lines = [line.rstrip().expandtabs(4) for line in lines]
    spaces = [len(line) - len(line.lstrip()) for line in lines if line]
    return [line[min(spaces, default=0) :] for line in lines]


def _span_at(source: str | None) -> Span | None:
    """The function that starts at "file.py:12"."""
    file, _, line = (source or "").rpartition(":")
    if not file or not line.isdigit():
        return None
    starting = [s for s in _functions(file) if s.first == int(line)]
    return starting[0] if starting else _line_alone(file, int(line))


def _line_alone(file: str, line: int) -> Span | None:
    """A body that is no function statement, such as a lambda."""
    holding = [s for s in _statements(file) if s.first <= line <= s.last]
    return min(holding, key=lambda s: s.last - s.first, default=None)


def _span_of(position: compat.Position) -> Span | None:
    """The function that a position lies in."""
    name = position.function.rpartition(".")[2]
    spans = [s for s in _functions(position.file) if s.holds(position)]
    named = [s for s in spans if s.name == name] or spans
    return min(named, key=lambda s: s.last - s.first, default=None)


@functools.lru_cache(maxsize=64)
def _functions(file: str) -> tuple[Span, ...]:
    nodes = (n for n in ast.walk(_parsed(file)) if isinstance(n, FUNCTIONS))
    return tuple(_span(file, node.name, node) for node in nodes)


@functools.lru_cache(maxsize=64)
def _statements(file: str) -> tuple[Span, ...]:
    nodes = (n for n in ast.walk(_parsed(file)) if isinstance(n, ast.stmt))
    return tuple(_span(file, "lambda", node) for node in nodes)


FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def _span(file: str, name: str, node: Any) -> Span:
    decorators = getattr(node, "decorator_list", [])
    first = min([node.lineno, *(d.lineno for d in decorators)])
    return Span(name, file, first, node.end_lineno or node.lineno)


def _parsed(file: str) -> ast.Module:
    """A file as a tree; an empty one for what is no readable Python."""
    try:
        return ast.parse("".join(linecache.getlines(file)))
    except (SyntaxError, ValueError):
        return ast.Module([], [])


def _is_users(span: Span) -> bool:
    """Whether a function is the user's own and no library's."""
    libraries = {sysconfig.get_path(name) for name in ("purelib", "platlib", "stdlib")}
    return not any(span.file.startswith(path + os.sep) for path in libraries)


def short(file: str) -> str:
    """A file as people call it."""
    return Path(file).name
