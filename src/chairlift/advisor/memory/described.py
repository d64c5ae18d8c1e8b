"""A model's sizes, wherever they are written: a built-in model, a config.json, a directory, or a GGUF file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any, Final

from chairlift.core.errors import DeviceModelError
from chairlift.devices.registry import find_config
from chairlift.devices.transformer import WEIGHT_FORMATS, TransformerConfig, parse_config

_GGUF_KEYS: Final = {
    "num_hidden_layers": "block_count",
    "hidden_size": "embedding_length",
    "num_attention_heads": "attention.head_count",
    "num_key_value_heads": "attention.head_count_kv",
    "head_dim": "attention.key_length",
    "intermediate_size": "feed_forward_length",
    "max_position_embeddings": "context_length",
    "num_local_experts": "expert_count",
    "num_experts_per_tok": "expert_used_count",
    "moe_intermediate_size": "expert_feed_forward_length",
    "shared_expert_intermediate_size": "expert_shared_feed_forward_length",
    "kv_lora_rank": "attention.kv_lora_rank",
    "ssm_state_size": "ssm.state_size",
}
"""config.json's keys -> those of GGUF, behind the architecture's name (ggml, docs/gguf.md)."""


@dataclass(frozen=True, slots=True)
class DescribedModel:
    """What memory is reckoned from."""

    config: TransformerConfig
    stored: int | None
    """Bytes of all tensors where the file itself says it (GGUF); None: reckoned from sizes and a precision."""
    source: str
    """Where that was read."""

    @property
    def weights(self) -> str:
        """The format of the device model that is closest to what is stored; of a config.json the usual 16 bits."""
        if self.stored is None:
            return "bf16"
        config = self.config
        per_weight = Fraction(self.stored, config.parameters)
        return min(
            ("f32", "bf16", "int8", "int4"),
            key=lambda name: abs(float(WEIGHT_FORMATS[name].bytes_per_weight - per_weight)),
        )


def describe_model(name: str) -> DescribedModel:
    """Sizes of a model.

    Args:
        name: a built-in model, a config.json, a model's directory, or a GGUF file.

    Raises:
        DeviceModelError: there is none, or it is of a kind that cannot be described.
        CorruptModel: a GGUF file is damaged.
    """
    if name.endswith(".gguf"):
        return _from_gguf(Path(name).expanduser())
    return DescribedModel(find_config(name), None, name)


def _from_gguf(path: Path) -> DescribedModel:
    # Reading GGUF is the runner's business; importing it costs numpy, which the other sources do not need.
    from chairlift.runners.openvino.gguf import GgufFile  # noqa: PLC0415

    if not path.is_file():
        raise DeviceModelError(f"there is no file {path}.")
    file = GgufFile(path)
    family = file.metadata.get("general.architecture")
    if not isinstance(family, str) or "token_embd.weight" not in file.tensors:
        raise DeviceModelError(f"{path} holds no language model: it names no architecture or has no embedding.")
    config = _as_config(file.metadata, family)
    vocabulary, _ = file.tensors["token_embd.weight"].shape
    config |= {"vocab_size": vocabulary, "tie_word_embeddings": "output.weight" not in file.tensors}
    config["use_qkv_bias"] = "blk.0.attn_q.bias" in file.tensors
    return DescribedModel(parse_config(config, name=path.stem, source=str(path)), file.tensor_bytes, str(path))


def _as_config(metadata: Mapping[str, Any], family: str) -> dict[str, Any]:
    found: dict[str, Any] = {"model_type": family}
    for key, theirs in _GGUF_KEYS.items():
        if (value := metadata.get(f"{family}.{theirs}")) is not None:
            found[key] = value
    return found
