"""The results as tables: one run, a line while it works, and two runs side by side."""

from __future__ import annotations

from collections.abc import Callable
from itertools import groupby
from math import exp, log
from statistics import mean
from typing import Any

from case import Case
from measure import CUDNN, NUMBA, ONESCAN, STOCK, C, Result
from rich import box
from rich.table import Table
from rich.text import Text

SLOWER = 0.95  # a ratio below this is a loss, above it may be noise
Saved = dict[str, Any]  # a result as it was written to JSON


def geometric_mean(values: list[float]) -> float:
    return exp(mean(map(log, values))) if values else float("nan")


def results_table(results: list[Result], gpu: bool = False) -> Table:
    """Everything that was measured, a section for each family of cases."""
    caption = _summary(results) + (GPU_NOTES if gpu else _next_to_c(results))
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1), caption=caption)
    others = GPU_COLUMNS if gpu else CPU_COLUMNS
    table.add_column("case", no_wrap=True)
    for title in ("steps", "stock", "best unroll", "onescan", "ratio", "to best"):
        table.add_column(title, justify="right", no_wrap=True)
    for title in (*others, "compile: stock", "onescan"):
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("engine", no_wrap=True)
    table.add_column("why", overflow="fold", max_width=40)
    for _, family in groupby(results, lambda r: r.case.name.split("/")[0]):
        for result in family:
            table.add_row(*_cells(result, [show(result) for show in others.values()]))
        table.add_section()
    return table


def _cells(result: Result, others: list[Text]) -> list[Text]:
    best = result.best_stock
    unroll = "" if best == STOCK else f" ({best.removeprefix(f'{STOCK} unroll ')})"
    compiles = (result.compile_times.get(name) for name in (STOCK, ONESCAN))
    return [
        Text(result.case.name, "bold"),
        Text(f"{result.case.steps:,}"),
        _time(result, STOCK),
        _time(result, best).append(unroll or " (1)", "dim"),
        _time(result, ONESCAN),
        _ratio(result.ratio(ONESCAN)),
        _ratio(result.ratio(ONESCAN, best)),
        *others,
        *(Text(f"{c.total:.2f} s" if c else "-") for c in compiles),
        Text(result.engine, "green" if result.engine == "native" else "yellow"),
        Text(result.why, "dim"),
    ]


def result_line(result: Result) -> Text:
    """One case as soon as it is done."""
    line = Text(f"{result.case.name:<24}", "bold")
    for name in (STOCK, ONESCAN, C, NUMBA, CUDNN):
        if name in result.timings:
            line.append(f"{name} ", "dim").append_text(_time(result, name)).append("  ")
    return line.append_text(_ratio(result.ratio(ONESCAN)))


def compare_table(before: list[Saved], after: list[Saved]) -> Table:
    """Two runs side by side: onescan's own time, and its ratio to stock."""
    old = {result["name"]: result for result in before}
    pairs = [(old[new["name"]], new) for new in after if new["name"] in old]
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1))
    table.add_column("case", no_wrap=True)
    for title in ("stock before", "after", "onescan before", "after", "gain"):
        table.add_column(title, justify="right", no_wrap=True)
    for title in ("ratio before", "after", "compile before", "after"):
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("engine", no_wrap=True)
    gains = []
    for a, b in pairs:
        times = [
            r["ns_per_step"].get(name) for name in (STOCK, ONESCAN) for r in (a, b)
        ]
        gain = times[2] / times[3] if times[2] and times[3] else None
        gains += [gain] if gain else []
        engines = dict.fromkeys((a["engine"], b["engine"]))
        table.add_row(
            Text(a["name"], "bold"),
            *(Text(_ns(time)) for time in times),
            _ratio(gain),
            *(_ratio(r["ratio_to_stock"].get(ONESCAN)) for r in (a, b)),
            *(Text(_compile_seconds(r)) for r in (a, b)),
            Text(" -> ".join(engines)),
        )
    table.caption = (
        f"Cases in both runs: {len(pairs)}; geometric mean of the gain "
        f"{geometric_mean(gains):.2f}x."
    )
    return table


