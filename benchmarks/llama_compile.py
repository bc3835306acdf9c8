"""How long the decode loop of a Llama takes to compile, and in which phase.

Shapes are enough for that.  The second compilation of each is of a program that decodes
one token more: what XLA tunes once for a product is then known, and Python is warm.
"""

from __future__ import annotations

import argparse
import itertools
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp

import onescan
from examples.llama.cache import empty_state
from examples.llama.config import CONFIGS, Config
from examples.llama.generate import Decoding, decode
from examples.llama.params import Llama, param_shapes

PHASES = "trace", "lower", "compile"


def compile_only(config: Config, options: argparse.Namespace) -> None:
    """A table of all ways, first and again, and how they compare with unrolled."""
    print(f"{options.model}, {config.layers} layers, JAX {jax.__version__}, seconds\n")
    print(f"| | | {' | '.join(PHASES)} | all | unrolled takes |")
    print(f"|---|{'---|' * (len(PHASES) + 3)}", flush=True)
    jax.config.update("jax_enable_compilation_cache", False)  # nothing was kept
    tiny = replace(CONFIGS["tiny"], eos=(), head=16, kernels=True)
    seconds(tiny, 1, 64, 2, False)  # what only a process's first program pays
    with onescan.engine(options.engine):
        for batch in options.batches:
            for line in lines(config, batch, options.context, options.tokens):
                print(line, flush=True)


def lines(config: Config, batch: int, context: int, tokens: int) -> Iterator[str]:
    slots, unrolled = context + tokens, [0.0, 0.0]
    kernels = replace(config, kernels=True)
    plain = replace(config, kernels=False)
    for way, own in (("unrolled", None), ("scanned", plain), ("kernels", kernels)):
        for again in (False, True):
            steps = tokens + again
            taken = seconds(own or plain, batch, slots, steps, own is None)
            total = sum(taken)
            if own is None:
                unrolled[again] = total
            title = f"{way}, again" if again else way
            cells = [f"batch {batch}", title, *(f"{each:.2f}" for each in taken)]
            ratio = f"{unrolled[again] / total:.1f} times as long"
            yield f"| {' | '.join([*cells, f'{total:.2f}', ratio])} |"


def seconds(
    config: Config, batch: int, slots: int, steps: int, is_list: bool
) -> list[float]:
    """Of each phase."""
    given: Any = shapes(config, batch, slots, is_list)
    times = [time.perf_counter()]
    given = decode.trace(*given, steps=steps, config=config)
    times.append(time.perf_counter())
    given = given.lower()
    times.append(time.perf_counter())
    given.compile()
    times.append(time.perf_counter())
    return [end - begun for begun, end in itertools.pairwise(times)]


def shapes(
    config: Config, batch: int, slots: int, is_list: bool
) -> tuple[Llama, Decoding]:
    """The arguments of `decode`, with a list of layers or with a stack."""
    params = param_shapes(config, jnp.bfloat16)

    def begin() -> Decoding:
        state = empty_state(config, batch, slots, jnp.bfloat16)
        token = jnp.zeros(batch, jnp.int32)
        return Decoding(state, token, jnp.zeros(batch, bool), jax.random.key(0))

    start = jax.eval_shape(begin)
    if is_list:
        params = params._replace(decoder=listed(params.decoder, config.layers))
        kv = listed(start.state.kv, config.layers)
        start = start._replace(state=start.state._replace(kv=kv))
    return params, start


def listed(stacked: Any, layers: int) -> list[Any]:
    one = jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), stacked
    )
    return [one] * layers
