"""`onescan demo`: ordinary JAX loops under stock JAX and under onescan."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from onescan.demo.loops import cases
from onescan.demo.measure import measure
from onescan.demo.show import save_plot, summary, table


def demo(quick: bool, out: Path) -> int:
    """Run every loop, show the table, save the plot; 1 when a result is wrong."""
    console = Console()
    turns = 2 if quick else 60
    results = []
    bar = (BarColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*bar, console=console, transient=True) as progress:
        task = progress.add_task("", total=len(cases()) * (turns + 1))
        for case in cases():
            progress.update(task, description=case.title)
            steps = min(case.steps, 16) if quick else case.steps
            results.append(
                measure(case, steps, turns, tick=lambda: progress.advance(task))
            )

    console.print(table(results))
    console.print(summary(results))
    try:
        save_plot(results, out)
        console.print(f"Plot: {out}")
    except ModuleNotFoundError:
        console.print("No plot: matplotlib is missing (pip install onescan\\[plot]).")
    return 0 if all(result.agrees for result in results) else 1
