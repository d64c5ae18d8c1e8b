"""A checkpoint from a GGUF file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from chairlift.core.errors import CorruptModel, UnsupportedModel
from chairlift.runners.openvino.architecture import (
    Architecture,
    inverse_frequencies,
    refuse_experts,
    refuse_family,
    refuse_partial_rotation,
)
from chairlift.runners.openvino.checkpoint import Checkpoint, LayerTensors, Linear
from chairlift.runners.openvino.gguf import GgufFile
from chairlift.runners.openvino.tensors import StoredTensor

ROPE_FACTORS = "rope_freqs.weight"
"""Divisors of the rotary frequencies, [head_dim / 2]: how llama.cpp stores Llama 3's rope scaling."""

_PAIRED_FAMILIES = frozenset({"llama"})
"""Architectures whose query and key rows llama.cpp stores as rotated pairs (its rope type NORM)."""


def read_gguf(path: Path) -> Checkpoint:
    """Open a GGUF file of the Llama or Qwen2 family (Mistral models carry the architecture llama).

    Raises:
        UnsupportedModel, CorruptModel: as open_checkpoint.
    """
    file = GgufFile(path)
    family = _text(file.metadata, "general.architecture", path)
    if family not in ("llama", "qwen2"):
        raise refuse_family(family)
    if (parts := file.metadata.get("split.count", 1)) not in (0, 1):
        raise UnsupportedModel(
            f"{path.name} is one of {parts} parts of a model; this build reads whole files. "
            f"Join them with llama.cpp: `llama-gguf-split --merge FIRST_PART.gguf OUT.gguf`."
        )
    architecture = _architecture(file, family)
    used = _Names(file)
    checkpoint = Checkpoint(
        path=path,
        architecture=architecture,
        embedding=used.tensor("token_embd.weight"),
        layers=tuple(_layer(used, index, architecture) for index in range(architecture.num_layers)),
        norm=used.tensor("output_norm.weight"),
        head=used.tensor("output.weight") if "output.weight" in file.tensors else None,
        tokenizer=file.metadata,
        release=file.release_pages,
    )
    if unused := sorted(file.tensors.keys() - used.taken - {ROPE_FACTORS}):
        raise UnsupportedModel(
            f"{path.name} calls itself {family!r} but has tensors that family does not know: {', '.join(unused[:4])}"
            f"{' …' if len(unused) > 4 else ''}. Running it without them would give wrong answers: choose another "
            "model."
        )
    return checkpoint


class _Names:
    """Hands out tensors and remembers which, so that what is left over can be refused."""

    def __init__(self, file: GgufFile) -> None:
        self._file = file
        self.taken: set[str] = set()

    def tensor(self, name: str) -> StoredTensor:
        self.taken.add(name)
        return self._file.tensor(name)

    def linear(self, name: str, paired_heads: int = 0) -> Linear:
        """A matrix and its bias, if it has one; rows reordered when they are stored as pairs."""
        weight = self.tensor(f"{name}.weight")
        bias = self.tensor(f"{name}.bias") if f"{name}.bias" in self._file.tensors else None
        if paired_heads:
            weight = weight.halves_from_pairs(paired_heads)
            bias = None if bias is None else bias.halves_from_pairs(paired_heads)
        return Linear(weight, bias)


def _layer(names: _Names, index: int, architecture: Architecture) -> LayerTensors:
    prefix = f"blk.{index}."
    paired = architecture.family in _PAIRED_FAMILIES
    return LayerTensors(
        attention_norm=names.tensor(prefix + "attn_norm.weight"),
        query=names.linear(prefix + "attn_q", architecture.num_heads if paired else 0),
        key=names.linear(prefix + "attn_k", architecture.num_kv_heads if paired else 0),
        value=names.linear(prefix + "attn_v"),
        attention_output=names.linear(prefix + "attn_output"),
        feed_forward_norm=names.tensor(prefix + "ffn_norm.weight"),
        gate=names.linear(prefix + "ffn_gate"),
        up=names.linear(prefix + "ffn_up"),
        down=names.linear(prefix + "ffn_down"),
    )


