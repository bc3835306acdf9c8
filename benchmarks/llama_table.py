"""The table of `benchmarks/llama.py`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax

HEAD = """# Llama: the layers as one loop, written out, and in PyTorch

Made by `python benchmarks/llama.py --output benchmarks/llama.md`, with random weights.
The bytes limit is the time to read all weights and the cache once, at the rate at which
the same run read a large array. "Temporary" is memory beside weights and cache. "Again"
is a second compilation, of a program that decodes one token more: XLA then knows the
fastest kernels of the products and need not try them. "Kernels" are those of
`examples/llama/products.py` and `attending.py`, by which the example decodes on
NVIDIA GPUs.

"""


@dataclass
class Row:
    """One program: how long it took to compile, and a call of it."""

    way: str
    compiling: float | None = None
    again: float | None = None  # compiling, once the products are tuned
    seconds: float | None = None
    temporary: int | None = None  # bytes


def table(bench: Any) -> str:
    options, config = bench.options, bench.config
    device = jax.devices()[0].device_kind
    lines = [
        f"{options.model}, {config.layers} layers, bfloat16, {device}, "
        f"JAX {jax.__version__}; decode: {options.tokens} tokens after "
        f"{options.context}. Read rate measured: {bench.rate / 1e12:.2f} TB/s.",
        "",
        "| | | compile | again | time | tokens/s | of the bytes limit | temporary |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for title, rows in bench.rows.items():
        for row in rows:
            lines.append(_line(bench, title, row))
    for title, rows in bench.rows.items():
        lines += _verdict(title, {row.way: row for row in rows})
    return "\n".join(lines)


def _line(bench: Any, title: str, row: Row) -> str:
    seconds, options, config = row.seconds or float("nan"), bench.options, bench.config
    if title.startswith("decode"):
        batch = int(title.split()[-1])
        per_step = seconds / options.tokens
        per_second = batch / per_step
        mean_context = options.context + options.tokens / 2
        width = config.kv_heads * config.head
        cached = 2 * 2 * config.layers * width * mean_context * batch
        share = f"{(bench.weights + cached) / bench.rate / per_step:.0%}"
        told = f"{1e3 * per_step:.2f} ms"
    else:
        per_second, share = options.prompt / seconds, ""
        told = f"{1e3 * seconds:.1f} ms"
    compiling, again = (
        "" if taken is None else f"{taken:.1f} s"
        for taken in (row.compiling, row.again)
    )
    memory = "" if row.temporary is None else f"{row.temporary / 1e6:.0f} MB"
    cells = [title, row.way, compiling, again, told, f"{per_second:.0f}", share, memory]
    return f"| {' | '.join(cells)} |"


def _verdict(title: str, rows: dict[str, Row]) -> list[str]:
    unrolled, scanned = rows.get("unrolled"), rows.get("scanned")
    if not unrolled or not scanned:
        return []
    # unrolled has our attention, so a scanned one with another is no match for it
    alike = [
        row for way, row in rows.items() if "scanned" in way and "cuDNN" not in way
    ]
    best = min(alike, key=lambda row: row.seconds)
    again = ""
    if unrolled.again and best.again:
        again = f" ({unrolled.again / best.again:.1f} times again)"
    return [
        "",
        f"{title}: {best.way} takes {best.seconds / unrolled.seconds:.3f} of the time "
        f"of unrolled; unrolled takes {unrolled.compiling / best.compiling:.1f} times "
        f"as long to compile{again}.",
    ]
