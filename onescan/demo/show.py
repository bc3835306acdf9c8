"""What the demo shows at its end: a table and a plot."""

from __future__ import annotations

from pathlib import Path

import jax
from rich import box
from rich.table import Table
from rich.text import Text

from onescan.demo.measure import Result

FASTER, SLOWER = 1.1, 0.9  # ratios that are more than noise
OURS, STOCK, INK, LINE = "#d1495b", "#8d99ae", "#2b2d42", "#e6e8ee"


def table(results: list[Result]) -> Table:
    """One row per loop: times, ratio, engine and why."""
    shown = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    shown.add_column("loop", no_wrap=True)
    for name in ("stock JAX", "onescan", "ratio"):
        shown.add_column(name, justify="right", no_wrap=True)
    shown.add_column("engine", no_wrap=True)
    shown.add_column("why", overflow="fold")
    for result in results:
        why = Text(result.why)
        if not result.agrees:
            why = Text(f"results differ: {_difference(result)}. ", "bold red") + why
        shown.add_row(
            result.title,
            seconds(result.stock),
            seconds(result.ours),
            Text(ratio(result), _style(result.ratio)),
            result.engine,
            why,
        )
    return shown


def summary(results: list[Result]) -> Text:
    """Whether results agree, in one sentence."""
    wrong = [result.title for result in results if not result.agrees]
    if wrong:
        return Text(f"Results differ: {', '.join(wrong)}.", "bold red")
    worst = max(results, key=lambda result: result.difference)
    how = f"within {_difference(worst)}" if worst.difference else "bit for bit"
    device = jax.devices()[0].device_kind
    return Text(
        f"Results agree with stock JAX {how} (JAX {jax.__version__}, {device})."
    )


def _difference(result: Result) -> str:
    s = "" if result.difference == 1 else "s"
    return f"{result.difference:.3g} rounding{s} of the largest value"


def seconds(value: float) -> str:
    """A time with three digits and its unit."""
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if value >= size:
            return f"{value / size:.3g} {unit}"
    return f"{value / 1e-9:.3g} ns"


def ratio(result: Result) -> str:
    """How many times faster than stock JAX."""
    digits = 2 if result.ratio < 10 else 1 if result.ratio < 100 else 0
    return f"{result.ratio:.{digits}f}x"


def _style(value: float) -> str:
    return "bold green" if value > FASTER else "red" if value < SLOWER else ""


def save_plot(results: list[Result], out: Path) -> None:
    """The time of one step under stock JAX and under onescan, loop by loop."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import FuncFormatter, NullLocator

    figure = Figure(figsize=(9, 1.5 + 0.5 * len(results)), layout="constrained")
    axes = figure.add_subplot()
    rows = range(len(results))
    stock = [result.stock / result.steps for result in results]
    ours = [result.ours / result.steps for result in results]
    native = [result.engine != "XLA" for result in results]

    axes.hlines(rows, ours, stock, color=LINE, linewidth=5, zorder=1)
    axes.scatter(stock, rows, s=110, color=STOCK, zorder=2, label="stock JAX")
    for label, engine in (("onescan, native", True), ("onescan, left to XLA", False)):
        here = [row for row in rows if native[row] == engine]
        fill = OURS if engine else "white"
        times = [ours[row] for row in here]
        style = {"s": 60, "color": fill, "edgecolor": OURS, "linewidth": 1.6}
        axes.scatter(times, here, zorder=3, label=label if here else None, **style)

    right = axes.get_yaxis_transform()  # x counts the width of the plot
    bold = {"va": "center", "ha": "right", "weight": "bold"}
    axes.text(1.12, -0.75, "ratio", bold | {"color": INK}, transform=right)
    for row, result in zip(rows, results, strict=True):
        style = bold | {"color": OURS if native[row] else STOCK}
        axes.text(1.12, row, ratio(result), style, transform=right)

    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: seconds(value)))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xlabel("time of one step", color=INK)
    axes.set_yticks(rows, [result.title for result in results])
    axes.set_ylim(len(results) - 0.5, -0.5)
    axes.margins(x=0.08)
    axes.grid(axis="x", color=LINE, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(length=0, colors=INK)
    axes.spines[:].set_visible(False)
    figure.legend(loc="outside upper left", ncols=3, frameon=False, labelcolor=INK)
    figure.savefig(out, dpi=160)
