"""A checkpoint from a Hugging Face directory: config.json and safetensors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from chairlift.core.errors import CorruptModel, UnsupportedModel
from chairlift.runners.openvino.architecture import (
    SUPPORTED_FAMILIES,
    Architecture,
    inverse_frequencies,
    refuse_experts,
    refuse_family,
    refuse_partial_rotation,
    scale_frequencies,
)
from chairlift.runners.openvino.checkpoint import Checkpoint, LayerTensors, Linear
from chairlift.runners.openvino.safetensors_files import SafetensorsDirectory
from chairlift.runners.openvino.tensors import StoredTensor

_BUFFERS = "rotary_emb.inv_freq"
"""Old checkpoints store this derived value; it is not needed."""


def read_directory(directory: Path) -> Checkpoint:
    """Open a directory of the Llama, Mistral or Qwen2 family.

    Raises:
        UnsupportedModel, CorruptModel: as open_checkpoint.
    """
    config = _Config(directory / "config.json")
    architecture = _architecture(config)
    weights = SafetensorsDirectory(directory)
    used = _Names(weights)
    tied = bool(config.get("tie_word_embeddings", False))
    checkpoint = Checkpoint(
        path=directory,
        architecture=architecture,
        embedding=used.tensor("model.embed_tokens.weight"),
        layers=tuple(_layer(used, index) for index in range(architecture.num_layers)),
        norm=used.tensor("model.norm.weight"),
        head=None if tied else used.tensor("lm_head.weight"),
        tokenizer=directory,
        release=weights.release_pages,
    )
    unused = sorted(name for name in weights.names - used.taken - {"lm_head.weight"} if not name.endswith(_BUFFERS))
    if unused:
        raise UnsupportedModel(
            f"{directory} calls itself {architecture.family!r} but has tensors that family does not know: "
            f"{', '.join(unused[:4])}{' …' if len(unused) > 4 else ''}. Running it without them would give wrong "
            "answers: "
            f"choose another model."
        )
    return checkpoint


class _Names:
    """Hands out tensors and remembers which, so that what is left over can be refused."""

    def __init__(self, weights: SafetensorsDirectory) -> None:
        self._weights = weights
        self.taken: set[str] = set()

    def tensor(self, name: str) -> StoredTensor:
        self.taken.add(name)
        return self._weights.tensor(name)

    def linear(self, name: str) -> Linear:
        """A matrix and its bias, if it has one."""
        has_bias = f"{name}.bias" in self._weights.names
        return Linear(self.tensor(f"{name}.weight"), self.tensor(f"{name}.bias") if has_bias else None)


def _layer(names: _Names, index: int) -> LayerTensors:
    prefix = f"model.layers.{index}."
    return LayerTensors(
        attention_norm=names.tensor(prefix + "input_layernorm.weight"),
        query=names.linear(prefix + "self_attn.q_proj"),
        key=names.linear(prefix + "self_attn.k_proj"),
        value=names.linear(prefix + "self_attn.v_proj"),
        attention_output=names.linear(prefix + "self_attn.o_proj"),
        feed_forward_norm=names.tensor(prefix + "post_attention_layernorm.weight"),
        gate=names.linear(prefix + "mlp.gate_proj"),
        up=names.linear(prefix + "mlp.up_proj"),
        down=names.linear(prefix + "mlp.down_proj"),
    )


def _architecture(config: _Config) -> Architecture:
    family = config.get("model_type")
    if family not in SUPPORTED_FAMILIES:
        raise refuse_family(str(family or config.get("architectures")))
    if experts := config.get("num_local_experts", config.get("num_experts", 0)):
        raise refuse_experts(experts)
    if quantisation := config.get("quantization_config"):
        method = quantisation.get("quant_method", "?") if isinstance(quantisation, dict) else quantisation
        raise UnsupportedModel(
            f"the model's weights are quantised by {method!r}, which this build cannot run. "
            f"Take the model's original weights, or a GGUF file of it."
        )
    if (activation := config.get("hidden_act", "silu")) not in ("silu", "swish"):
        raise UnsupportedModel(f"the model's activation is {activation!r}; this build computes silu.")
    heads, hidden = config.integer("num_attention_heads"), config.integer("hidden_size")
    if heads < 1:
        raise CorruptModel(f"{config.path} has {heads} attention heads. Fetch it again.")
    head_dim = config.integer("head_dim", hidden // heads)
    # transformers 5 gathers in rope_parameters what older versions write as rope_theta and rope_scaling.
    scaling = config.mapping("rope_parameters") or config.mapping("rope_scaling")
    theta = scaling.get("rope_theta", config.get("rope_theta", 10000.0))
    if not isinstance(theta, int | float) or theta <= 0:
        raise CorruptModel(f"{config.path}: rope_theta is {theta!r}, not a positive number. Fetch it again.")
    partial = scaling.get("partial_rotary_factor", config.get("partial_rotary_factor", 1.0))
    if partial != 1.0:
        raise refuse_partial_rotation(partial * head_dim, head_dim)
    return Architecture(
        family=family,
        num_layers=config.integer("num_hidden_layers"),
        hidden_size=hidden,
        intermediate_size=config.integer("intermediate_size"),
        num_heads=heads,
        num_kv_heads=config.integer("num_key_value_heads", heads),
        head_dim=head_dim,
        context_length=config.integer("max_position_embeddings"),
        norm_epsilon=config.number("rms_norm_eps"),
        inverse_frequencies=scale_frequencies(inverse_frequencies(head_dim, float(theta)), scaling).astype(np.float32),
        sliding_window=_sliding_window(config, family),
    )


def _sliding_window(config: _Config, family: str) -> int | None:
    """Mistral slides whenever a window is given; Qwen2 only when told so."""
    window = config.get("sliding_window")
    if window is None or (family == "qwen2" and not config.get("use_sliding_window", False)):
        return None
    return config.integer("sliding_window") if family != "llama" else None


class _Config:
    """config.json with typed access."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            values = json.loads(path.read_text("utf-8"))
        except FileNotFoundError as error:
            raise CorruptModel(
                f"{path.parent} has no config.json: it is no model directory, or a file is missing. Give a GGUF "
                "file, or a "
                f"folder with config.json, safetensors and tokenizer.json."
            ) from error
        except (ValueError, OSError) as error:
            raise CorruptModel(f"{path} cannot be read ({error}). Fetch it again.") from error
        if not isinstance(values, dict):
            raise CorruptModel(f"{path} holds no settings. Fetch it again.")
        self._values: dict[str, Any] = values

    def get(self, key: str, default: Any = None) -> Any:
        return self._values.get(key, default)

    def number(self, key: str) -> float:
        return self._checked(key, self._values.get(key))

    def integer(self, key: str, default: int | None = None) -> int:
        value = self._values.get(key)
        return int(self._checked(key, default if value is None else value))

    def mapping(self, key: str) -> dict[str, Any]:
        value = self._values.get(key)
        if value is None:
            return {}
        if not isinstance(value, dict):
            raise CorruptModel(f"{self.path}: {key} is {value!r}, not a group of settings. Fetch it again.")
        return value

    def _checked(self, key: str, value: Any) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float):
            what = "is missing" if value is None else f"is {value!r}, not a number"
            raise CorruptModel(f"{self.path}: {key} {what}. Fetch it again.")
        return value
