"""The sizes of a Llama, by name or from a Hugging Face `config.json`."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any


class CheckpointError(Exception):
    """A checkpoint that cannot be read: which file or tensor, and why."""


@dataclass(frozen=True)
class RopeScaling:
    """Llama 3.1 stretches the slow rotations to reach further than it was trained."""

    factor: float = 8.0
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    original_positions: int = 8192


@dataclass(frozen=True)
class Config:
    """The letters are those of the shapes in `params.py`."""

    layers: int
    model: int  # D, the width of the residual stream
    repeats: int  # R, query heads for each key-value head
    kv_heads: int  # H
    head: int  # K, the width of a head
    hidden: int  # F, the width of the feed-forward part
    vocab: int  # V
    positions: int = 4096  # the longest sequence it was trained for
    rope_theta: float = 10_000.0
    rope_scaling: RopeScaling | None = None
    norm_eps: float = 1e-5
    tied: bool = False  # the embedding is also the last layer
    dropout: float = 0.0  # used where there is a key
    # of `jax.nn.dot_product_attention` ("xla", "cudnn") for whole sequences, or ours
    attention: str | None = None
    # of a decode step, which read the layers' weights in place; None: where they run
    kernels: bool | None = None
    bos: int = 1
    eos: tuple[int, ...] = (2,)

    @property
    def parameters(self) -> int:
        """How many numbers there are."""
        attention = 2 * self.model * self.head * self.kv_heads * (self.repeats + 1)
        block = attention + 3 * self.model * self.hidden + 2 * self.model
        embeddings = self.vocab * self.model * (1 if self.tied else 2)
        return self.layers * block + embeddings + self.model


_LLAMA_3 = {
    "vocab": 128_256,
    "positions": 8192,
    "rope_theta": 500_000.0,
    "bos": 128_000,
    "eos": (128_001, 128_009),
}

#                        layers model  R   H   K    F      V
CONFIGS = {
    "7b": Config(32, 4096, 1, 32, 128, 11008, 32000),
    "13b": Config(40, 5120, 1, 40, 128, 13824, 32000),
    "70b": Config(80, 8192, 8, 8, 128, 28672, 32000),
    "3-8b": Config(32, 4096, 4, 8, 128, 14336, **_LLAMA_3),
    "3-70b": Config(80, 8192, 8, 8, 128, 28672, **_LLAMA_3),
    "tinyllama": Config(22, 2048, 8, 4, 64, 5632, 32000, positions=2048),
    "tiny": Config(2, 64, 2, 2, 16, 96, 256, positions=128),  # for tests
}


def read_config(folder: str | Path) -> Config:
    """The `config.json` of a Hugging Face checkpoint."""
    path = Path(folder) / "config.json"
    try:
        told = json.loads(path.read_text())
    except FileNotFoundError:
        raise CheckpointError(
            f"{path} does not exist. A checkpoint is a folder with config.json, "
            "tokenizer.json and *.safetensors."
        ) from None
    except json.JSONDecodeError as error:
        raise CheckpointError(f"{path} is not JSON: {error}") from None
    try:
        return from_hugging_face(told)
    except CheckpointError as error:
        raise CheckpointError(f"{path}: {error}") from None


def from_hugging_face(told: dict[str, Any]) -> Config:
    """A `Config` from the fields of a `config.json`."""
    if told.get("model_type", "llama") != "llama":
        raise CheckpointError(f"model_type is {told['model_type']!r}, not 'llama'")
    for unsupported in ("attention_bias", "mlp_bias"):
        if told.get(unsupported):
            raise CheckpointError(f"{unsupported} is set, which is not supported")
    if told.get("hidden_act", "silu") != "silu":
        raise CheckpointError(f"hidden_act is {told['hidden_act']!r}, not 'silu'")

    def number(name: str, default: Any = None) -> int:
        value = told.get(name, default)
        if not isinstance(value, int) or value < 1:
            raise CheckpointError(f"{name} must be an integer >= 1, but it is {value}")
        return value

    model, heads = number("hidden_size"), number("num_attention_heads")
    kv_heads = number("num_key_value_heads", heads)
    if heads % kv_heads:
        raise CheckpointError(
            f"num_attention_heads is {heads}, not a multiple of num_key_value_heads, "
            f"{kv_heads}"
        )
    rope = told.get("rope_parameters") or told.get("rope_scaling") or {}
    eos = told.get("eos_token_id")
    return Config(
        layers=number("num_hidden_layers"),
        model=model,
        repeats=heads // kv_heads,
        kv_heads=kv_heads,
        head=number("head_dim", model // heads),
        hidden=number("intermediate_size"),
        vocab=number("vocab_size"),
        positions=number("max_position_embeddings", 2048),
        rope_theta=float(rope.get("rope_theta", told.get("rope_theta", 10_000.0))),
        rope_scaling=_rope_scaling(rope),
        norm_eps=float(told.get("rms_norm_eps", 1e-6)),
        tied=bool(told.get("tie_word_embeddings", False)),
        bos=told.get("bos_token_id") or 0,
        eos=() if eos is None else tuple(eos) if isinstance(eos, list) else (eos,),
    )


def _rope_scaling(rope: dict[str, Any]) -> RopeScaling | None:
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind == "default":
        return None
    if kind != "llama3":
        raise CheckpointError(f"rope scaling {kind!r} is not supported, only 'llama3'")
    try:
        return RopeScaling(
            float(rope["factor"]),
            float(rope["low_freq_factor"]),
            float(rope["high_freq_factor"]),
            int(rope["original_max_position_embeddings"]),
        )
    except KeyError as error:
        raise CheckpointError(f"rope scaling 'llama3' needs {error}") from None


def to_hugging_face(config: Config, dtype: str) -> dict[str, Any]:
    """The fields of a `config.json`, in the form that all versions read."""
    told = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_act": "silu",
        "hidden_size": config.model,
        "intermediate_size": config.hidden,
        "num_hidden_layers": config.layers,
        "num_attention_heads": config.repeats * config.kv_heads,
        "num_key_value_heads": config.kv_heads,
        "head_dim": config.head,
        "vocab_size": config.vocab,
        "max_position_embeddings": config.positions,
        "rms_norm_eps": config.norm_eps,
        "rope_theta": config.rope_theta,
        "tie_word_embeddings": config.tied,
        "bos_token_id": config.bos,
        "eos_token_id": list(config.eos) or None,
        "torch_dtype": dtype,
    }
    if scaling := config.rope_scaling:
        told["rope_scaling"] = {
            "rope_type": "llama3",
            "factor": scaling.factor,
            "low_freq_factor": scaling.low_freq_factor,
            "high_freq_factor": scaling.high_freq_factor,
            "original_max_position_embeddings": scaling.original_positions,
        }
    return told