def _architecture(file: GgufFile, family: str) -> Architecture:
    get = _Reader(file, family)
    if experts := get.integer("expert_count", 0):
        raise refuse_experts(experts)
    heads, hidden = get.integer("attention.head_count"), get.integer("embedding_length")
    if heads < 1:
        raise CorruptModel(f"{file.path} has {heads} attention heads. Fetch it again.")
    head_dim = get.integer("attention.key_length", hidden // heads)
    if (value_dim := get.integer("attention.value_length", head_dim)) != head_dim:
        raise UnsupportedModel(
            f"the model's keys have {head_dim} dimensions and its values {value_dim}; this build needs them equal."
        )
    if (rotated := get.integer("rope.dimension_count", head_dim)) != head_dim:
        raise refuse_partial_rotation(rotated, head_dim)
    frequencies = inverse_frequencies(head_dim, get.number("rope.freq_base", 10000.0)) / _position_scale(get)
    if ROPE_FACTORS in file.tensors:
        factors = file.tensor(ROPE_FACTORS)
        if factors.shape != (head_dim // 2,):
            raise CorruptModel(
                f"tensor {ROPE_FACTORS} in {file.path} has the shape {list(factors.shape)}, not [{head_dim // 2}]."
            )
        frequencies = frequencies / factors.to_float32()
    return Architecture(
        family=family,
        num_layers=get.integer("block_count"),
        hidden_size=hidden,
        intermediate_size=get.integer("feed_forward_length"),
        num_heads=heads,
        num_kv_heads=get.integer("attention.head_count_kv", heads),
        head_dim=head_dim,
        context_length=get.integer("context_length"),
        norm_epsilon=get.number("attention.layer_norm_rms_epsilon"),
        inverse_frequencies=frequencies.astype(np.float32),
        sliding_window=get.integer("attention.sliding_window", 0) or None,
    )


def _position_scale(get: _Reader) -> float:
    """Divisor of all rotary frequencies: linear scaling, under its new or its old key."""
    kind = get.metadata.get(f"{get.family}.rope.scaling.type", "none")
    if kind not in ("none", "linear"):
        raise UnsupportedModel(
            f"the model scales its rotary positions by {kind!r}; supported are none, linear and Llama 3's factors. "
            f"Choose a model of another context length."
        )
    factor = get.number("rope.scaling.factor", 1.0) if kind == "linear" else get.number("rope.scale_linear", 1.0)
    if factor <= 0:
        raise CorruptModel(f"the model's rope scaling factor is {factor:g}; it must be positive. Fetch it again.")
    return factor


class _Reader:
    """Typed access to the metadata of one architecture."""

    def __init__(self, file: GgufFile, family: str) -> None:
        self.path, self.metadata, self.family = file.path, file.metadata, family

    def number(self, key: str, default: float | None = None) -> float:
        value = self.metadata.get(f"{self.family}.{key}", default)
        if isinstance(value, bool) or not isinstance(value, int | float):
            what = "is missing" if value is None else f"is {type(value).__name__}, not a number"
            raise CorruptModel(
                f"{self.path}: metadata {self.family}.{key} {what}. Fetch the file again, or convert the model again."
            )
        return value

    def integer(self, key: str, default: int | None = None) -> int:
        value = self.metadata.get(f"{self.family}.{key}", default)
        if isinstance(value, list):
            raise UnsupportedModel(
                f"the model's {self.family}.{key} differs from layer to layer, which this build cannot run."
            )
        return int(self.number(key, default))


def _text(metadata: Mapping[str, Any], key: str, path: Path) -> str:
    value = metadata.get(key)
    if not isinstance(value, str):
        raise CorruptModel(f"{path} does not say its {key}: it holds no language model, or is damaged.")
    return value
