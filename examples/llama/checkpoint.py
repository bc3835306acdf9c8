"""Hugging Face checkpoints, read straight into the stacked layout, and written back.

A leaf such as `q_proj` is one array for all layers, and one tensor for each layer in
the files.  Each leaf is allocated once and every tensor is copied, turned and
converted into its place from the mapped file; then the leaf goes to the device.  So
there is never a second copy of more than one leaf.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from examples.llama.config import (
    CheckpointError,
    Config,
    read_config,
    to_hugging_face,
)
from examples.llama.params import Llama, param_shapes
from examples.llama.tensors import DTYPES, Entry, read, read_table, write

INDEX = "model.safetensors.index.json"
SINGLE = "model.safetensors"
TIED = "lm_head.weight"
IGNORED = ("rotary_emb.inv_freq", "rotary_emb.cos_cached", "rotary_emb.sin_cached")


class Place(NamedTuple):
    """A leaf's name in the files, and how its layout there differs from ours."""

    name: str  # "{}" stands for the layer
    shape: tuple[int, ...]  # in the files
    split: tuple[int, ...]  # the same with heads taken apart
    order: tuple[int, ...]  # the axes of `split` in our order


def places(config: Config) -> Llama:
    """Where each leaf comes from. PyTorch keeps weights as (outputs, inputs)."""
    d, f, v = config.model, config.hidden, config.vocab
    r, h, k = config.repeats, config.kv_heads, config.head
    layer = "model.layers.{}."

    def vector(name: str) -> Place:
        return Place(name, (d,), (d,), (0,))

    def rows(name: str) -> Place:
        return Place(name, (v, d), (v, d), (0, 1))

    def turned(name: str, *shape: int) -> Place:
        return Place(layer + f"mlp.{name}.weight", shape, shape, (1, 0))

    def heads_in(name: str, *split: int, order: tuple[int, ...]) -> Place:
        name = layer + f"self_attn.{name}.weight"
        return Place(name, (int(np.prod(split[:-1])), d), split, order)

    found = {
        "embedding": rows("model.embed_tokens.weight"),
        "input_norm": vector(layer + "input_layernorm.weight"),
        # the query heads of a key-value head follow each other
        "q_proj": heads_in("q_proj", h, r, k, d, order=(3, 1, 0, 2)),
        "k_proj": heads_in("k_proj", h, k, d, order=(2, 0, 1)),
        "v_proj": heads_in("v_proj", h, k, d, order=(2, 0, 1)),
        "out_proj": Place(
            layer + "self_attn.o_proj.weight",
            (d, h * r * k),
            (d, h, r, k),
            (2, 1, 3, 0),
        ),
        "post_attn_norm": vector(layer + "post_attention_layernorm.weight"),
        "gate_proj": turned("gate_proj", f, d),
        "up_proj": turned("up_proj", f, d),
        "down_proj": turned("down_proj", d, f),
        "norm": vector("model.norm.weight"),
        "lm_head": rows("lm_head.weight"),
    }
    return jax.tree.map_with_path(
        lambda path, _: found[path[-1].name], param_shapes(config)
    )


def load(folder: str | Path, dtype: Any = None) -> tuple[Llama, Config]:
    """The parameters and the configuration of a checkpoint.

    Args:
        folder: with `config.json` and `model.safetensors`, or an index and its shards.
        dtype: of the parameters; that of the files if None.

    Raises:
        CheckpointError: naming the file or tensor that is missing, cut short or of
            another shape than the configuration says.
    """
    folder = Path(folder)
    config = read_config(folder)
    entries = find_tensors(folder)
    wanted = places(config)
    _check(folder, entries, wanted, config)
    if dtype is None:
        dtype = DTYPES[entries[wanted.embedding.name].dtype]

    def load_leaf(place: Place, spec: jax.ShapeDtypeStruct) -> jax.Array:
        leaf = np.empty(spec.shape, spec.dtype)
        stacked = leaf if "{}" in place.name else leaf[None]
        for layer, target in enumerate(stacked):
            name = place.name.format(layer)
            tensor = read(name, entries[name]).reshape(place.split)
            target[...] = tensor.transpose(place.order)  # converted on the way
        return jax.device_put(leaf)

    shapes = param_shapes(config, dtype)
    return jax.tree.map(load_leaf, wanted, shapes, is_leaf=_is_place), config


