from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from chairlift.core.config import KVCapacity
from chairlift.core.errors import ConfigError, CorruptModel, OutOfDeviceMemory, StepFailed
from chairlift.core.plan import RowKind
from chairlift.runners.base import Sampled
from chairlift.runners.openvino.compiled import CompiledModel
from chairlift.runners.openvino.formats import open_checkpoint
from chairlift.runners.openvino.memory import MIB, resident_bytes, return_freed_memory
from chairlift.runners.openvino.runner import OpenVINORunner
from chairlift.runners.openvino.settings import RunnerSettings, StepLimits
from tests.runners.openvino.helpers import MODELS, KeepLogits, Row, open_bench, plan_of

LIMITS = StepLimits(max_model_len=128, max_tokens=64, max_rows=4)
MODEL = MODELS / "llama-gqa.Q8_0.gguf"


def test_the_scratch_block_lies_beyond_the_usable_ones() -> None:
    """16 usable blocks 0 .. 15, scratch 16, and the bytes of a block over all layers."""
    runner = open_bench("llama-gqa.Q8_0.gguf", num_kv_blocks=16).runner

    assert runner.capacity() == KVCapacity(32, 16, scratch_block=16, block_bytes=32 * 2 * 2 * 2 * 8 * 4)
    assert runner.shape().kv_bytes_per_token * 32 == runner.capacity().block_bytes


def test_an_open_checkpoint_is_taken_as_it_is() -> None:
    """Who has read the tokenizer from a checkpoint need not open the file again."""
    checkpoint = open_checkpoint(MODEL)

    runner = OpenVINORunner(checkpoint, LIMITS, KeepLogits(), RunnerSettings(num_kv_blocks=8))

    assert runner.shape() == checkpoint.shape(kv_element_bytes=2)


def test_without_settings_the_pool_holds_every_sequence_that_may_run() -> None:
    """4 sequences of 128 tokens: 16 blocks, and the report says why."""
    runner = OpenVINORunner(MODEL, LIMITS, KeepLogits())

    assert runner.capacity().num_blocks == 16
    assert "by 4 sequences of --max-model-len 128" in str(runner.memory)
    assert runner.memory.largest_step == "64 tokens in 4 rows, context 128"


@pytest.mark.parametrize(
    ("limits", "settings", "error", "message"),
    [
        (StepLimits(512, 64, 4), RunnerSettings(), ConfigError, "lower it to 256"),
        (LIMITS, RunnerSettings(num_kv_blocks=3), OutOfDeviceMemory, "Lower --max-model-len to 96"),
        (LIMITS, RunnerSettings(kv_cache_memory=1 << 62), OutOfDeviceMemory, "KV pool of .* does not fit"),
    ],
)
def test_what_cannot_be_is_refused_at_start(
    limits: StepLimits, settings: RunnerSettings, error: type[Exception], message: str
) -> None:
    """A context beyond the model, a pool too small for one sequence, a pool beyond the memory."""
    with pytest.raises(error, match=message):
        OpenVINORunner(MODEL, limits, KeepLogits(), settings)


def test_a_truncated_file_is_refused_at_start(tmp_path: Path) -> None:
    """Before anything is compiled."""
    (tmp_path / "m.gguf").write_bytes(MODEL.read_bytes()[:-999])

    with pytest.raises(CorruptModel, match="truncated"):
        OpenVINORunner(tmp_path / "m.gguf", LIMITS, KeepLogits())


class FailsOne(KeepLogits):
    """A sampler that cannot choose for the second of its rows."""

    def __call__(self, request_ids: Sequence[str], logits: NDArray[np.float32]) -> Sampled:
        tokens = super().__call__(request_ids, logits).tokens
        return Sampled(tokens, {1: "no finite logit"})


def test_a_row_that_fails_is_reported_under_its_index_in_the_plan() -> None:
    """Row 0 samples nothing, so the sampler's second row is the plan's third; the others keep their tokens."""
    runner = OpenVINORunner(MODEL, LIMITS, FailsOne(), RunnerSettings(num_kv_blocks=8))

    outcome = runner.execute(plan_of(*(Row([5, 6], 0, [i], samples=i > 0, kind=RowKind.PREFILL) for i in range(4))))

    assert outcome.failures == {2: "no finite logit"}
    assert len(outcome.tokens) == 3


def test_a_step_that_the_device_refuses_can_be_planned_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """OpenVINO's error becomes StepFailed; the same plan then runs."""
    runner = OpenVINORunner(MODEL, LIMITS, KeepLogits(), RunnerSettings(num_kv_blocks=8))
    plan = plan_of(Row([5, 6], 0, [0]))
    expected = runner.execute(plan).tokens

    def fail(_: CompiledModel) -> None:
        raise RuntimeError("out of something")

    with monkeypatch.context() as patch:
        patch.setattr(CompiledModel, "infer", fail)
        with pytest.raises(StepFailed, match="OpenVINO failed in step 0: out of something"):
            runner.execute(plan)

    assert runner.execute(plan).tokens == expected


def test_a_closed_runner_gives_its_pool_back() -> None:
    """A pool of 64 MiB is gone from the process after close()."""
    runner = OpenVINORunner(MODEL, LIMITS, KeepLogits(), RunnerSettings(kv_cache_memory=64 * MIB))
    before = resident_bytes()

    runner.close()

    return_freed_memory()
    assert before - resident_bytes() > 56 * MIB
