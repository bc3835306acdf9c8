"""Llama on a GPU: the layers as one loop, written out, and in PyTorch.

Random weights in bfloat16 at the shapes of a model (7B unless told otherwise): the time
to compile, to read a prompt, and to decode, against the time in which the chip can
read the bytes.  Ends with a Markdown table for `benchmarks/llama.md`.

    python benchmarks/llama.py                       all of it, about five minutes
    python benchmarks/llama.py --quick               8 of 32 layers, two minutes
    python benchmarks/llama.py --model tiny --quick  on any machine, to try the script
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

os.environ.setdefault("XLA_PYTHON_CLIENT_MEM_FRACTION", "0.7")  # PyTorch is here too
sys.path.insert(0, str(Path(__file__).parents[1]))

import jax
import jax.numpy as jnp

import onescan
from examples.llama.cache import State, empty_state
from examples.llama.config import CONFIGS, Config
from examples.llama.generate import Decoding, decode, prefill
from examples.llama.params import Llama, random_params
from onescan.layers import unstack


class Way(NamedTuple):
    """A way to run the layers."""

    unroll: int = 1
    attention: str | None = None  # of prefill
    flags: dict[str, bool] = {}  # noqa: RUF012


SLICES = {"xla_gpu_enable_dynamic_slice_fusion": True}
CUBLAS = SLICES | {"xla_gpu_enable_triton_gemm": False}
SCANNED = {
    "scanned": Way(),
    "scanned, slices": Way(flags=SLICES),  # products read a layer's weights in place
    "scanned, cuBLAS": Way(flags=CUBLAS),  # and none of them is a kernel of Triton
}
DECODE = SCANNED | {"scanned by twos": Way(2)}
PREFILL = SCANNED | {"scanned, cuDNN": Way(attention="cudnn")}
HEAD = """# Llama: the layers as one loop, written out, and in PyTorch

Made by `python benchmarks/llama.py --output benchmarks/llama.md`, with random weights.
The bytes limit is the time to read all weights and the cache once, at the rate at which
the same run read a large array. "Temporary" is memory beside weights and cache.