def find_tensors(folder: Path) -> dict[str, Entry]:
    """All tensors of a checkpoint, in one file or in the shards of its index."""
    index = folder / INDEX
    if not index.exists():
        if not (folder / SINGLE).exists():
            raise CheckpointError(f"{folder} has neither {SINGLE} nor {INDEX}")
        return read_table(folder / SINGLE)
    try:
        shard_of = json.loads(index.read_text())["weight_map"]
    except (json.JSONDecodeError, KeyError):
        raise CheckpointError(f"{index} is no index: it has no weight_map") from None
    tables = {}
    for name, shard in shard_of.items():
        if not (folder / shard).exists():
            raise CheckpointError(
                f"{folder / shard} does not exist; {INDEX} has tensor {name} in it"
            )
        if shard not in tables:
            tables[shard] = read_table(folder / shard)
        if name not in tables[shard]:
            raise CheckpointError(
                f"{folder / shard} has no tensor {name}, which {INDEX} has in it"
            )
    return {name: tables[shard][name] for name, shard in shard_of.items()}


def save(
    folder: str | Path, params: Llama, config: Config, shard_bytes: int = 5 << 30
) -> None:
    """Write a checkpoint that Hugging Face transformers reads, layer by layer."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    dtype = np.dtype(params.embedding.dtype)
    told = to_hugging_face(config, dtype.name)
    (folder / "config.json").write_text(json.dumps(told, indent=2) + "\n")

    shards: list[dict[str, Any]] = [{}]
    size = 0
    for name, shape, give in _tensors(params, config):
        nbytes = int(np.prod(shape)) * dtype.itemsize
        if shards[-1] and size + nbytes > shard_bytes:
            shards.append({})
            size = 0
        shards[-1][name] = (shape, dtype, give)
        size += nbytes
    if len(shards) == 1:
        write(folder / SINGLE, shards[0])
        return
    weight_map = {}
    for number, shard in enumerate(shards, 1):
        file = f"model-{number:05}-of-{len(shards):05}.safetensors"
        write(folder / file, shard)
        weight_map |= dict.fromkeys(shard, file)
    total = config.parameters * dtype.itemsize
    index = {"metadata": {"total_size": total}, "weight_map": weight_map}
    (folder / INDEX).write_text(json.dumps(index, indent=2) + "\n")


def _tensors(params: Llama, config: Config) -> Iterator[tuple[str, Any, Any]]:
    """Each tensor of the files: its name, its shape, and what gives it."""

    def give(leaf: jax.Array, place: Place, layer: int | None) -> np.ndarray:
        ours = np.asarray(leaf if layer is None else leaf[layer])
        return ours.transpose(np.argsort(place.order)).reshape(place.shape)

    wanted = jax.tree.leaves(places(config), is_leaf=_is_place)
    for place, leaf in zip(wanted, jax.tree.leaves(params), strict=True):
        layers = range(config.layers) if "{}" in place.name else [None]
        for layer in layers:
            yield (
                place.name.format(layer),
                place.shape,
                partial(give, leaf, place, layer),
            )


def _check(
    folder: Path, entries: dict[str, Entry], wanted: Llama, config: Config
) -> None:
    """Every tensor is there, whole and of the right shape, and there are no others."""
    expected = set()
    for place in jax.tree.leaves(wanted, is_leaf=_is_place):
        for layer in range(config.layers if "{}" in place.name else 1):
            name = place.name.format(layer)
            expected.add(name)
            if name not in entries:
                raise CheckpointError(
                    f"{folder} has no tensor {name}, which its config.json asks for"
                )
            if entries[name].shape != place.shape:
                raise CheckpointError(
                    f"tensor {name} in {entries[name].path} has the shape "
                    f"{entries[name].shape}, and config.json asks for {place.shape}"
                )
            read(name, entries[name])
    for name in entries.keys() - expected:
        if not name.endswith(IGNORED) and not (config.tied and name == TIED):
            raise CheckpointError(
                f"{folder} has a tensor {name}, for which its config.json has no place"
            )


def _is_place(node: Any) -> bool:
    return isinstance(node, Place)
