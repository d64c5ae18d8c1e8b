"""What kind of model a checkpoint holds: the hyperparameters of the Llama and Qwen2 families.

Both are decoder-only: RMSNorm, rotary positions, grouped-query attention, a gated SiLU feed-forward. They differ in
biases only, which the checkpoint's tensors show. Mistral (without a binding sliding window) is of the Llama family.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from chairlift.core.errors import CorruptModel, UnsupportedModel

SUPPORTED_FAMILIES = ("llama", "mistral", "qwen2")
WAY_OUT = f"Supported are the families {', '.join(SUPPORTED_FAMILIES)}: choose such a model."


@dataclass(frozen=True, slots=True, eq=False)
class Architecture:
    """Hyperparameters. All sizes in elements."""

    family: str
    """llama, mistral or qwen2."""
    num_layers: int
    hidden_size: int
    intermediate_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    context_length: int
    """Most positions the model was made for."""
    norm_epsilon: float
    inverse_frequencies: NDArray[np.float32]
    """Rotation per position, radians: [head_dim / 2], whatever scaling the model asks for included."""
    sliding_window: int | None = None
    """Each position attends to this many at most; only contexts up to it are supported, where it changes nothing."""

    def __post_init__(self) -> None:
        """Raises CorruptModel when sizes contradict each other."""
        for name in (
            "num_layers",
            "hidden_size",
            "intermediate_size",
            "num_heads",
            "num_kv_heads",
            "head_dim",
            "context_length",
        ):
            if (value := getattr(self, name)) < 1:
                raise CorruptModel(f"the model's {name} is {value}; it must be positive. Fetch the model again.")
        if self.num_heads % self.num_kv_heads:
            raise CorruptModel(
                f"the model has {self.num_heads} attention heads on {self.num_kv_heads} key-value heads, which "
                "does not divide. "
                f"Fetch the model again."
            )
        if self.head_dim % 2:
            raise CorruptModel(
                f"the model's head_dim is {self.head_dim}; rotary positions need an even one. Fetch the model again."
            )

    @property
    def longest_context(self) -> int:
        """Most tokens of a sequence that this build computes as the model was trained."""
        return min(self.context_length, self.sliding_window or self.context_length)


def refuse_family(name: str) -> UnsupportedModel:
    """The error for an architecture that is not supported."""
    return UnsupportedModel(f"the model's architecture is {name!r}, which this build cannot run. {WAY_OUT}")


def refuse_experts(count: int) -> UnsupportedModel:
    """The error for a mixture of experts."""
    return UnsupportedModel(f"the model is a mixture of {count} experts, which this build cannot run. {WAY_OUT}")


def refuse_partial_rotation(rotated: float, head_dim: int) -> UnsupportedModel:
    """The error for rotary positions on a part of each head."""
    return UnsupportedModel(
        f"the model rotates {rotated:g} of {head_dim} dimensions of a head; this build rotates all. {WAY_OUT}"
    )


def inverse_frequencies(head_dim: int, theta: float) -> NDArray[np.float64]:
    """theta^(-2i / head_dim) for i in 0 .. head_dim / 2 - 1 (Su et al., RoFormer, arXiv 2104.09864)."""
    return theta ** -(np.arange(0, head_dim, 2, dtype=np.float64) / head_dim)


def scale_frequencies(frequencies: NDArray[np.float64], scaling: Mapping[str, Any]) -> NDArray[np.float64]:
    """Apply the scaling that config.json asks for.

    Args:
        frequencies: [head_dim / 2], as inverse_frequencies gives them.
        scaling: `rope_scaling` or `rope_parameters` of config.json.

    Raises:
        UnsupportedModel: a type other than default, linear and llama3.
        CorruptModel: a parameter is missing or no number.
    """
    kind = scaling.get("rope_type", scaling.get("type", "default"))
    if kind in (None, "default"):
        return frequencies
    if kind == "linear":
        return frequencies / _number(scaling, "factor")
    if kind == "llama3":
        return _llama3(frequencies, scaling)
    raise UnsupportedModel(
        f"the model scales its rotary positions by {kind!r}; supported are default, linear and llama3. "
        f"Choose a model of another context length."
    )


def _llama3(frequencies: NDArray[np.float64], scaling: Mapping[str, Any]) -> NDArray[np.float64]:
    """Stretch slow rotations, keep fast ones, blend those between (Llama 3.1's reference code, apply_scaling)."""
    factor = _number(scaling, "factor")
    low, high = _number(scaling, "low_freq_factor"), _number(scaling, "high_freq_factor")
    original = _number(scaling, "original_max_position_embeddings")
    if high <= low:
        raise CorruptModel(
            f"rope scaling has high_freq_factor {high:g}, not above low_freq_factor {low:g}. Fetch the model again."
        )
    wavelengths = 2 * math.pi / frequencies
    blend = np.clip((original / wavelengths - low) / (high - low), 0.0, 1.0)
    return (1 - blend) * frequencies / factor + blend * frequencies


def _number(scaling: Mapping[str, Any], key: str) -> float:
    value = scaling.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float) or value <= 0:
        raise CorruptModel(
            f"rope scaling {scaling.get('rope_type')!r} needs a positive {key}; config.json has {value!r}."
        )
    return float(value)
