"""`Explanation`: a loop told to people, in a terminal, a notebook or plain text."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from html import escape
from io import StringIO
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from rich import box
from rich.console import Console, ConsoleOptions, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from onescan.explain.layout import json_value, plain, show, value_text
from onescan.explain.steps import Shapes, Step
from onescan.naming import FunctionName, type_name

WIDTH = 100  # of plain text
CELL = 36  # of a value in the table of steps, before it breaks into lines
DOTS = "⋮"
RULE = "carry out is the next step's carry in; the y of all steps, stacked, are ys"


@dataclass(frozen=True)
class Explanation:
    """What a loop does: its steps and the shapes that go through it.

    It prints as text, as a Rich table (``rich.print``) and as HTML in a notebook;
    `to_dict` gives the same to programs.  `steps` is empty when only shapes are known.
    """

    f: FunctionName
    reverse: bool
    shapes: Shapes
    steps: tuple[Step, ...]

    @property
    def title(self) -> str:
        length = self.shapes.length
        count = f"{length:,} step" + "s" * (length != 1)
        order = ", last to first" if self.reverse else ""
        source = Path(self.source).name if self.source else "built in"
        return f"{self.f.name} ({source}), {count}{order}"

    @property
    def source(self) -> str | None:
        """Where the body is defined, "file.py:12"; None if not in Python."""
        code = self.f.code
        return code and f"{code.co_filename}:{code.co_firstlineno}"

    @property
    def header(self) -> list[str]:
        index = ["index"] if self.reverse else []
        return ["step", *index, "carry in", "x", "carry out", "y"]

    def rows(self) -> Iterator[list[str]]:
        """The table of steps as text, a row of dots where steps are left out."""
        for position, row in enumerate(self.steps):
            if row.step != position and self.steps[position - 1].step + 1 != row.step:
                yield [DOTS] * len(self.header)
            values = (row.carry_in, row.x, row.carry_out, row.y)
            index = [str(row.index)] if self.reverse else []
            cells = [show(value, value_text, CELL) for value in values]
            yield [str(row.step), *index, *cells]

    def listings(self) -> Iterator[tuple[str, str]]:
        """The shapes in the user's own containers, and what the loop returns."""
        yield "carry", show(self.shapes.carry, type_name)
        yield "xs, as stacked", show(self.shapes.xs, type_name)
        yield "x, in the body", show(self.shapes.x, type_name)
        yield "y, in the body", show(self.shapes.y, type_name)
        yield "ys, as stacked", show(self.shapes.ys, type_name)
        if self.steps:
            yield "returns", show(self.returns(), value_text)

    def returns(self) -> tuple[Any, Any]:
        """The last carry and ys: values where every step is shown, else shapes."""
        carry, ys = self.steps[-1].carry_out, self.shapes.ys
        if len(self.steps) == self.shapes.length:
            in_order = sorted(self.steps, key=lambda row: row.index)
            ys = jax.tree.map(_stack, *(row.y for row in in_order))
        return carry, ys

    def to_dict(self) -> dict[str, Any]:
        """Everything as numbers, strings, lists and dicts."""
        shapes = {
            name: plain(getattr(self.shapes, name), type_name)
            for name in ("carry", "xs", "x", "y", "ys")
        }
        steps = [
            {"step": row.step, "index": row.index}
            | {
                name: plain(getattr(row, name), json_value)
                for name in ("carry_in", "x", "carry_out", "y")
            }
            for row in self.steps
        ]
        return {
            "name": self.f.name,
            "source": self.source,
            "length": self.shapes.length,
            "reverse": self.reverse,
            "shapes": shapes,
            "steps": steps,
        }

    def __rich_console__(
        self, console: Console, options: ConsoleOptions
    ) -> Iterator[RenderableType]:
        yield Text(self.title, "bold")
        if self.steps:
            yield self._table()
            yield Text(RULE, "italic")
        yield Padding(self._grid(), (1, 0, 0, 0))

    def _table(self) -> Table:
        table = Table(box=box.SIMPLE_HEAD)
        for name in self.header:
            values = {
                "carry in": self.shapes.carry,
                "x": self.shapes.x,
                "carry out": self.shapes.carry,
                "y": self.shapes.y,
            }
            number = name not in values or jax.tree_util.all_leaves([values[name]])
            style = (
                "dim" if name in ("step", "index") else "bold" if "y" in name else ""
            )
            table.add_column(
                name,
                justify="right" if number else "left",
                style=style,
                overflow="fold",
            )
        for row in self.rows():
            table.add_row(*map(Text, row))
        return table

    def _grid(self) -> Table:
        grid = Table.grid(padding=(0, 2))
        for label, listing in self.listings():
            grid.add_row(Text(label, "dim"), Text(listing))
        return grid

    def __str__(self) -> str:
        text = StringIO()
        Console(file=text, width=WIDTH, color_system=None).print(self)
        return "\n".join(line.rstrip() for line in text.getvalue().splitlines())

    def _repr_html_(self) -> str:
        def row(tag: str, cells: list[str]) -> str:
            style = "text-align:left;vertical-align:top;white-space:pre"
            inside = (f'<{tag} style="{style}">{escape(c)}</{tag}>' for c in cells)
            return f"<tr>{''.join(inside)}</tr>"

        steps = [row("th", self.header)] + [row("td", cells) for cells in self.rows()]
        shapes = [row("td", list(pair)) for pair in self.listings()]
        parts = [f"<p><b>{escape(self.title)}</b></p>"]
        if self.steps:
            parts.append(f"<table>{''.join(steps)}</table><p>{escape(RULE)}</p>")
        return "".join([*parts, f"<table>{''.join(shapes)}</table>"])


def _stack(*leaves: Any) -> Any:
    if jnp.issubdtype(leaves[0].dtype, jax.dtypes.prng_key):
        return jnp.stack(leaves)
    return np.stack(leaves)
