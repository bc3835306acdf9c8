"""The results as a picture: how many times faster than stock, for every case."""

from __future__ import annotations

from pathlib import Path

from measure import CUDNN, NUMBA, ONESCAN, STOCK, C, Result
from table import geometric_mean

COLORS = {
    ONESCAN: "#d1495b",
    C: "#30638e",
    NUMBA: "#edae49",
    CUDNN: "#30638e",
    "best unroll": "#9a9a9a",
}
MARKERS = {ONESCAN: "o", C: "D", NUMBA: "s", CUDNN: "D", "best unroll": "|"}


def save_plot(results: list[Result], path: Path, title: str) -> None:
    """A row for each case; to the right is faster."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    figure, axes = pyplot.subplots(
        figsize=(9, 1.6 + 0.24 * len(results)), layout="constrained"
    )
    rows = range(len(results))
    for name, ratios in _ratios(results).items():
        known = [(ratio, row) for ratio, row in zip(ratios, rows, strict=True) if ratio]
        if not known:
            continue
        if name == ONESCAN:
            for ratio, row in known:
                axes.plot([1, ratio], [row, row], color=COLORS[name], lw=2, alpha=0.4)
        axes.scatter(
            *zip(*known, strict=True),
            s=90 if name == "best unroll" else 34,
            color=COLORS[name],
            marker=MARKERS[name],
            label=name,
            zorder=4 if name == ONESCAN else 3,
        )
    axes.axvline(1, color="black", lw=1)
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}x"))
    axes.set_yticks(rows, [result.case.name for result in results], fontsize=8)
    axes.set_ylim(len(results) - 0.4, -0.6)
    families = [result.case.name.split("/")[0] for result in results]
    for row in rows[1:]:
        if families[row] != families[row - 1]:
            axes.axhline(row - 0.5, color="#cccccc", lw=0.6)
    axes.grid(axis="x", color="#e5e5e5")
    axes.set_axisbelow(True)
    axes.set_xlabel("times faster than stock jax.lax.scan (log scale)")
    axes.set_title(title, fontsize=10)
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside lower center", ncols=4, frameon=False)
    figure.savefig(path, dpi=150)
    pyplot.close(figure)


def plot_title(results: list[Result], machine: str) -> str:
    ratios = [ratio for r in results if (ratio := r.ratio(ONESCAN))]
    return f"onescan: geometric mean {geometric_mean(ratios):.2f}x\n{machine}"


def _ratios(results: list[Result]) -> dict[str, list[float | None]]:
    best = [r.ratio(r.best_stock) if r.best_stock != STOCK else None for r in results]
    engines = C, NUMBA, CUDNN, ONESCAN
    others = {name: [r.ratio(name) for r in results] for name in engines}
    return {"best unroll": best, **others}
