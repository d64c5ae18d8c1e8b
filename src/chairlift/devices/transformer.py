"""A decoder-only transformer's sizes from its config.json, as Hugging Face writes it: parameters, bytes, KV per token.

Counted are the families that are rows of equal layers: attention (grouped or not) and a feed-forward, gated or not, one
or a choice among experts. Latent attention, state-space layers and layers that differ are refused by name.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any, Final

from chairlift.core.errors import DeviceModelError
from chairlift.core.work import ModelShape

_ALIASES: Final = {
    "num_hidden_layers": ("n_layer", "num_layers", "n_layers"),
    "hidden_size": ("n_embd", "d_model"),
    "num_attention_heads": ("n_head", "n_heads", "num_heads"),
    "intermediate_size": ("n_inner", "ffn_dim", "ffn_hidden_size"),
    "max_position_embeddings": ("n_positions", "seq_length", "max_sequence_length", "n_ctx"),
}
_UNGATED: Final = frozenset(
    {"gpt2", "gpt_neo", "gpt_neox", "gptj", "opt", "bloom", "falcon", "phi", "starcoder2", "mpt"}
)
"""Families whose feed-forward has two matrices instead of three."""
_BIASED: Final = frozenset({"gpt2", "gpt_neox", "opt", "bloom", "phi"})
"""Families with a bias on every projection and norm, whatever the config says."""
_TIED_BY_DEFAULT: Final = frozenset({"gpt2", "gpt_neo", "bloom", "opt", "falcon", "gemma", "gemma2", "gemma3_text"})
_LEARNED_POSITIONS: Final = {"gpt2": 0, "opt": 2}
"""Families with a table of position embeddings -> rows it has beyond max_position_embeddings."""
_REFUSED: Final = {
    "n_routed_experts": "a mixture of experts with other kinds of layers between",
    "mlp_only_layers": "a mixture of experts with other kinds of layers between",
    "kv_lora_rank": "latent attention",
    "ssm_state_size": "state-space layers",
    "state_size": "state-space layers",
    "is_encoder_decoder": "an encoder beside the decoder",
}
_MEASURE: Final = "The analytic device model does not cover that; measure it instead: chairlift calibrate."


@dataclass(frozen=True, slots=True)
class WeightFormat:
    """How weights are stored and multiplied."""

    name: str
    bytes_per_weight: Fraction
    """Of the layers' matrices. Embeddings, head, norms and biases stay in 16 bits (f32: in 32)."""
    compute: str
    """Which peak of the device sheet holds: f32, bf16, f8 or int8."""

    @property
    def plain_bytes(self) -> int:
        """Bytes of an element that is never quantized."""
        return 4 if self.name == "f32" else 2


WEIGHT_FORMATS: Final = {
    "f32": WeightFormat("f32", Fraction(4), "f32"),
    "bf16": WeightFormat("bf16", Fraction(2), "bf16"),
    "f16": WeightFormat("f16", Fraction(2), "bf16"),
    "f8": WeightFormat("f8", Fraction(1), "f8"),
    "int8": WeightFormat("int8", Fraction(1), "int8"),
    # In groups of 128: a 16-bit scale and a 4-bit zero point each (GPTQ, AWQ); multiplied in 16 bits.
    "int4": WeightFormat("int4", Fraction(1, 2) + Fraction(20, 8 * 128), "bf16"),
}
KV_BYTES: Final = {"f32": 4, "bf16": 2, "f16": 2, "f8": 1, "int8": 1}
"""KV precision -> bytes of an element."""


