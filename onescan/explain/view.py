"""`Explanation`: a loop told to people, in a terminal, a notebook or on a page."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from io import StringIO
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from rich.console import Console, ConsoleOptions, RenderableType

from onescan.errors import ScanValueError
from onescan.explain.layout import cell, json_value, plain, show, value_text
from onescan.explain.measure import Times
from onescan.explain.page import in_notebook, page
from onescan.explain.run import Run
from onescan.explain.source import Function, marked_source
from onescan.explain.stages import Stages, stages_of
from onescan.explain.steps import Shapes, Step
from onescan.explain.terminal import printed
from onescan.explain.words import plural
from onescan.loop import Loop
from onescan.naming import type_name

WIDTH = 100  # of plain text
DOTS = "⋮"
NO_LOOP = "JAX makes no loop of this call, because jax.disable_jit is in force."


@dataclass(frozen=True, eq=False)
class Explanation:
    """What a loop does and how it runs.

    It prints as text, as Rich tables (``rich.print``) and as a page in a notebook;
    `save` writes that page, `to_dict` gives the same to programs, `stages` shows the
    compiler at work.  `steps` is empty when only shapes are known.
    """

    name: str  # of the body
    source: str | None  # where it is defined, "file.py:12"; None if not in Python
    reverse: bool
    shapes: Shapes
    steps: tuple[Step, ...]
    loop: Loop | None = None
    times: Times | None = None  # measured, where that was asked for
    about_values: str | None = None  # which they are, or why there are none
    left: str | None = None  # why XLA ran it in the program that it comes from

    @property
    def title(self) -> str:
        return f"{self.name} ({self.place}), {self.about}"

    @property
    def about(self) -> str:
        """How many steps, in which order, and for what."""
        order = ", last to first" if self.reverse else ""
        gradient = self.loop is not None and self.loop.differentiated
        return f"{self.count}{order}{', made by JAX for a gradient' * gradient}"

    @property
    def place(self) -> str:
        """Where the body is defined, without its folder."""
        return Path(self.source).name if self.source else "built in"

    @property
    def count(self) -> str:
        return plural(self.shapes.length, "step")

    @cached_property
    def run(self) -> Run:
        """How the loop will run: engines, costs, memory, advice."""
        return Run.of(self._loop(), self.times, self.left)

    @cached_property
    def functions(self) -> dict[str, list[Function]]:
        """By platform, the source of the body and of what it calls, marked."""
        return {
            p.platform: marked_source(self.source, p.placed) for p in self.run.platforms
        }

    def stages(self, platform: str | None = None) -> Stages:
        """The loop at each stage of the compiler, from the jaxpr to machine code.

        >>> import onescan
        >>> told = onescan.explain(lambda c, x: (c + x, x + 2), 0, [1, 2, 3])
        >>> print(*told.stages("cpu"), sep=", ")
        jaxpr, inline, plan, llvm, optimised llvm, assembly
        """
        return stages_of(self._loop(), platform)

    def _loop(self) -> Loop:
        if self.loop is None:
            raise ScanValueError(f"onescan.explain: {NO_LOOP}")
        return self.loop

    def save(self, path: str | Path) -> Path:
        """Write one self-contained page, to be opened in a browser."""
        path = Path(path)
        path.write_text(page(self), encoding="utf-8")
        return path

    @property
    def header(self) -> list[str]:
        index = ["index"] if self.reverse else []
        return ["step", *index, "carry in", "x", "carry out", "y"]

    def rows(self) -> Iterator[list[str]]:
        """The table of steps as text, a row of dots where steps are left out."""
        for row, gap in self.walk():
            if gap:
                yield [DOTS] * len(self.header)
            values = (row.carry_in, row.x, row.carry_out, row.y)
            index = [str(row.index)] if self.reverse else []
            yield [str(row.step), *index, *map(cell, values)]

    def walk(self) -> Iterator[tuple[Step, bool]]:
        """The steps that are shown, and whether some before them are not."""
        last = -1
        for row in self.steps:
            yield row, row.step != last + 1
            last = row.step

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
            "name": self.name,
            "source": self.source,
            "length": self.shapes.length,
            "reverse": self.reverse,
            "shapes": shapes,
            "steps": steps,
            "run": self.run.to_dict() if self.loop else None,
        }

    def __rich_console__(
        self, console: Console, options: ConsoleOptions
    ) -> Iterator[RenderableType]:
        yield from printed(self)

    def __str__(self) -> str:
        text = StringIO()
        Console(file=text, width=WIDTH, color_system=None).print(self)
        return "\n".join(line.rstrip() for line in text.getvalue().splitlines())

    __repr__ = __str__  # what a Python prompt shows

    def _repr_html_(self) -> str:
        return in_notebook(self)


def _stack(*leaves: Any) -> Any:
    if jnp.issubdtype(leaves[0].dtype, jax.dtypes.prng_key):
        return jnp.stack(leaves)
    return np.stack(leaves)
