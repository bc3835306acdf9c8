"""The Llama of `benchmarks/llama.py` in PyTorch, on the same weights.

The math of Hugging Face's `LlamaForCausalLM` with its static cache, written plainly:
`scaled_dot_product_attention`, one kernel after the other, and the decode step once
more as a CUDA graph, which leaves out the cost of starting kernels from Python.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from statistics import median
from typing import Any

import torch
from torch.nn.functional import scaled_dot_product_attention, silu

from examples.llama.rotary import frequencies


class Model:
    def __init__(self, params: Any, config: Any, batch: int, slots: int) -> None:
        import jax

        self.config = config
        shared = jax.tree.map(torch.from_dlpack, params)  # the same memory
        self.embedding, self.norm = shared.embedding, shared.norm
        head = shared.embedding if shared.lm_head is None else shared.lm_head
        self.head = head.T
        d, blocks = config.model, shared.decoder
        attention = blocks.attention
        self.layers = [
            (
                blocks.input_norm[i],
                attention.q_proj[i].reshape(d, -1),
                attention.k_proj[i].reshape(d, -1),
                attention.v_proj[i].reshape(d, -1),
                attention.out_proj[i].reshape(-1, d),
                blocks.post_attn_norm[i],
                blocks.gate_proj[i],
                blocks.up_proj[i],
                blocks.down_proj[i],
            )
            for i in range(config.layers)
        ]
        shape = (config.layers, batch, config.kv_heads, slots, config.head)
        options = {"dtype": torch.bfloat16, "device": self.embedding.device}
        self.keys = torch.full(shape, 0.01, **options)
        self.values = torch.full(shape, 0.01, **options)
        self.slots = torch.arange(slots, device=options["device"])
        angles = torch.outer(
            self.slots.float(), torch.tensor(frequencies(config)).to(self.slots.device)
        )
        self.cos, self.sin = angles.cos(), angles.sin()

    def rms_norm(self, x: Any, scale: Any) -> Any:
        wide = x.float()
        size = wide.pow(2).mean(-1, keepdim=True) + self.config.norm_eps
        return scale * (wide * torch.rsqrt(size)).to(x.dtype)

    def rotate(self, x: Any, cos: Any, sin: Any) -> Any:
        a, b = x.float().chunk(2, dim=-1)
        return torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1).to(x.dtype)

    def forward(self, tokens: Any, positions: Any) -> Any:
        """Logits (B, V) after new tokens (B, S), which go to slots `positions` (S,)."""
        config, (batch, size) = self.config, tokens.shape
        x = self.embedding[tokens]
        cos, sin = self.cos[positions], self.sin[positions]
        mask = None if size > 1 else (self.slots <= positions)[None, None, None]
        for i, (norm1, q, k, v, out, norm2, gate, up, down) in enumerate(self.layers):
            h = self.rms_norm(x, norm1)
            shape = (batch, size, -1, config.head)
            # our query heads are (R, H); the order is the same where R is 1
            q_ = self.rotate((h @ q).view(shape).transpose(1, 2), cos, sin)
            k_ = self.rotate((h @ k).view(shape).transpose(1, 2), cos, sin)
            v_ = (h @ v).view(shape).transpose(1, 2)
            self.keys[i].index_copy_(2, positions, k_)
            self.values[i].index_copy_(2, positions, v_)
            seen = (k_, v_) if size > 1 else (self.keys[i], self.values[i])
            if config.repeats > 1:
                seen = tuple(part.repeat(1, config.repeats, 1, 1) for part in seen)
            mixed = scaled_dot_product_attention(
                q_, *seen, attn_mask=mask, is_causal=size > 1
            )
            x = x + mixed.transpose(1, 2).reshape(batch, size, -1) @ out
            h = self.rms_norm(x, norm2)
            x = x + (silu(h @ gate) * (h @ up)) @ down
        return (self.rms_norm(x[:, -1], self.norm) @ self.head).float()


def measure(
    params: Any,
    config: Any,
    batches: list[int],
    context: int,
    tokens: int,
    prompt: int,
    repeats: int,
    say: Callable[[str], None],
) -> Iterator[tuple[str, str, float]]:
    """(way, what, seconds) of each."""
    say(f"PyTorch {torch.__version__}: our own implementation of the same math")
    with torch.no_grad():
        for batch in batches:
            model = Model(params, config, batch, context + tokens)
            title = f"decode, batch {batch}"
            yield "PyTorch", title, timed(eager(model, batch, context, tokens), repeats)
            if torch.cuda.is_available():
                run = graphed(model, batch, context, tokens)
                yield "PyTorch, CUDA graph", title, timed(run, repeats)
            del model
        title = f"prefill, 1 x {prompt}"
        yield "PyTorch", title, timed(reading(params, config, prompt), repeats)
        yield from transformers_rows(
            config, batches, context, tokens, prompt, repeats, say
        )


def transformers_rows(
    config: Any,
    batches: list[int],
    context: int,
    tokens: int,
    prompt: int,
    repeats: int,
    say: Callable[[str], None],
) -> Iterator[tuple[str, str, float]]:
    """Hugging Face's own model, of the same sizes, as `generate` runs it."""
    try:
        import transformers
    except ImportError as error:
        say(f"transformers: left out, {error}")
        return
    from examples.llama.config import to_hugging_face

    device = "cuda" if torch.cuda.is_available() else "cpu"
    told = transformers.LlamaConfig(**to_hugging_face(config, "bfloat16"))
    torch.set_default_dtype(torch.bfloat16)
    with torch.device(device):
        model = transformers.LlamaForCausalLM(told).eval()
    torch.set_default_dtype(torch.float32)
    name = f"transformers {transformers.__version__}"

    def generate(batch: int, new: int) -> Callable[[], Any]:
        ids = torch.arange(batch * context, device=device).view(batch, -1)
        ids %= config.vocab
        options = {"do_sample": False, "pad_token_id": 0, "eos_token_id": None}
        options |= {"attention_mask": torch.ones_like(ids)}
        return lambda: model.generate(ids, max_new_tokens=new, **options)

    for batch in batches:
        both = timed(generate(batch, tokens + 1), repeats)
        first = timed(generate(batch, 1), repeats)
        yield name, f"decode, batch {batch}", both - first
    ids = torch.arange(prompt, device=device)[None] % config.vocab
    run = lambda: model(ids, use_cache=True, logits_to_keep=1)
    yield name, f"prefill, 1 x {prompt}", timed(run, repeats)


