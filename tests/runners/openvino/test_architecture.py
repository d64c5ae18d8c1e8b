import math
from typing import Any

import numpy as np
import pytest

from chairlift.core.errors import CorruptModel, UnsupportedModel
from chairlift.runners.openvino.architecture import Architecture, inverse_frequencies, scale_frequencies

LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}


def make(**changes: Any) -> Architecture:
    """A valid architecture, changed."""
    sizes: dict[str, Any] = {
        "family": "llama",
        "num_layers": 1,
        "hidden_size": 8,
        "intermediate_size": 16,
        "num_heads": 4,
        "num_kv_heads": 2,
        "head_dim": 2,
        "context_length": 64,
        "norm_epsilon": 1e-5,
        "inverse_frequencies": np.ones(1, np.float32),
    }
    return Architecture(**{**sizes, **changes})


def test_frequencies_fall_by_powers_of_theta() -> None:
    """Head size 4, theta 100: 1 and 1 / 10."""
    assert inverse_frequencies(4, 100.0).tolist() == pytest.approx([1.0, 0.1])


@pytest.mark.parametrize("scaling", [{}, {"rope_type": "default"}, {"type": None}])
def test_no_scaling_changes_nothing(scaling: dict[str, Any]) -> None:
    """Absent or default scaling leaves the frequencies."""
    assert scale_frequencies(np.ones(2), scaling).tolist() == [1, 1]


@pytest.mark.parametrize("key", ["rope_type", "type"])
def test_linear_scaling_divides(key: str) -> None:
    """Factor 4 makes every rotation four times slower, under the new and the old key."""
    assert scale_frequencies(np.ones(2), {key: "linear", "factor": 4.0}).tolist() == [0.25, 0.25]


def test_llama3_keeps_fast_rotations_stretches_slow_ones_and_blends_between() -> None:
    """Wavelengths 100, 4,096 and 100,000 against an original context of 8,192, bounds 1 and 4, factor 8."""
    wavelengths = np.array([100.0, 4096.0, 100_000.0])
    frequencies = 2 * math.pi / wavelengths
    blend = (8192 / 4096 - 1) / (4 - 1)

    scaled = scale_frequencies(frequencies, LLAMA3) / frequencies

    assert scaled.tolist() == pytest.approx([1.0, (1 - blend) / 8 + blend, 1 / 8])


def test_other_scalings_are_refused_by_name() -> None:
    """Yarn is not computed."""
    with pytest.raises(UnsupportedModel, match="'yarn'; supported are default, linear and llama3"):
        scale_frequencies(np.ones(2), {"rope_type": "yarn", "factor": 4.0})


@pytest.mark.parametrize("change", [{"factor": None}, {"factor": 0}, {"low_freq_factor": "1"}, {"factor": True}])
def test_a_scaling_parameter_that_is_no_positive_number_is_damage(change: dict[str, Any]) -> None:
    """Missing, zero, text or a truth value."""
    key = next(iter(change))
    with pytest.raises(CorruptModel, match=f"'llama3' needs a positive {key}"):
        scale_frequencies(np.ones(2), {**LLAMA3, **change})


def test_llama3_bounds_in_the_wrong_order_are_damage() -> None:
    """The blend divides by their difference."""
    with pytest.raises(CorruptModel, match="high_freq_factor 1, not above low_freq_factor 1"):
        scale_frequencies(np.ones(2), {**LLAMA3, "high_freq_factor": 1.0})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_layers": 0}, "num_layers is 0"),
        ({"context_length": -1}, "context_length is -1"),
        ({"num_kv_heads": 3}, "4 attention heads on 3 key-value heads"),
        ({"head_dim": 3}, "head_dim is 3"),
    ],
)
def test_contradicting_sizes_are_damage(change: dict[str, Any], message: str) -> None:
    """Sizes that no model can have are refused when the architecture is made."""
    with pytest.raises(CorruptModel, match=message):
        make(**change)


def test_a_sliding_window_limits_the_context() -> None:
    """Up to the window, sliding changes nothing: that far the model is supported."""
    assert make().longest_context == 64
    assert make(sliding_window=16).longest_context == 16
    assert make(sliding_window=128).longest_context == 64
