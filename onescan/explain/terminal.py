"""An explanation in a terminal: the four parts one below the other."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import jax
from rich import box
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from onescan.explain.measure import Times
from onescan.explain.memory import Choice, Memory
from onescan.explain.places import PLACES, Place
from onescan.explain.run import OnPlatform, Run
from onescan.explain.source import Function, short
from onescan.explain.words import duration, percent, plural, ratio, size, times

if TYPE_CHECKING:
    from onescan.explain.view import Explanation

RULE = "carry out is the next step's carry in; the y of all steps, stacked, are ys"
COLOURS: dict[Place, str] = {
    "once": "cyan",
    "ahead": "blue",
    "before": "blue",
    "kernel": "green",
    "xla": "yellow",
    "after": "magenta",
    "nowhere": "dim",
}


def printed(told: Explanation) -> Iterator[RenderableType]:
    """What a terminal shows."""
    yield Text(told.title, "bold")
    if told.steps:
        yield _steps(told)
        yield Text(RULE, "italic")
    if told.about_values:
        yield Text(told.about_values, "italic")
    yield _below(_pairs(told.listings()))
    if told.loop is None:
        return
    yield _below(Text("How it runs", "bold"))
    if told.run.in_its_program:
        yield Text(told.run.in_its_program)
    yield _run(told.run)
    default = told.run.default
    if functions := told.functions[default.platform]:
        yield _below(Text(f"Where each line runs, on a {default.name}", "bold"))
        yield from map(_source, functions)
        yield _below(_legend(functions))


def _below(part: RenderableType) -> Padding:
    return Padding(part, (1, 0, 0, 0))


def _steps(told: Explanation) -> Table:
    table = Table(box=box.SIMPLE_HEAD)
    shapes = told.shapes
    values = {"carry in": shapes.carry, "x": shapes.x}
    values |= {"carry out": shapes.carry, "y": shapes.y}
    for name in told.header:
        alone = name not in values or jax.tree_util.all_leaves([values[name]])
        table.add_column(
            name,
            justify="right" if alone else "left",
            style="dim" if name in ("step", "index") else "bold" if "y" in name else "",
            overflow="fold",
        )
    for row in told.rows():
        table.add_row(*map(Text, row))
    return table


def _pairs(pairs: Iterator[tuple[str, str]]) -> Table:
    grid = Table.grid(padding=(0, 2))
    for label, text in pairs:
        grid.add_row(Text(label, "dim"), Text(text))
    return grid


def _run(run: Run) -> RenderableType:
    rows: list[tuple[str, RenderableType]] = [
        (p.name, _platform(p)) for p in run.platforms
    ]
    rows.append(("one step", Text(step_text(run))))
    if run.times:
        rows.append(("measured", Text(times_text(run.times))))
    rows.append(("memory", Text("\n".join(memory_lines(run.memory)))))
    if notes := run.default.notes:
        rows.append(("done to it", Text("\n".join(map(str, notes)))))
    if run.advice:
        rows.append(("faster by", Text("\n".join(run.advice))))
    grid = Table.grid(padding=(0, 2))
    for label, what in rows:
        grid.add_row(Text(label, "dim"), what)
    return grid


def _platform(p: OnPlatform) -> Text:
    colour = "green" if p.engine == "native" else "yellow"
    text = Text.assemble((p.engine, colour), f" ({p.device}): {p.verdict}")
    if p.layout:
        text.append(f"\n{p.layout[:1].upper()}{p.layout[1:]}.")
    if p.speed:
        text.append(f"\n{p.speed}")
    return text


def step_text(run: Run) -> str:
    """What a step costs, in a sentence."""
    step = run.step
    products = ""
    if step.products:
        part = percent(step.products / step.operations)
        products = f" ({part} in matrix products)"
    return (
        f"{plural(step.operations, 'operation')}{products}, {size(step.touched)} read "
        f"and written, {ratio(step.intensity)} operations a byte"
    )


def times_text(times: Times) -> str:
    """How long a step takes each way, on this machine."""
    ways = (f"{name} {duration(seconds)}" for name, seconds in times.by_way)
    return f"a step takes {', '.join(ways)}: {times.gain:.2g} times as fast"


def memory_lines(memory: Memory) -> list[str]:
    """Forwards, and for a gradient by choice of checkpoints."""
    lines = [f"forward {size(memory.forward)}, arguments and results"]
    if memory.why_no_gradient:
        return [*lines, f"no gradient: {memory.why_no_gradient}"]
    for choice in memory.choices:
        name = "gradient" if choice.checkpoint is None else f'"{choice.checkpoint}"'
        lines.append(
            f"{name} {size(choice.kept)} more: {choice.meaning}{again(choice)}"
        )
    return lines


def again(choice: Choice) -> str:
    """How much a choice computes twice."""
    if not choice.again:
        return ""
    return f" (each step about {times(1 + choice.again)} forwards)"


def _source(function: Function) -> RenderableType:
    grid = Table.grid(padding=(0, 1))
    grid.add_column(justify="left", no_wrap=True)
    grid.add_column(justify="right", style="dim", no_wrap=True)
    grid.add_column(justify="right", no_wrap=True)
    grid.add_column(overflow="fold")
    for line in function.lines:
        marks = Text()
        for place in line.places:
            marks.append(PLACES[place].letter, COLOURS[place])
        share = percent(line.share) if line.share >= 0.01 else ""
        grid.add_row(marks, share, Text(str(line.number), "dim"), Text(line.text))
    return Group(Text(f"{function.name} ({short(function.file)})", "italic"), grid)


def _legend(functions: list[Function]) -> Text:
    lines = [line for function in functions for line in function.lines]
    used = {place for line in lines for place in line.places}
    text = Text()
    for place, told in PLACES.items():
        if place in used:
            text.append(told.letter, COLOURS[place])
            text.append(f"  {told.name}: {told.meaning}\n", "dim")
    text.append("%  of the operations of a step", "dim")
    return text
