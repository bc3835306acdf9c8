"""Llama on a GPU: the layers as one loop, written out, and in PyTorch.

Random weights in bfloat16 at the shapes of a model (7B unless told otherwise): the time
to compile, to read a prompt, and to decode, against the time in which the chip can
read the bytes.  Ends with a Markdown table for `benchmarks/llama.md`.

    python benchmarks/llama.py                       all of it, about five minutes
    python benchmarks/llama.py --quick               8 of 32 layers, two minutes
    python benchmarks/llama.py --compile-only        how long decode compiles
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
from llama_compile import compile_only
from llama_table import HEAD, Row, table

import onescan
from examples.llama.cache import State, empty_state
from examples.llama.config import CONFIGS, Config
from examples.llama.generate import Decoding, decode, next_logits, prefill
from examples.llama.params import Llama, random_params
from onescan.layers import unstack


class Way(NamedTuple):
    """A way to run the layers."""

    kernels: bool = False  # of decode
    attention: str | None = None  # of prefill
    flags: dict[str, Any] = {}  # noqa: RUF012


# products by cuBLAS, which read a layer's weights in place, if they are not merged
CUBLAS = {
    "xla_gpu_enable_triton_gemm": False,
    "xla_gpu_enable_dynamic_slice_fusion": True,
    "xla_gpu_dot_merger_threshold_mb": 0,
}
BARS = {"scanned": Way(), "unrolled": Way()}
DECODE = {"scanned, kernels": Way(kernels=True)}
PREFILL = {
    "scanned, cuBLAS": Way(flags=CUBLAS),
    "scanned, cuDNN": Way(attention="cudnn"),
    "scanned, cuDNN, cuBLAS": Way(attention="cudnn", flags=CUBLAS),
    "unrolled, cuDNN": Way(attention="cudnn"),
}
BEGUN = time.perf_counter()


def say(text: str) -> None:
    print(f"[{time.perf_counter() - BEGUN:5.0f} s] {text}", flush=True)


@dataclass
class Bench:
    options: argparse.Namespace
    config: Config
    rate: float  # bytes a second
    weights: int  # bytes that each token reads
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
            compiled = compile_program(jitted, arguments(), given, flags)
            row.compiling = time.perf_counter() - begun
            row.temporary = compiled.memory_analysis().temp_size_in_bytes
            say(f"{title}, {way}: compiled in {row.compiling:.1f} s")
            self.keep(f"{title} {way}", compiled)
            row.seconds, result = timed(compiled, arguments, self.options.repeats)
            say(f"{title}, {way}: {1e3 * row.seconds:.2f} ms")
            if "steps" in given and not self.options.quick:
                more = given | {"steps": given["steps"] + 1}
                begun = time.perf_counter()
                compile_program(jitted, arguments(), more, flags)
                row.again = time.perf_counter() - begun
                say(f"{title}, {way}: compiled again in {row.again:.1f} s")
        except Exception as error:  # an unknown flag, or too little memory
            say(f"{title}, {way}: {type(error).__name__}, {first_line(error)}")
            if row.seconds is None:
                return None
        self.rows.setdefault(title, []).append(row)
        self.write()
        return result

    def keep(self, name: str, compiled: Any) -> None:
        """The compiled program, as text, where `--hlo` says."""
        if self.options.hlo:
            name = name.replace(" ", "_").replace(",", "")
            (Path(self.options.hlo) / f"{name}.txt").write_text(compiled.as_text())

    def write(self) -> None:
        """All that is known so far: a run may be cut short."""
        if self.options.output:
            Path(self.options.output).write_text(HEAD + table(self) + "\n")


def compile_program(jitted: Any, arguments: Any, given: Any, flags: Any) -> Any:
    lowered = jitted.lower(*arguments, **given)
    return lowered.compile(compiler_options=flags or None)


def first_line(error: Exception) -> str:
    return (str(error).splitlines() or [""])[0][:200]


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
    if options.compile_only:
        compile_only(config, options)
        return
    device = jax.devices()[0]
    say(f"JAX {jax.__version__}, {device.device_kind}, {config.layers} layers")
    warm_up()
    params = random_params(0, config, jnp.bfloat16)
    jax.block_until_ready(params)
    bench = Bench(options, config, read_rate(device), weight_bytes(params))
    say(f"{bench.weights / 1e9:.1f} GB of weights are read for each token")
    compare_kernels(params, config)
    listed = params._replace(decoder=unstack(params.decoder))
    jax.block_until_ready(listed)
    say("the weights once more, as a list of layers")

    reading = prefill_work(bench)

    def measure(work: Measure, ways: dict[str, Way]) -> None:
        for name, way in ways.items():
            if name in (options.ways or [name]):
                own = listed if name.startswith("unrolled") else params
                work(own, name, way)

    with onescan.engine(options.engine):
        for batch in options.batches:
            measure(decode_work(bench, batch), BARS | DECODE)
        measure(reading, BARS | PREFILL)
        if not options.no_torch:
            torch_rows(bench, params)
    for row in onescan.report().rows:
        say(f"loop {row.name}: {row.engine}, {row.reason or 'taken'}")
    print("\n" + table(bench))
    bench.write()


def compare_kernels(params: Llama, config: Config) -> None:
    """The logits of one token through all layers, by the kernels and without.

    Both round every operation to 16 bits, and 32 layers amplify that; so each is
    compared with the same layers in float32.
    """
    state = begin(config, 2, 64, 8, False).state
    tokens = jnp.array([3, 5])
    step = jax.jit(next_logits, static_argnums=3)
    plain, found = (
        step(params, state, tokens, replace(config, kernels=own))[0]
        for own in (False, True)
    )
    wide = lambda x: x.astype(jnp.float32) if x.dtype == jnp.bfloat16 else x
    exact, _ = step(
        *jax.tree.map(wide, (params, state)), tokens, replace(config, kernels=False)
    )
    of_plain, of_kernels = (
        float(jnp.abs(own - exact).max() / jnp.abs(exact).max())
        for own in (plain, found)
    )
    say(
        f"logits differ from float32 by {of_kernels:.1e} of the largest by kernels, "
        f"by {of_plain:.1e} without"
    )
    if not of_kernels < 2 * of_plain + 0.01:
        raise SystemExit("the kernels are wrong")


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

        own = replace(config, kernels=way.kernels)
        given = {"steps": options.tokens, "config": own}
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
            bench.write()
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
    parser.add_argument("--budget", type=float, default=300, help="seconds to begin in")
    parser.add_argument("--engine", choices=["auto", "xla"], default="auto")
    parser.add_argument("--ways", nargs="*", metavar="WAY", help="only these")
    parser.add_argument("--no-torch", action="store_true", help="JAX alone")
    parser.add_argument("--output", metavar="FILE", help="write the table there")
    parser.add_argument(
        "--hlo", metavar="DIR", help="write the compiled programs there"
    )
    parser.add_argument(
        "--compile-only", action="store_true", help="trace, lower, compile; under 60 s"
    )
    parser.add_argument("--quick", action="store_true", help="8 layers, 16 tokens")
    options = parser.parse_args()
    if options.quick:
        options.tokens = min(options.tokens, 16)
    return options


if __name__ == "__main__":
    main()
