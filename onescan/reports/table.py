"""How a report looks: in a terminal of 80 columns, in a narrow one, in a notebook.

A loop has a line of facts, and under it, over the whole width, what was done to it, or
why it was left and what to do about that.  Loops of JAX itself, such as the rounds of
its random numbers, are one line together.
"""

from __future__ import annotations

import html
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.padding import Padding
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from onescan.loop import LOOPS_OF_USERS, is_of_jax
from onescan.reports.advice import advice

if TYPE_CHECKING:
    from onescan.reports.rows import Row

#: what JAX calls the body, in its own loops or anywhere: what the user wrote
NAMES_IN_LOOPS = {"<lambda>": "jax.lax.map", "scanned_fun": "jax.lax.fori_loop"}
NAMES = {"eval_jaxpr": "checkpoint"}
TITLES = ("loop", "steps", "engine", "a step takes", "compile")
WIDTHS = (None, 9, 6, 19, 9)  # columns; the loop has the rest


def lines(rows: Sequence[Row]) -> Iterator[Table | Padding | Rule | Text]:
    """A table for 68 columns and more."""
    yield _line(*(Text(title, "bold") for title in TITLES))
    yield Rule(style="default")
    for row in listed(rows):
        name = Text(name_of(row), "bold").append(f"  {short(row.source)}", "not bold")
        yield _line(name, Text(steps(row)), engine(row), speed(row), Text(effort(row)))
        details = f"{', '.join(sizes(row))}. {sentence(why(row))}"
        yield Padding(Text(details, "dim"), (0, 0, 0, 4))
    if own := of_jax(rows):
        yield Text(_together(own))


def paragraphs(rows: Sequence[Row]) -> Iterator[Text]:
    """The same for a terminal too narrow for a table."""
    for row in listed(rows):
        known = [str(row.speed)] if row.speed else []
        facts = [f"{steps(row)} steps", *sizes(row), *known, effort(row)]
        yield Text.assemble(
            (name_of(row), "bold"),
            f" ({short(row.source)}): ",
            engine(row),
            f", {', '.join(facts)}. {sentence(why(row))}",
        )
    if own := of_jax(rows):
        yield Text(_together(own))


def page(rows: Sequence[Row], note: str) -> str:
    """The same as HTML."""
    titles = ("loop", "steps", "sizes", "engine", "a step takes", "how, or why not")
    body = "".join(
        _html_row(
            "td",
            f"{name_of(row)}\n{short(row.source)}",
            steps(row),
            "\n".join(sizes(row)),
            f"{row.engine}\n{effort(row)}",
            speed(row).plain,
            sentence(why(row)),
        )
        for row in listed(rows)
    )
    below = "".join(
        f"<p>{html.escape(_together(own))}</p>" for own in [of_jax(rows)] if own
    )
    note = f"<caption>{note}</caption>" if note else ""
    head = _html_row("th", *titles)
    return f"<table>{note}<thead>{head}</thead><tbody>{body}</tbody></table>{below}"


def of_jax(rows: Sequence[Row]) -> list[Row]:
    """The loops that JAX's own functions have, such as those of its random numbers."""
    return [row for row in rows if is_of_jax(row.source)]


def listed(rows: Sequence[Row]) -> list[Row]:
    """The loops that a user has written, or called by name."""
    return [row for row in rows if not is_of_jax(row.source)]


def _together(own: list[Row]) -> str:
    files = [Path(row.source.rpartition(":")[0]).stem for row in own]
    names = ", ".join(dict.fromkeys(files))
    native = sum(row.engine == "native" for row in own)
    loops = "loop" if len(own) == 1 else "loops"
    time = _seconds(sum(row.seconds for row in own))
    return f"{len(own)} {loops} of JAX itself ({names}): {native} native, {time}"


def _line(*cells: Text) -> Table:
    line = Table.grid(padding=(0, 1), expand=True)
    for width in WIDTHS:
        if width is None:
            line.add_column(ratio=1, overflow="fold")
        else:
            line.add_column(width=width, justify="right", overflow="fold")
    line.add_row(*cells)
    return line


def name_of(row: Row) -> str:
    names = NAMES | (NAMES_IN_LOOPS if LOOPS_OF_USERS in row.source else {})
    return names.get(row.name, row.name)


def steps(row: Row) -> str:
    return f"{row.length:,}" if isinstance(row.length, int) else row.length


def sizes(row: Row) -> list[str]:
    found = {"carry": row.carry_bytes, "xs": row.xs_bytes, "ys": row.ys_bytes}
    return [f"{name} {size(n)}" for name, n in found.items()]


def engine(row: Row) -> Text:
    return Text(row.engine, "green" if row.engine == "native" else "yellow")


def speed(row: Row) -> Text:
    """Both engines' time, the ratio, and how it is known; empty where it is not."""
    if row.speed is None:
        return Text("")
    text = Text(str(row.speed))
    if (ratio := row.speed.ratio) is not None:
        text.append(f"\n{ratio:.2g}x, {row.speed.how_known}")
    return text


def size(n: int | str) -> str:
    """Bytes for people: "512 B", "4.1 kB", "2.0 GB"."""
    if isinstance(n, str):
        return f"{n} B"
    if n < 1000:
        return f"{n} B"
    value = float(n)
    for unit in ("kB", "MB", "GB"):
        value /= 1000
        if value < 999.95:
            return f"{value:.1f} {unit}"
    return f"{value / 1000:,.1f} TB"


def effort(row: Row) -> str:
    """Compile time, and how many lowerings it is for."""
    time = _seconds(row.seconds)
    return time if row.count == 1 else f"{time}\n{row.count} times"


def _seconds(seconds: float) -> str:
    return f"{seconds * 1e3:.1f} ms" if seconds < 1 else f"{seconds:.1f} s"


def why(row: Row) -> str:
    """What was done to a loop, or why it was left and what to do."""
    done = "; ".join(row.notes)
    if row.reason is None:
        return done or "the whole loop is one kernel"
    text = row.reason + (f" (after: {done})" if done else "")
    what = advice(row.reason)
    return f"{text}. {what}" if what else text


def sentence(text: str) -> str:
    return text if text.endswith((".", ":")) else f"{text}."


def short(source: str) -> str:
    """A source line without what says nothing: where packages or the project lie."""
    inside_package = source.rpartition("site-packages" + os.sep)[2]
    if inside_package != source:
        package, *folders, file = inside_package.split(os.sep)
        middle = folders if len(folders) < 2 else ["..."]
        return os.sep.join([package, *middle, file])
    path = Path(source)
    if path.is_relative_to(Path.cwd()):
        return os.path.relpath(path)
    return str(Path(*path.parts[-2:]))


def _html_row(tag: str, *cells: str) -> str:
    texts = (html.escape(cell).replace("\n", "<br>") for cell in cells)
    return f"<tr>{''.join(f'<{tag}>{text}</{tag}>' for text in texts)}</tr>"
