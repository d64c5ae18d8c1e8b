from typing import Any

import pytest

from chairlift.advisor.flags.flags import FrameworkFlags, flags_for, framework_names, setting_name
from chairlift.advisor.flags.settings import MemorySettings
from chairlift.core.config import SchedulerConfig
from chairlift.core.errors import ConfigError
from tests.devices.helpers import MEMORY

CONTINUOUS = SchedulerConfig(max_num_seqs=64, max_num_batched_tokens=2048, max_model_len=8192, watermark=0.02)


def said(framework: str, config: SchedulerConfig = CONTINUOUS, **memory: Any) -> dict[str, str]:
    """Name -> value."""
    return {one.name: one.value for one in flags_for(framework, config, MemorySettings(**memory)).flags}


def lost(flags: FrameworkFlags) -> set[str]:
    """Settings that cannot be said."""
    return {one.setting for one in flags.unexpressed}


def test_vllm_in_its_own_words() -> None:
    """Counts as they are; the queue's bound with the running requests; its own null block added to the pool."""
    flags = said("vllm", gpu_memory_utilization=0.85, num_kv_blocks=1000, kv_dtype="f8", tensor_parallel_size=2)

    assert flags == {
        "--max-model-len": "8192",
        "--max-num-seqs": "64",
        "--max-num-batched-tokens": "2048",
        "--enable-prefix-caching": "",
        "--max-num-queued-reqs": "1088",
        "--enable-chunked-prefill": "",
        "--watermark": "0.02",
        "--gpu-memory-utilization": "0.85",
        "--num-gpu-blocks-override": "1001",
        "--kv-cache-dtype": "fp8",
        "--tensor-parallel-size": "2",
    }


def test_a_switch_that_is_off_is_said() -> None:
    """By the name that switches it off."""
    config = SchedulerConfig(enable_prefix_caching=False, enable_chunked_prefill=False, max_num_batched_tokens=4096)

    assert "--no-enable-prefix-caching" in said("vllm", config)
    assert "--no-enable-chunked-prefill" in said("vllm", config)
    assert "--disable-radix-cache" in said("sglang", config)
    assert said("sglang", config)["--chunked-prefill-size"] == "-1"
    assert "--disable-radix-cache" not in said("sglang")


def test_an_older_version_lacks_what_came_later() -> None:
    """The watermark came to vLLM with 0.24: before that it is lost, with the version in the reason."""
    flags = flags_for("vllm", CONTINUOUS, version="0.20.0")

    assert "--watermark" not in {one.name for one in flags.flags}
    [why] = [one.why for one in flags.unexpressed if one.setting == "watermark"]
    assert "it came with 0.24.0" in why
    assert "watermark" not in lost(flags_for("vllm", CONTINUOUS))


def test_what_a_framework_does_anyway_is_not_lost() -> None:
    """Defaults of continuous batching lose nothing in vLLM; a wished time between tokens does."""
    assert lost(flags_for("vllm", CONTINUOUS)) == set()
    assert lost(flags_for("vllm", SchedulerConfig(target_itl=10**7, kv_reservation="full"))) == {
        "target_itl",
        "kv_reservation",
    }


def test_another_policy_is_said_to_be_lost() -> None:
    """VLLM forms no closed batches; Triton's batcher forms nothing else."""
    flags = flags_for("vllm", SchedulerConfig(policy="static"))

    assert {"policy", "padding", "release"} <= lost(flags)
    assert "--max-num-seqs" not in {one.name for one in flags.flags}
    assert "policy" in lost(flags_for("triton", CONTINUOUS))


def test_dynamic_batching_is_tritons_own() -> None:
    """Microseconds, and a list of preferred sizes."""
    config = SchedulerConfig(
        policy="dynamic", max_batch_size=16, max_queue_delay=20_000_000, preferred_batch_sizes=(4, 8)
    )
    flags = said("triton", config)

    assert flags["max_batch_size"] == "16"
    assert flags["dynamic_batching.max_queue_delay_microseconds"] == "20000"
    assert flags["dynamic_batching.preferred_batch_size"] == "[ 4, 8 ]"
    assert said("tf-serving", config)["batch_timeout_micros"] == "20000"
    assert said("tf-serving", config)["max_enqueued_batches"] == "64"
    assert "preferred_batch_sizes" in lost(flags_for("tf-serving", config))


