"""Learning curves: every scalar metric of a run against its steps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

COLOURS = ("#2563eb", "#d97706", "#059669", "#db2777", "#7c3aed", "#475569")
PANEL = (4.6, 3.2)  # inches
WIDE = 20  # values that spread over more than this factor have a logarithmic axis


def plot_curves(
    curves: dict[str, np.ndarray], path: Any = None, *, title: str = "", smooth: int = 0
) -> Any:
    """One panel for each curve: its values, and their running mean over `smooth` steps.

    Saved to `path` where one is given. Returns matplotlib's figure.
    """
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        raise ImportError(
            "onescan.train: plots need matplotlib. Install it with "
            "`pip install onescan[plot]`."
        ) from None
    columns = min(len(curves), 3) or 1
    rows = -(-len(curves) // columns) or 1
    figure = Figure((PANEL[0] * columns, PANEL[1] * rows), layout="constrained")
    FigureCanvasAgg(figure)
    axes = np.ravel(figure.subplots(rows, columns, squeeze=False))
    for index, (name, values) in enumerate(curves.items()):
        _curve(axes[index], name, values, COLOURS[index % len(COLOURS)], smooth)
    for unused in axes[len(curves) :]:
        unused.set_visible(False)
    if title:
        figure.suptitle(title)
    if path is not None:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, dpi=150)
    return figure


def running_mean(values: np.ndarray, width: int) -> np.ndarray:
    """The mean of the `width` values around each; of fewer at the ends.

    >>> print(running_mean(np.array([0.0, 3.0, 6.0, 9.0]), 3))
    [1.5 3.  6.  7.5]
    """
    ones = np.ones(width)
    count = np.convolve(np.ones_like(values), ones, "full")
    total = np.convolve(values, ones, "full")
    cut = slice((width - 1) // 2, (width - 1) // 2 + len(values))
    return total[cut] / count[cut]


def _curve(axis: Any, name: str, values: Any, colour: str, smooth: int) -> None:
    values = np.asarray(values, float)
    width = smooth or max(1, len(values) // 50)
    steps = np.arange(len(values))
    axis.plot(steps, values, color=colour, alpha=0.25 if width > 1 else 1.0, lw=0.8)
    if 1 < width < len(values):
        axis.plot(steps, running_mean(values, width), color=colour, lw=1.8)
    finite = values[np.isfinite(values)]
    if finite.size and finite.min() > 0:
        low, high = np.percentile(finite, [5, 95])  # the ends of a run are extreme
        if high > WIDE * low:
            axis.set_yscale("log")
    axis.set_title(name, fontsize=10)
    axis.set_xlabel("step")
    axis.grid(alpha=0.25)
    axis.spines[["top", "right"]].set_visible(False)
    axis.margins(x=0.01)
