from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chairlift.core.errors import ConfigError, DeviceModelError, OutOfDeviceMemory
from chairlift.devices.memory import MemoryModel, MemoryPlan
from chairlift.devices.shape import StepShape
from tests.devices.helpers import MEMORY, MIB

LARGEST = StepShape.prefill(8, 64)
"""512 tokens, 8 rows of logits: 72 MiB of activations."""


def plan(share: float = 0.9, **settings: Any) -> MemoryPlan:
    """MEMORY divided for steps of up to 512 tokens and 8 rows."""
    return MEMORY.plan(gpu_memory_utilization=share, block_size=16, max_num_batched_tokens=512, max_rows=8, **settings)


def test_what_the_share_leaves_becomes_blocks() -> None:
    """900 - 400 weights - 50 runtime - 72 activations = 378 MiB: 377 blocks of 1 MiB and the scratch block."""
    divided = plan()

    assert divided.num_blocks == 377
    assert divided.kv_pool == 378 * MIB
    assert divided.capacity.num_blocks == 377
    assert divided.capacity.scratch_block == 377
    assert divided.capacity.block_bytes == MIB
    assert divided.longest_sequence == 377 * 16
    assert "377 blocks = 6,032 tokens, by --gpu-memory-utilization" in str(divided)


def test_the_largest_permitted_step_fits_beside_a_moderate_share() -> None:
    """What the budget does not see (30 MiB) comes out of the tenth of the device that the share leaves."""
    divided = plan()

    assert divided.headroom == (1000 - 30 - 450 - 378) * MIB
    divided.check_step(LARGEST)


def test_too_high_a_share_starts_and_runs_out_of_memory_later() -> None:
    """At 0.99 the pool takes 468 MiB and leaves 52 for activations: small steps pass, the largest permitted fails."""
    divided = plan(0.99)

    divided.check_step(StepShape.decode(8, 100))
    with pytest.raises(OutOfDeviceMemory, match="--gpu-memory-utilization") as caught:
        divided.check_step(LARGEST)
    assert "needs 72 MiB" in str(caught.value)
    assert "leave 52 MiB" in str(caught.value)


def test_a_pool_given_in_bytes_or_blocks_is_taken_as_it_is() -> None:
    """Both override the share; the scratch block is part of the bytes."""
    assert plan(kv_cache_memory=100 * MIB).num_blocks == 99
    assert plan(num_kv_blocks=123, kv_cache_memory=100 * MIB).num_blocks == 123


def test_a_pool_larger_than_the_device_is_refused_with_what_would_fit() -> None:
    """1000 - 30 - 450 - 72 = 448 MiB: 447 blocks beside the largest step."""
    with pytest.raises(OutOfDeviceMemory, match="--num-kv-blocks 447"):
        plan(num_kv_blocks=600)


def test_weights_that_do_not_fit_are_refused_with_the_way_out() -> None:
    """At half of the device nothing is left for a block: the sum that would do is named."""
    with pytest.raises(OutOfDeviceMemory, match="524 MiB would do") as caught:
        plan(0.5)
    assert "--tensor-parallel-size" in str(caught.value)


@pytest.mark.parametrize("share", [0, -0.1, 1.1])
def test_an_impossible_share_is_refused(share: float) -> None:
    """The flag is named."""
    with pytest.raises(ConfigError, match="--gpu-memory-utilization"):
        plan(share)


@pytest.mark.parametrize("name", ["block_size", "kv_cache_memory", "num_kv_blocks"])
@pytest.mark.parametrize("value", [0, -16])
def test_settings_that_cannot_be_are_refused(name: str, value: int) -> None:
    """By their flag, before anything is divided by them."""
    settings = {"gpu_memory_utilization": 0.9, "block_size": 16, "max_num_batched_tokens": 512, "max_rows": 8}

    with pytest.raises(ConfigError, match=f"--{name.replace('_', '-')} is {value}; it must be at least 1"):
        MEMORY.plan(**{**settings, name: value})  # type: ignore[arg-type]


def test_an_impossible_size_is_refused() -> None:
    """A device without memory is none."""
    with pytest.raises(DeviceModelError, match="capacity"):
        MemoryModel(capacity=0, weights=1, runtime=1, kv_bytes_per_token=1)


@given(
    share=st.floats(0.5, 0.97),
    tokens=st.integers(1, 600),
    rows=st.integers(1, 40),
    block_size=st.sampled_from([1, 16, 32]),
)
def test_a_pool_by_the_share_never_exceeds_the_budget(share: float, tokens: int, rows: int, block_size: int) -> None:
    """Weights, runtime, activations and pool stay within it, less than one block is left over."""
    try:
        divided = MEMORY.plan(
            gpu_memory_utilization=share, block_size=block_size, max_num_batched_tokens=tokens, max_rows=rows
        )
    except OutOfDeviceMemory:
        return

    taken = MEMORY.weights + MEMORY.runtime + divided.activations + divided.kv_pool
    assert divided.budget - divided.block_bytes < taken <= divided.budget
    divided.check_step(StepShape(tokens, rows, rows))
