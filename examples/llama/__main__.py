"""`python -m examples.llama`: stream tokens from a checkpoint, or from random weights.

python -m examples.llama --checkpoint DIR --prompt "The sea"
python -m examples.llama --random-weights tinyllama --tokens 64
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

import onescan
from examples.llama.checkpoint import load
from examples.llama.config import CONFIGS, CheckpointError, Config
from examples.llama.explain import explain_llama
from examples.llama.generate import generate
from examples.llama.params import Llama, random_params
from examples.llama.sampling import Sampler


def main(arguments: list[str] | None = None) -> int:
    """The command line; gives the exit status."""
    parser = _parser()
    options = parser.parse_args(arguments)
    if options.explain:
        print(explain_llama(CONFIGS[options.explain]))
        return 0
    try:
        sampler = Sampler(options.temperature, options.top_p)
        params, config, encode, decode = _model(options)
        config = replace(config, kernels=options.kernels)
        prompt = encode(options.prompt)
        stream(params, config, prompt, decode, sampler, options)
    except (CheckpointError, ValueError) as error:
        print(f"llama: {error}", file=sys.stderr)
        return 1
    if options.report:
        print(onescan.report(), file=sys.stderr)
    return 0


def stream(
    params: Llama,
    config: Config,
    prompt: list[int],
    decode: Callable[[list[int]], str],
    sampler: Sampler,
    options: argparse.Namespace,
) -> list[int]:
    """Print tokens as they come, and the rate once the programs are compiled."""
    found: list[int] = []
    times, printed = [time.perf_counter()], ""
    for piece in generate(
        params,
        [prompt],
        config=config,
        tokens=options.tokens,
        sampler=sampler,
        key=jax.random.key(options.seed),
        chunk=options.chunk,
    ):
        times.append(time.perf_counter())
        found += _until_end(piece[0].tolist(), config)
        text = decode(found)
        print(text[len(printed) :], end="", flush=True)
        printed = text
    print(flush=True)
    print(_rate(times, len(prompt), options.chunk), file=sys.stderr)
    return found


def _rate(times: list[float], prompt: int, chunk: int) -> str:
    first = f"{prompt} tokens read in {times[1] - times[0]:.2f} s with compiling"
    timed = times[2:]  # the first chunk compiles the loop
    if len(timed) < 2:
        return f"{first}; too few tokens for a rate"
    rate = chunk * (len(timed) - 1) / (timed[-1] - timed[0])
    return f"{first}; {rate:.1f} tokens/s"


def _until_end(tokens: list[int], config: Config) -> list[int]:
    ends = [i for i, token in enumerate(tokens) if token in config.eos]
    return tokens[: ends[0]] if ends else tokens


def _model(options: argparse.Namespace) -> tuple[Any, Config, Any, Any]:
    dtype = jnp.dtype(options.dtype) if options.dtype else None
    if options.random_weights:
        config = CONFIGS[options.random_weights]
        params = random_params(options.seed, config, dtype or jnp.bfloat16)

        def encode(prompt: str) -> list[int]:
            return [byte % config.vocab for byte in prompt.encode()] or [config.bos]

        return params, config, encode, lambda ids: "".join(f"{i} " for i in ids)
    tokenizer = _tokenizer(Path(options.checkpoint))
    params, config = load(options.checkpoint, dtype)
    return params, config, lambda text: tokenizer.encode(text).ids, tokenizer.decode


def _tokenizer(folder: Path) -> Any:
    try:
        import tokenizers
    except ImportError:
        raise CheckpointError(
            "a checkpoint needs the package tokenizers: pip install tokenizers"
        ) from None
    path = folder / "tokenizer.json"
    if not path.exists():
        raise CheckpointError(f"{path} does not exist")
    try:
        return tokenizers.Tokenizer.from_file(str(path))
    except Exception as error:  # the package raises nothing more particular
        raise CheckpointError(f"{path} is no tokenizer: {error}") from None


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m examples.llama",
        description="Stream tokens from a Llama whose layers run as one loop.",
    )
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument(
        "--explain", choices=CONFIGS, help="what the loop over layers sees, as shapes"
    )
    source.add_argument("--checkpoint", metavar="DIR", help="a Hugging Face checkpoint")
    source.add_argument(
        "--random-weights", choices=CONFIGS, help="weights of these sizes, for timing"
    )
    parser.add_argument("--prompt", default="Once upon a time")
    parser.add_argument("--tokens", type=_positive, default=64, help="at most so many")
    parser.add_argument("--temperature", type=float, default=0.0, help="0 is greedy")
    parser.add_argument("--top-p", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--dtype", choices=["float32", "bfloat16", "float16"], help="of the weights"
    )
    parser.add_argument("--chunk", type=_positive, default=8, help="tokens per call")
    parser.add_argument(
        "--kernels",
        action=argparse.BooleanOptionalAction,
        help="decode by kernels that read weights in place: on NVIDIA GPUs, 16 bits",
    )
    parser.add_argument(
        "--report", action="store_true", help="what became of the loops"
    )
    return parser


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number} is not positive")
    return number


if __name__ == "__main__":
    sys.exit(main())
