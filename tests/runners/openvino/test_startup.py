from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chairlift.core.errors import ConfigError, OutOfDeviceMemory
from chairlift.runners.openvino.formats import open_checkpoint
from chairlift.runners.openvino.memory import MIB, AllowedMemory
from chairlift.runners.openvino.settings import RunnerSettings, StepLimits
from chairlift.runners.openvino.startup import (
    check_context,
    huge_pages_seconds,
    largest_step,
    one_block_inputs,
    size_pool,
)
from tests.runners.openvino.helpers import MODELS

ALLOWED = AllowedMemory(total=2000 * MIB, available=1500 * MIB, limited_by="machine")
LIMITS = StepLimits(max_model_len=320, max_tokens=64, max_rows=4)


def blocks(limits: StepLimits = LIMITS, **settings: Any) -> int:
    """Usable blocks of a pool with blocks of 1 MiB when 300 MiB are taken by the rest."""
    return size_pool(RunnerSettings(**settings), limits, ALLOWED, 300 * MIB, MIB).num_blocks


def test_the_share_less_what_is_taken_becomes_blocks() -> None:
    """0.5 of 2,000 MiB, less 300, less the scratch block."""
    assert blocks(gpu_memory_utilization=0.5) == 699


def test_bytes_override_the_share_and_include_the_scratch_block() -> None:
    """100 MiB are 99 usable blocks of 1 MiB."""
    assert blocks(gpu_memory_utilization=0.5, kv_cache_memory=100 * MIB) == 99


def test_a_number_of_blocks_overrides_both() -> None:
    """num_kv_blocks counts usable blocks."""
    assert blocks(gpu_memory_utilization=0.5, kv_cache_memory=100 * MIB, num_kv_blocks=12) == 12


def test_without_a_wish_the_pool_is_no_larger_than_running_sequences_can_fill() -> None:
    """4 sequences of 320 tokens: 40 blocks; a share that was asked for is used in full."""
    assert blocks() == 40
    assert blocks(gpu_memory_utilization=0.5) > 40


def test_without_a_wish_the_pool_keeps_to_what_is_available() -> None:
    """1,500 MiB available, 300 taken, 64 kept free, one scratch block."""
    many = StepLimits(max_model_len=32_000, max_tokens=64, max_rows=64)
    roomy = AllowedMemory(total=20_000 * MIB, available=1500 * MIB, limited_by="machine")

    size = size_pool(RunnerSettings(), many, roomy, 300 * MIB, MIB)

    assert size.num_blocks == 1500 - 300 - 64 - 1
    assert size.decided_by == "available memory (1,500 MiB)"


def test_a_model_length_that_cannot_fit_is_refused_with_the_largest_that_would() -> None:
    """320 tokens need 10 blocks; 9 hold 288."""
    with pytest.raises(OutOfDeviceMemory, match=r"320 needs 10 KV blocks .*leaves 9: .*Lower --max-model-len to 288"):
        blocks(num_kv_blocks=9)
    assert blocks(num_kv_blocks=10) == 10


def test_memory_that_the_weights_take_alone_is_refused_with_what_it_would_take() -> None:
    """A share of 200 MiB cannot hold 300 MiB of weights: no model length is offered, the sum is."""
    with pytest.raises(OutOfDeviceMemory, match=r"leaves 0: .* take 300 MiB. Give 311 MiB in all: raise") as told:
        blocks(gpu_memory_utilization=0.1)
    assert "Lower --max-model-len" not in str(told.value)


def test_a_context_beyond_the_model_is_refused_with_the_longest() -> None:
    """The tiny models were made for 256 positions, the tiny Mistral slides from 128 on."""
    llama, mistral = (open_checkpoint(MODELS / name).architecture for name in ("llama-mha", "mistral"))

    check_context(StepLimits(256, 64, 4), llama)
    with pytest.raises(ConfigError, match=r"is 257, but the model was trained for 256 .*lower it to 256"):
        check_context(StepLimits(257, 64, 4), llama)
    with pytest.raises(ConfigError, match=r"is 129, but beyond 128 the model's sliding window would bind"):
        check_context(StepLimits(129, 64, 4), mistral)


@given(length=st.integers(1, 300), tokens=st.integers(1, 600), rows=st.integers(1, 64))
def test_the_largest_step_uses_all_tokens_at_the_end_of_full_contexts(length: int, tokens: int, rows: int) -> None:
    """All rows, and as many tokens as they can hold and a step may have; each row ends where its context does."""
    limits = StepLimits(length, tokens, min(rows, tokens))

    starts, counts = largest_step(limits)

    assert sum(counts) == min(tokens, limits.max_rows * length)
    assert len(counts) == limits.max_rows
    assert min(counts) >= 1
    assert min(starts) >= 0
    assert {start + count for start, count in zip(starts, counts, strict=True)} == {length}


def test_warm_up_rows_lie_in_block_0_alone() -> None:
    """Whatever the context, a pool of one block suffices."""
    inputs = one_block_inputs((100, 0), (1, 40))

    assert np.unique(inputs.block_indices).tolist() == [0]
    assert inputs.block_indices_begins.tolist() == [0, 4, 6]
    assert inputs.sampled.tolist() == [0, 40]


def test_time_for_huge_pages_grows_with_the_weights() -> None:
    """None for a small model or when switched off; else a second, and two more for each GiB."""
    assert huge_pages_seconds(RunnerSettings(), weight_bytes=100 * MIB) == 0
    assert huge_pages_seconds(RunnerSettings(huge_pages=False), weight_bytes=1024 * MIB) == 0
    assert huge_pages_seconds(RunnerSettings(), weight_bytes=512 * MIB) == 2