def reading(params: Any, config: Any, prompt: int) -> Callable[[], Any]:
    model = Model(params, config, 1, prompt)
    ids = torch.arange(prompt, device=model.slots.device)[None] % config.vocab
    return lambda: model.forward(ids, model.slots)


def eager(model: Model, batch: int, context: int, tokens: int) -> Callable[[], Any]:
    def run() -> Any:
        token = torch.arange(batch, device=model.slots.device)[:, None]
        for position in range(context, context + tokens):
            logits = model.forward(token, model.slots[position : position + 1])
            token = logits.argmax(-1, keepdim=True)
        return token

    return run


def graphed(model: Model, batch: int, context: int, tokens: int) -> Callable[[], Any]:
    token = torch.arange(batch, device=model.slots.device)[:, None]
    position = model.slots[context : context + 1].clone()

    def step() -> None:
        token.copy_(model.forward(token, position).argmax(-1, keepdim=True))
        position.add_(1)

    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):  # warm up, as a capture wants it
        step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()

    def run() -> Any:
        position.fill_(context)
        for _ in range(tokens):
            graph.replay()
        return token

    return run


def timed(run: Callable[[], Any], repeats: int) -> float:
    taken = []
    for _ in range(1 + repeats):
        synchronize()
        begun = time.perf_counter()
        run()
        synchronize()
        taken.append(time.perf_counter() - begun)
    return median(taken[1:])


def synchronize() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()