def list_table(cases: list[Case]) -> Table:
    """What there is to run."""
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1))
    table.add_column("case", style="bold", no_wrap=True)
    for title in ("steps", "operations per step", "bytes per step"):
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("what", overflow="fold")
    for case in cases:
        doc = (case.build()[0].__doc__ or "").strip().splitlines()[0]
        counts = (f"{count:,.0f}" for count in (case.steps, case.ops, case.bytes))
        table.add_row(case.name, *counts, Text(doc))
    return table


def _summary(results: list[Result]) -> str:
    def ratios(to_best: bool) -> list[float]:
        found = (r.ratio(ONESCAN, r.best_stock if to_best else STOCK) for r in results)
        return [ratio for ratio in found if ratio]

    plain = ratios(to_best=False)
    compiles = [
        (r.compile_times[STOCK].total, r.compile_times[ONESCAN].total)
        for r in results
        if ONESCAN in r.compile_times
    ]
    longer = sum(ours > stock for stock, ours in compiles)
    totals = [sum(column) for column in zip(*compiles, strict=True)] or [0.0, 0.0]
    lines = [
        "Times of one step, medians; a ratio says how many times faster onescan is.",
        f"Geometric mean of {len(plain)} cases: {geometric_mean(plain):.2f}x, to the "
        f"best unroll {geometric_mean(ratios(to_best=True)):.2f}x; "
        f"{sum(ratio < SLOWER for ratio in plain)} below {SLOWER}x.",
        f"Compile time: stock {totals[0]:.1f} s, onescan {totals[1]:.1f} s, longer in "
        f"{longer} cases.",
    ]
    if any(t.noisy for r in results for t in r.timings.values()):
        lines.append("~ marks a time whose rounds disagreed even when repeated.")
    return "\n".join(lines)


def _next_to_c(results: list[Result]) -> str:
    ratios = [ratio for r in results if (ratio := r.ratio(ONESCAN, C))]
    close = sum(ratio >= 1 / 1.5 for ratio in ratios)
    return f"\n{close} of {len(ratios)} within 1.5x of C on one core."


GPU_NOTES = """
Products as by default: TF32 in XLA and cuDNN, float32 in onescan's own kernels; the
results were compared with float32 products everywhere.  Of limit: what the chip needs
at least for the bytes and operations of a step, as a share of onescan's time."""


def _time(result: Result, name: str) -> Text:
    text = Text(_ns(result.ns(name)))
    if name in result.timings and result.timings[name].noisy:
        text = Text("~", "yellow").append_text(text)
    if name in result.wrong:
        text.append(" differs", "bold red")
    return text


def _ns(ns: float | None) -> str:
    """Nanoseconds in the unit that reads best, three digits."""
    if ns is None:
        return "-"
    for unit, size in (("ms", 1e6), ("us", 1e3)):
        if ns >= size:
            return f"{ns / size:#.3g} {unit}".replace(". ", " ")
    return f"{ns:#.3g} ns".replace(". ", " ")


def _ratio(ratio: float | None) -> Text:
    if ratio is None:
        return Text("-")
    color = "red" if ratio < SLOWER else "green" if ratio > 1 / SLOWER else "default"
    return Text(f"{ratio:.2f}x" if ratio < 10 else f"{ratio:.0f}x", color)


def _share(result: Result) -> Text:
    return Text("-" if result.share is None else f"{100 * result.share:.2g}%")


#: what stands beside stock and onescan, by its title
CPU_COLUMNS: dict[str, Callable[[Result], Text]] = {
    "C": lambda r: _time(r, C),
    "Numba": lambda r: _time(r, NUMBA),
    "to C": lambda r: _ratio(r.ratio(ONESCAN, C)),
}
GPU_COLUMNS: dict[str, Callable[[Result], Text]] = {
    "cuDNN": lambda r: _time(r, CUDNN),
    "to cuDNN": lambda r: _ratio(r.ratio(ONESCAN, CUDNN)),
    "of limit": _share,
}


def _compile_seconds(saved: Saved) -> str:
    parts = saved["compile_seconds"].get(ONESCAN)
    return f"{sum(parts.values()):.2f} s" if parts else "-"