def test_a_static_batch_that_waits_for_ever_waits_a_day() -> None:
    """Triton's delay of 0 would send what is there at once; a wait that was given is given."""
    delay = "dynamic_batching.max_queue_delay_microseconds"

    assert said("triton", SchedulerConfig(policy="static"))[delay] == "86400000000"
    assert said("triton", SchedulerConfig(policy="static", max_wait=10**9))[delay] == "1000000"
    assert said("triton", SchedulerConfig(policy="static"))["dynamic_batching.preferred_batch_size"] == "[ 8 ]"


def test_llama_cpp_counts_the_context_of_all_slots() -> None:
    """64 slots of 8,192 tokens."""
    flags = said("llama.cpp", kv_dtype="int8")

    assert flags["--ctx-size"] == str(64 * 8192)
    assert (flags["--parallel"], flags["--cache-type-k"], flags["--cache-type-v"]) == ("64", "q8_0", "q8_0")


def test_shares_of_something_else_need_the_device() -> None:
    """Of what the weights leave (TensorRT-LLM), or without activations (SGLang): lost without a plan, exact with one,
    rounded down.
    """
    settings: dict[str, Any] = {"block_size": 16, "max_num_batched_tokens": 512, "max_rows": 8}
    plan = MEMORY.plan(gpu_memory_utilization=0.9, **settings)

    assert lost(flags_for("tensorrt-llm", CONTINUOUS, MemorySettings(gpu_memory_utilization=0.9))) >= {
        "gpu_memory_utilization"
    }
    # a pool of 378 of the 550 MiB that weights and runtime leave; with 400 of weights, 778 of 1,000
    assert said("tensorrt-llm", gpu_memory_utilization=0.9, plan=plan)["--free_gpu_memory_fraction"] == "0.687"
    assert said("sglang", gpu_memory_utilization=0.9, plan=plan)["--mem-fraction-static"] == "0.778"


def test_a_word_that_a_framework_lacks_is_lost() -> None:
    """VLLM has no order by the shortest prompt, SGLang has."""
    config = SchedulerConfig(queue_order="shortest_prompt")

    assert "queue_order" in lost(flags_for("vllm", config))
    assert said("sglang", config)["--schedule-policy"] == "shortest-prefill-first"


def test_reasons_of_the_caller_come_first() -> None:
    """What a search found, before what the flag does in general."""
    flags = flags_for("vllm", CONTINUOUS, reasons={"max_num_seqs": "binding: memory; half costs 12%"})
    [reason] = [one.reason for one in flags.flags if one.name == "--max-num-seqs"]

    assert reason.startswith("binding: memory; half costs 12%; most sequences")


def test_an_unknown_framework_is_refused_with_the_closest() -> None:
    """Aliases are known."""
    with pytest.raises(ConfigError, match="did you mean vllm"):
        flags_for("vlm", CONTINUOUS)
    assert flags_for("trtllm", CONTINUOUS).framework.name == "tensorrt-llm"
    assert len(framework_names()) == 8


def test_what_is_lost_is_shown_as_a_person_would_write_it() -> None:
    """Durations with a unit, lists with commas."""
    config = SchedulerConfig(policy="dynamic", preferred_batch_sizes=(2, 4), max_queue_delay=10_000_000)
    flags = flags_for("tf-serving", config)

    assert {one.value for one in flags.unexpressed if one.setting == "preferred_batch_sizes"} == {"2,4"}
    wished = flags_for("vllm", SchedulerConfig(target_itl=25_000_000)).unexpressed
    assert [one.value for one in wished] == ["25ms"]


def test_as_plain_values() -> None:
    """With version, reason and source."""
    told = flags_for("sglang", CONTINUOUS).to_json()

    assert (told["framework"], told["version"], told["checked"]) == ("sglang", "0.5.23", "0.5.23")
    assert {"setting", "name", "value", "place", "reason", "source"} == set(told["flags"][0])


def test_our_own_flags_are_those_of_the_command() -> None:
    """kv_dtype is --kv-cache-dtype there."""
    assert setting_name("kv_dtype") == "--kv-cache-dtype"
    assert setting_name("max_num_seqs") == "--max-num-seqs"


def test_memory_settings_that_cannot_be_are_refused() -> None:
    """With the flag."""
    with pytest.raises(ConfigError, match=r"--gpu-memory-utilization is 1\.5"):
        MemorySettings(gpu_memory_utilization=1.5)
    with pytest.raises(ConfigError, match="--num-kv-blocks is 0"):
        MemorySettings(num_kv_blocks=0)
