"""`Run`: what a training run came to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from onescan.train.metrics import Layout
from onescan.train.plot import plot_curves

Stopped = Literal["end", "until", "interrupted"]


@dataclass(frozen=True)
class Run:
    """The result of `fit`.

    Attributes:
        state: the state after the last step.
        metrics: what the steps returned second, in its containers, as NumPy arrays
            with one entry for each step from the first one on, also when the run
            was resumed.
        steps: how many steps were taken, in all.
        stopped: why it ended: "end" of steps, epochs or batches; "until", because that
            said so; or "interrupted" by Ctrl-C.
    """

    state: Any
    metrics: Any
    steps: int
    stopped: Stopped

    def plot(self, path: Any = None, *, title: str = "", smooth: int = 0) -> Any:
        """The learning curves: a panel for each metric that is a number per step.

        Saves them to `path` where one is given, and returns matplotlib's figure.
        The bold line is a running mean over `smooth` steps, by default a fiftieth of
        the run.
        """
        curves = curves_of(self.metrics)
        return plot_curves(curves, path, title=title, smooth=smooth)

    def __repr__(self) -> str:
        last = ", ".join(
            f"{name} {values[-1]:.4g}"
            for name, values in curves_of(self.metrics).items()
            if len(values)
        )
        told = f"steps={self.steps}, stopped={self.stopped!r}"
        return f"Run({told}, last: {last})" if last else f"Run({told})"


def curves_of(metrics: Any) -> dict[str, Any]:
    """The metrics that have one real number for each step, by name."""
    layout = Layout.of(metrics)
    return {
        name: leaf
        for name, leaf in layout.by_name(metrics).items()
        if leaf.ndim == 1 and leaf.dtype.kind != "c"
    }