@dataclass(frozen=True, slots=True)
class TransformerConfig:
    """Sizes in elements."""

    name: str
    family: str
    num_layers: int
    hidden_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    intermediate_size: int
    vocab_size: int
    context_length: int
    tied: bool
    """The output head is the embedding."""
    gated: bool
    qkv_bias: bool = False
    every_bias: bool = False
    qk_norm: bool = False
    """A norm over each head's queries and keys (Qwen3)."""
    position_rows: int = 0
    """Rows of a learned table of positions."""
    experts: int = 0
    """In each layer; 0: one feed-forward that every token goes through."""
    experts_per_token: int = 0
    shared_intermediate_size: int = 0
    """Width of what every token goes through beside its experts."""

    @property
    def attention_weights(self) -> int:
        """Of one layer: query, key, value, output."""
        return self.hidden_size * self.head_dim * (2 * self.num_heads + 2 * self.num_kv_heads)

    @property
    def feed_forward_weights(self) -> int:
        """Of one layer, or of one of its experts: up and down, and gate where there is one."""
        return (3 if self.gated else 2) * self.hidden_size * self.intermediate_size

    @property
    def layer_matrix_weights(self) -> int:
        """Matrices of all layers."""
        return round(self._layer_weights(max(1, self.experts)))

    @property
    def active_weights(self) -> int:
        """Those of them that one token is multiplied with."""
        return round(self._layer_weights(self.experts_per_token if self.experts else 1))

    def read_weights(self, tokens: int) -> float:
        """Those of them that a step of so many tokens reads: all, but for experts that no token chose.

        Each token chooses k of E experts evenly and by itself: E (1 - (1 - k / E)^tokens) are chosen on average.
        """
        if not self.experts:
            return float(self.layer_matrix_weights)
        missed = (1 - self.experts_per_token / self.experts) ** tokens
        return self._layer_weights(self.experts * (1 - missed))

    def _layer_weights(self, experts: float) -> float:
        """Matrices of all layers with so many experts in each: the router and what is shared are always there."""
        shared = (3 if self.gated else 2) * self.hidden_size * self.shared_intermediate_size
        # A shared expert has a gate of its own (Qwen2-MoE).
        router = self.hidden_size * (self.experts + (1 if self.shared_intermediate_size else 0))
        return self.num_layers * (self.attention_weights + shared + router + experts * self.feed_forward_weights)

    @property
    def head_weights(self) -> int:
        return self.vocab_size * self.hidden_size

    @property
    def vector_weights(self) -> int:
        """Norms and biases: too few to cost time, counted to meet the published numbers."""
        hidden, qkv = self.hidden_size, self.head_dim * (self.num_heads + 2 * self.num_kv_heads)
        norm = hidden * (2 if self.every_bias else 1)
        layer = 2 * norm + (2 * self.head_dim if self.qk_norm else 0)
        if self.qkv_bias or self.every_bias:
            layer += qkv
        if self.every_bias:
            layer += hidden + self.intermediate_size + hidden
        embedding_norm = norm if self.family == "bloom" else 0
        return self.num_layers * layer + norm + embedding_norm

    @property
    def parameters(self) -> int:
        """As a model card counts them: a tied head once."""
        embeddings = self.head_weights * (1 if self.tied else 2) + self.position_rows * self.hidden_size
        return self.layer_matrix_weights + self.vector_weights + embeddings

    def weight_bytes(self, weights: WeightFormat) -> int:
        """All tensors as stored."""
        rest = (self.parameters - self.layer_matrix_weights) * weights.plain_bytes
        return int(self.layer_matrix_weights * weights.bytes_per_weight) + rest

    def kv_bytes_per_token(self, kv_element_bytes: int) -> int:
        """Keys and values of one position over all layers."""
        return 2 * self.num_layers * self.num_kv_heads * self.head_dim * kv_element_bytes

    def shape(self, weights: WeightFormat, kv_element_bytes: int) -> ModelShape:
        """For counting work. An ungated feed-forward is given as a gated one of two thirds the width, experts as one as
        wide as those that a token chooses: equal work. The bytes of experts are counted as if all were read.
        """
        width = self.intermediate_size if self.gated else self.intermediate_size * 2 // 3
        if self.experts:
            width = width * self.experts_per_token + self.shared_intermediate_size
        return ModelShape(
            num_layers=self.num_layers,
            hidden_size=self.hidden_size,
            num_heads=self.num_heads,
            num_kv_heads=self.num_kv_heads,
            head_dim=self.head_dim,
            intermediate_size=width,
            vocab_size=self.vocab_size,
            layer_weight_bytes=int(self.layer_matrix_weights * weights.bytes_per_weight),
            head_weight_bytes=self.head_weights * weights.plain_bytes,
            kv_element_bytes=kv_element_bytes,
        )