"""
BEGUN = time.perf_counter()


def say(text: str) -> None:
    print(f"[{time.perf_counter() - BEGUN:5.0f} s] {text}", flush=True)


@dataclass
class Row:
    """One program: how long it took to compile, and a call of it."""

    way: str
    compiling: float | None = None
    seconds: float | None = None
    temporary: int | None = None  # bytes


@dataclass
class Bench:
    options: argparse.Namespace
    config: Config
    rows: dict[str, list[Row]] = field(default_factory=dict)  # by what is measured

    @property
    def late(self) -> bool:
        return time.perf_counter() - BEGUN > self.options.budget

    def measure(
        self,
        title: str,
        way: str,
        jitted: Any,
        arguments: Callable[[], tuple[Any, ...]],
        given: dict[str, Any],
        flags: dict[str, bool] | None = None,
    ) -> Any:
        """Compile, time and note one program; gives its last result."""
        if self.late:
            say(f"{title}, {way}: left out, the time is up")
            return None
        row = Row(way)
        begun = time.perf_counter()
        try:
            lowered = jitted.lower(*arguments(), **given)
            compiled = lowered.compile(compiler_options=flags or None)
        except Exception as error:  # a flag that this XLA does not know
            say(f"{title}, {way}: not compiled, {str(error).splitlines()[0]}")
            return None
        row.compiling = time.perf_counter() - begun
        row.temporary = compiled.memory_analysis().temp_size_in_bytes
        say(f"{title}, {way}: compiled in {row.compiling:.1f} s")
        if self.options.hlo:
            name = f"{title} {way}".replace(" ", "_").replace(",", "")
            (Path(self.options.hlo) / f"{name}.txt").write_text(compiled.as_text())
        row.seconds, result = timed(compiled, arguments, self.options.repeats)
        say(f"{title}, {way}: {1e3 * row.seconds:.2f} ms")
        self.rows.setdefault(title, []).append(row)
        return result


def timed(
    call: Callable[..., Any], arguments: Callable[[], tuple[Any, ...]], repeats: int
) -> tuple[float, Any]:
    """The median time of a call, whose arguments are made before it begins."""
    taken, result = [], None
    for _ in range(1 + repeats):
        del result
        given = arguments()
        begun = time.perf_counter()
        result = jax.block_until_ready(call(*given))
        taken.append(time.perf_counter() - begun)
        del given
    return median(taken[1:]), result


def main() -> None:
    options = parse()
    config = CONFIGS[options.model]
    layers = options.layers or (8 if options.quick else config.layers)
    config = replace(config, layers=min(layers, config.layers), eos=())
    bench = Bench(options, config)
    device = jax.devices()[0]
    say(f"JAX {jax.__version__}, {device.device_kind}, {config.layers} layers")
    warm_up()
    params = random_params(0, config, jnp.bfloat16)
    jax.block_until_ready(params)
    say(f"{weight_bytes(params) / 1e9:.1f} GB of weights are read for each token")
    listed = params._replace(decoder=unstack(params.decoder))
    jax.block_until_ready(listed)
    say("the weights once more, as a list of layers")

    work = [(decode_work(bench, batch), DECODE) for batch in options.batches]
    work.append((prefill_work(bench), PREFILL))
    with onescan.engine(options.engine):
        for measure, ways in work:
            for name, way in ways.items():
                measure(params, name, way)
        torch_rows(bench, params)
        for measure, _ in work:
            measure(listed, "unrolled", Way())
    for row in onescan.report().rows:
        say(f"loop {row.name}: {row.engine}, {row.reason or 'taken'}")
    text = table(bench, params, read_rate(device))
    print("\n" + text)
    if options.output:
        Path(options.output).write_text(HEAD + text + "\n")


def warm_up() -> None:
    """What only the first program of a process pays: tracing, libraries, the chip."""
    config = replace(CONFIGS["tiny"], eos=())
    params = random_params(0, config, jnp.bfloat16)
    decode.lower(
        params, begin(config, 1, 8, 4, False), steps=2, config=config
    ).compile()
    say("warm")


Measure = Callable[[Llama, str, Way], Any]


def decode_work(bench: Bench, batch: int) -> Measure:
    options, config = bench.options, bench.config
    slots = options.context + options.tokens

    def measure(params: Llama, name: str, way: Way) -> Any:
        is_list = isinstance(params.decoder, list)

        def arguments() -> tuple[Llama, Decoding]:
            start = begin(config, batch, slots, options.context, is_list)
            return params, jax.block_until_ready(start)

        given = {"steps": options.tokens, "config": config, "unroll": way.unroll}
        title = f"decode, batch {batch}"
        return bench.measure(title, name, decode, arguments, given, way.flags)

    return measure


def prefill_work(bench: Bench) -> Measure:
    options, config = bench.options, bench.config
    size = options.prompt

    def measure(params: Llama, name: str, way: Way) -> Any:
        is_list = isinstance(params.decoder, list)
        tokens = jax.random.randint(jax.random.key(1), (1, size), 0, config.vocab)
        mask = jnp.ones((1, size), bool)

        def arguments() -> tuple[Any, ...]:
            state = begin(config, 1, size, 0, is_list).state
            state = jax.block_until_ready(state)
            return params, tokens, mask, state, jax.random.key(0)

        title = f"prefill, 1 x {size}"
        given = {"config": replace(config, attention=way.attention)}
        return bench.measure(title, name, prefill, arguments, given, way.flags)

    return measure


def begin(config: Config, batch: int, slots: int, context: int, is_list: bool) -> Any:
    """As if a prompt of so many tokens had been read: made-up keys and values."""
    state = empty_state(config, batch, slots, jnp.bfloat16)
    kv = jax.tree.map(lambda leaf: jnp.full_like(leaf, 0.01), state.kv)
    state = State(
        unstack(kv) if is_list else kv,
        jnp.broadcast_to(jnp.arange(slots) < context, (batch, slots)),
        jnp.int32(context),
        jnp.full(batch, context, jnp.int32),
    )
    token = jnp.arange(batch, dtype=jnp.int32)
    return Decoding(state, token, jnp.zeros(batch, bool), jax.random.key(0))


def torch_rows(bench: Bench, params: Llama) -> None:
    """The same in PyTorch; Hugging Face transformers where it is installed."""
    options = bench.options
    sizes = options.batches, options.context, options.tokens, options.prompt
    try:
        import llama_torch

        measured = llama_torch.measure(
            params, bench.config, *sizes, options.repeats, say
        )
        for way, title, seconds in measured:
            bench.rows.setdefault(title, []).append(Row(way, seconds=seconds))
            say(f"{title}, {way}: {1e3 * seconds:.2f} ms")
    except Exception as error:  # our own numbers do not depend on theirs
        say(f"PyTorch: no further, {type(error).__name__}: {error}")


def weight_bytes(params: Llama) -> int:
    """Of all weights but the embedding, of which a token reads one row."""
    read = params if params.lm_head is None else params._replace(embedding=None)
    return sum(leaf.nbytes for leaf in jax.tree.leaves(read))


def read_rate(device: Any) -> float:
    """Bytes per second that a sum over a large array reads."""
    size = 1 << (32 if device.platform == "gpu" else 24)
    array = jnp.ones(size // 2, jnp.bfloat16)
    total = jax.jit(lambda array: jnp.max(array))
    return size / timed(total, lambda: (array,), 5)[0]


def table(bench: Bench, params: Llama, rate: float) -> str:
    options, config = bench.options, bench.config
    device = jax.devices()[0].device_kind
    lines = [
        f"{options.model}, {config.layers} layers, bfloat16, {device}, "
        f"JAX {jax.__version__}; decode: {options.tokens} tokens after "
        f"{options.context}. Read rate measured: {rate / 1e12:.2f} TB/s.",
        "",
        "| | | compile | time | tokens/s | of the bytes limit | temporary |",
        "|---|---|---|---|---|---|---|",
    ]
    for title, rows in bench.rows.items():
        for row in rows:
            lines.append(_line(bench, params, rate, title, row))
    for title, rows in bench.rows.items():
        lines += _verdict(title, {row.way: row for row in rows})
    return "\n".join(lines)


def _line(bench: Bench, params: Llama, rate: float, title: str, row: Row) -> str:
    seconds, options, config = row.seconds or float("nan"), bench.options, bench.config
    if title.startswith("decode"):
        batch = int(title.split()[-1])
        per_step = seconds / options.tokens
        per_second = batch / per_step
        mean_context = options.context + options.tokens / 2
        width = config.kv_heads * config.head
        cached = 2 * 2 * config.layers * width * mean_context * batch
        share = f"{(weight_bytes(params) + cached) / rate / per_step:.0%}"
        told = f"{1e3 * per_step:.2f} ms"
    else:
        per_second, share = options.prompt / seconds, ""
        told = f"{1e3 * seconds:.1f} ms"
    compiling = "" if row.compiling is None else f"{row.compiling:.1f} s"
    memory = "" if row.temporary is None else f"{row.temporary / 1e6:.0f} MB"
    cells = [title, row.way, compiling, told, f"{per_second:.0f}", share, memory]
    return f"| {' | '.join(cells)} |"


def _verdict(title: str, rows: dict[str, Row]) -> list[str]:
    unrolled, scanned = rows.get("unrolled"), rows.get("scanned")
    if not unrolled or not scanned:
        return []
    best = min((r for w, r in rows.items() if "scanned" in w), key=lambda r: r.seconds)
    if best.way.endswith("cuDNN"):
        best = scanned  # unrolled has our attention too
    return [
        "",
        f"{title}: unrolled takes {unrolled.compiling / scanned.compiling:.1f} times "
        f"as long to compile; {best.way} takes "
        f"{best.seconds / unrolled.seconds:.3f} of its time to run.",
    ]


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0],
        epilog=__doc__.split("\n\n", 2)[2],
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--model", choices=CONFIGS, default="7b")
    parser.add_argument("--layers", type=int, help="fewer layers than the model has")
    parser.add_argument("--batches", type=int, nargs="*", default=[1, 16])
    parser.add_argument("--prompt", type=int, default=2048, help="tokens of prefill")
    parser.add_argument("--context", type=int, default=128, help="tokens before decode")
    parser.add_argument("--tokens", type=int, default=64, help="tokens to decode")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--budget", type=float, default=330, help="seconds to begin in")
    parser.add_argument("--engine", choices=["auto", "xla"], default="auto")
    parser.add_argument("--output", metavar="FILE", help="write the table there")
    parser.add_argument(
        "--hlo", metavar="DIR", help="write the compiled programs there"
    )
    parser.add_argument("--quick", action="store_true", help="8 layers, 16 tokens")
    options = parser.parse_args()
    if options.quick:
        options.tokens = min(options.tokens, 16)
    return options


if __name__ == "__main__":
    main()
