from pathlib import Path

import pytest

from chairlift import demo_model
from chairlift.advisor.memory.described import DescribedModel, describe_model
from chairlift.advisor.memory.sources import from_report, of_device, of_this_machine
from chairlift.core.config import SchedulerConfig
from chairlift.core.errors import DeviceModelError
from chairlift.devices.file import save_device_model
from chairlift.devices.registry import find_config
from chairlift.runners.openvino.settings import RunnerSettings, StepLimits
from chairlift.runners.openvino.startup import size_pool
from tests.devices.helpers import MEMORY, device_model


@pytest.mark.model
def test_the_engines_own_start_up_numbers_exactly() -> None:
    """What the runner measured, divided here, gives the runner's pool to the block: by share, by bytes, by number. The
    bytes of a token and of the weights are those reckoned from the file without loading it.
    """
    from chairlift.engine.sampling import BatchSampler  # noqa: PLC0415
    from chairlift.runners.openvino.runner import OpenVINORunner  # noqa: PLC0415

    path = demo_model.locate()
    config = SchedulerConfig(max_num_seqs=4, batch_size=4, max_batch_size=4, max_model_len=256)
    limits = StepLimits.of(config)
    settings = RunnerSettings(gpu_memory_utilization=0.06, threads=2)
    runner = OpenVINORunner(path, limits, BatchSampler(), settings)
    report, capacity = runner.memory, runner.capacity()
    runner.close()
    described, memory = describe_model(str(path)), from_report(report)

    plan = memory.plan(
        gpu_memory_utilization=0.06,
        block_size=capacity.block_size,
        max_num_batched_tokens=limits.max_tokens,
        max_rows=limits.max_rows,
    )

    assert plan.num_blocks == report.num_blocks == capacity.num_blocks
    assert (plan.kv_pool, plan.budget) == (report.kv_pool, report.budget)
    assert memory.kv_bytes_per_token == described.config.kv_bytes_per_token(2)
    assert report.stored_weights == described.stored
    assert report.largest_step.startswith(f"{limits.max_tokens:,} tokens in {limits.max_rows} rows")
    taken = report.before + report.weights_and_runtime + report.activations
    for other in (RunnerSettings(kv_cache_memory=50 << 20), RunnerSettings(num_kv_blocks=77)):
        theirs = size_pool(other, limits, report.allowed, taken, report.block_bytes)
        ours = memory.plan(
            gpu_memory_utilization=0.06,
            block_size=capacity.block_size,
            max_num_batched_tokens=limits.max_tokens,
            max_rows=limits.max_rows,
            kv_cache_memory=other.kv_cache_memory,
            num_kv_blocks=other.num_kv_blocks,
        )
        assert ours.num_blocks == theirs.num_blocks


def test_weights_as_stored_take_the_place_of_reckoned_ones() -> None:
    """Unless a precision is asked for; on two devices each has half."""
    model = DescribedModel(find_config("llama-3.1-8b"), 5_000_000_001, "")

    assert of_device(model, "h100-sxm").memory.weights == 5_000_000_001
    assert of_device(model, "h100-sxm", tensor_parallel=2).memory.weights == 2_500_000_001
    assert of_device(model, "h100-sxm", weights="bf16").memory.weights > 16e9


def test_a_device_models_file_brings_its_own_memory(tmp_path: Path) -> None:
    """And nothing to reckon other precisions from."""
    path = tmp_path / "here.toml"
    save_device_model(device_model(memory=MEMORY), path)
    source = of_device(describe_model("smollm2-135m"), str(path))

    assert (source.memory, source.sheet) == (MEMORY, None)
    save_device_model(device_model(), path)
    with pytest.raises(DeviceModelError, match="no \\[memory\\]"):
        of_device(describe_model("smollm2-135m"), str(path))


def test_this_machine_is_what_the_process_may_use() -> None:
    """The file's own weights; keys and values in 16 bits, or in 32."""
    model = DescribedModel(find_config("smollm2-135m"), 96_576_768, "")
    source = of_this_machine(model)

    assert source.memory.weights == 96_576_768
    assert source.memory.kv_bytes_per_token == 23_040
    assert of_this_machine(model, wide=True).memory.kv_bytes_per_token == 46_080
    assert "--measure" in source.notes[0]