def load_config(path: Path) -> TransformerConfig:
    """Read a config.json, or the one in a model's directory.

    Raises:
        DeviceModelError: it cannot be read, or is of a kind that cannot be described.
    """
    file = path / "config.json" if path.is_dir() else path
    try:
        config = json.loads(file.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise DeviceModelError(f"{file} cannot be read as a model's config.json: {error}.") from error
    if not isinstance(config, dict):
        raise DeviceModelError(f"{file} holds no JSON object; a model's config.json does.")
    return parse_config(config, name=file.parent.name or file.stem, source=str(file))


def parse_config(config: Mapping[str, Any], *, name: str, source: str = "config.json") -> TransformerConfig:
    """Sizes from the object that a config.json holds.

    Raises:
        DeviceModelError: a size is missing or no positive whole number, or the layers are not of a kind that can be
            described.
    """
    inner = config.get("text_config", config)
    if not isinstance(inner, Mapping):
        raise DeviceModelError(f"{source}: text_config is no object.")
    for key, what in _REFUSED.items():
        if inner.get(key) not in (None, 0, 1, False, []):
            raise DeviceModelError(f"{source} describes {what} ({key} = {inner[key]}). {_MEASURE}")
    family = str(inner.get("model_type", ""))
    hidden, heads = _size(inner, "hidden_size", source), _size(inner, "num_attention_heads", source)
    positions = _size(inner, "max_position_embeddings", source, 2048)
    experts = _experts(inner, source)
    wide = "moe_intermediate_size" if experts and inner.get("moe_intermediate_size") else "intermediate_size"
    return TransformerConfig(
        name=name,
        family=family,
        num_layers=_size(inner, "num_hidden_layers", source),
        hidden_size=hidden,
        num_heads=heads,
        num_kv_heads=1 if inner.get("multi_query") else _size(inner, "num_key_value_heads", source, heads),
        head_dim=_size(inner, "head_dim", source, hidden // heads),
        intermediate_size=_size(inner, wide, source, 4 * hidden),
        vocab_size=_size(inner, "vocab_size", source),
        context_length=positions,
        tied=bool(inner.get("tie_word_embeddings", config.get("tie_word_embeddings", family in _TIED_BY_DEFAULT))),
        gated=family not in _UNGATED,
        qkv_bias=bool(inner.get("attention_bias", inner.get("use_qkv_bias", family == "qwen2"))),
        every_bias=family in _BIASED,
        qk_norm=family in ("qwen3", "qwen3_moe"),
        position_rows=positions + _LEARNED_POSITIONS[family] if family in _LEARNED_POSITIONS else 0,
        experts=experts,
        experts_per_token=_size(inner, "num_experts_per_tok", source) if experts else 0,
        shared_intermediate_size=int(inner.get("shared_expert_intermediate_size") or 0) if experts else 0,
    )


def _experts(config: Mapping[str, Any], source: str) -> int:
    """Experts in a layer; 0 where there is no choice. Refuses models in which only some layers have them."""
    found = config.get("num_local_experts") or config.get("num_experts") or 0
    if found in (0, 1):
        return 0
    for key in ("decoder_sparse_step", "interleave_moe_layer_step", "moe_layer_freq"):
        if config.get(key) not in (None, 1):
            raise DeviceModelError(f"{source}: only some layers have experts ({key} = {config[key]}). {_MEASURE}")
    if not isinstance(found, int) or found < 1:
        raise DeviceModelError(f"{source}: the number of experts is {found!r}; it must be a positive whole number.")
    return found


def _size(config: Mapping[str, Any], key: str, source: str, default: int | None = None) -> int:
    value = next((config[name] for name in (key, *_ALIASES.get(key, ())) if config.get(name) is not None), default)
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise DeviceModelError(f"{source}: {key} is {value!r}; it must be a positive whole number.")
    return value
