"""`make parity`: the Llama example against Hugging Face transformers, live.

Small random models of transformers are saved, read by `examples.llama`, and compared:
logits of whole sequences, also padded ones, greedy generation token by token, and the
way back: what we save, transformers reads.  `--record` writes the smallest of each
kind into `tests/fixtures/llama`, for the tests that run without transformers.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import torch
import transformers

sys.path.insert(0, str(Path(__file__).parents[1]))

from examples.llama.checkpoint import load, save
from examples.llama.generate import generate, pad_left
from examples.llama.model import forward

FIXTURES = Path(__file__).parents[1] / "tests" / "fixtures" / "llama"
TOLERANCE = 1e-4
LLAMA_3 = {
    "rope_type": "llama3",
    "rope_theta": 500_000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 16,  # so that short sequences see it
}
KINDS = {
    "full": {"num_key_value_heads": 4},
    "grouped": {"num_key_value_heads": 2, "head_dim": 8},
    "tied": {"num_key_value_heads": 1, "tie_word_embeddings": True},
    "rope3": {"num_key_value_heads": 2, "rope_parameters": LLAMA_3},
}
SIZES = {
    "small": {"hidden_size": 16, "intermediate_size": 24, "vocab_size": 40},
    "medium": {"hidden_size": 96, "intermediate_size": 160, "vocab_size": 300},
}
PROMPTS = [[5, 17, 3, 8, 21, 30, 2, 9], [11, 4, 26]]
NEW_TOKENS = 12


def make(kind: str, size: str, seed: int) -> transformers.LlamaForCausalLM:
    torch.manual_seed(seed)
    config = transformers.LlamaConfig(
        num_hidden_layers=2,
        num_attention_heads=4,
        initializer_range=0.3,
        max_position_embeddings=128,
        bos_token_id=1,
        eos_token_id=None,
        rms_norm_eps=1e-5,
        pad_token_id=0,
        **KINDS[kind],
        **SIZES[size],
    )
    model = transformers.LlamaForCausalLM(config).eval()
    with torch.no_grad():  # norms that are not one, or nobody sees them
        for name, weight in model.named_parameters():
            if "norm" in name:
                weight.uniform_(0.5, 1.5)
    return model


def told_by_transformers(model) -> tuple[np.ndarray, np.ndarray]:
    """Logits of the padded prompts, and the tokens of greedy generation."""
    tokens, mask = (torch.tensor(array) for array in pad_left(PROMPTS))
    tokens, mask = tokens.long(), mask.long()
    with torch.no_grad():
        positions = (mask.cumsum(1) - 1).clamp(min=0)
        logits = model(tokens, attention_mask=mask, position_ids=positions).logits
        found = model.generate(
            tokens,
            attention_mask=mask,
            max_new_tokens=NEW_TOKENS,
            do_sample=False,
            pad_token_id=0,
        )
    return logits.numpy(), found[:, tokens.shape[1] :].numpy()


def compare(folder: Path, logits: np.ndarray, generated: np.ndarray) -> float:
    """The largest difference of logits; raises where they or the tokens differ."""
    params, config = load(folder)
    tokens, mask = pad_left(PROMPTS)
    ours = np.asarray(forward(params, tokens, mask, config=config))
    worst = float(np.abs(ours - logits)[mask].max())
    if worst > TOLERANCE:
        raise AssertionError(f"{folder.name}: logits differ by {worst:.1e}")
    pieces = generate(params, PROMPTS, config=config, tokens=NEW_TOKENS)
    found = np.concatenate(list(pieces), axis=1)
    if (found != generated).any():
        raise AssertionError(f"{folder.name}: {found.tolist()}, {generated.tolist()}")
    return worst


def there_and_back(folder: Path, logits: np.ndarray) -> float:
    """What we save, in shards, transformers reads as the same model."""
    params, config = load(folder)
    with tempfile.TemporaryDirectory() as copy:
        save(copy, params, config, shard_bytes=20_000)
        model = transformers.LlamaForCausalLM.from_pretrained(copy).float().eval()
    again, _ = told_by_transformers(model)
    worst = float(np.abs(again - logits).max())
    if worst > TOLERANCE:
        raise AssertionError(f"{folder.name}: saved and read back, {worst:.1e}")
    return worst


def record(kind: str, seed: int) -> None:
    folder = FIXTURES / kind
    shutil.rmtree(folder, ignore_errors=True)
    model = make(kind, "small", seed)
    shards = {"max_shard_size": "8KB"} if kind == "grouped" else {}
    model.save_pretrained(folder, **shards)
    logits, generated = told_by_transformers(model)
    np.savez_compressed(folder / "expected.npz", logits=logits, generated=generated)
    (folder / "generation_config.json").unlink(missing_ok=True)
    print(
        f"{kind}: recorded, logits differ by {compare(folder, logits, generated):.1e}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--record", action="store_true", help="write the fixtures")
    parser.add_argument("--seeds", type=int, default=2)
    options = parser.parse_args()
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    if options.record:
        for kind in KINDS:
            record(kind, seed=0)
        return
    print(f"transformers {transformers.__version__}, torch {torch.__version__}")
    for kind in KINDS:
        for seed in range(options.seeds):
            with tempfile.TemporaryDirectory() as path:
                folder = Path(path) / kind
                model = make(kind, "medium", seed)
                model.save_pretrained(folder)
                told = told_by_transformers(model)
                worst = compare(folder, *told), there_and_back(folder, told[0])
                bf16 = load(folder, jnp.bfloat16)[0].embedding.dtype
                assert bf16 == jnp.bfloat16
            print(
                f"{kind:8} seed {seed}: logits differ by {worst[0]:.1e}, "
                f"{NEW_TOKENS} tokens equal, saved and read back {worst[1]:.1e}"
            )


if __name__ == "__main__":
    main()
