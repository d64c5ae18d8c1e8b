from typing import Any

import pytest

from chairlift.advisor.flags.flags import flags_for
from chairlift.advisor.flags.render import arguments, command_line, config_file, report_lines, sources
from chairlift.advisor.flags.settings import MemorySettings
from chairlift.core.config import SchedulerConfig

CONFIG = SchedulerConfig(max_num_seqs=4, max_model_len=1024)


def test_a_command_line_can_be_pasted() -> None:
    """A flag a line; a switch has no value."""
    said = flags_for("vllm", CONFIG, version="0.11.0")

    assert command_line(said) == (
        "vllm serve MODEL \\\n    --max-model-len 1024 \\\n    --max-num-seqs 4 \\\n    --max-num-batched-tokens 512 "
        "\\\n    --enable-prefix-caching \\\n    --enable-chunked-prefill"
    )
    assert arguments(said)[:4] == ["--max-model-len", "1024", "--max-num-seqs", "4"]


def test_yaml_is_nested_by_the_dots() -> None:
    """As PyYAML reads it back; the command names the file."""
    yaml: Any = pytest.importorskip("yaml")
    said = flags_for("tensorrt-llm", CONFIG, MemorySettings(num_kv_blocks=100, block_size=32))

    assert yaml.safe_load(config_file(said)) == {
        "scheduler_config": {"capacity_scheduler_policy": "MAX_UTILIZATION"},
        "kv_cache_config": {"enable_block_reuse": True, "max_tokens": 3200, "tokens_per_block": 32},
    }
    assert "--extra_llm_api_options config.yaml" in command_line(said)


def test_tf_serving_wraps_its_numbers() -> None:
    """As its documentation writes them."""
    said = flags_for("tf-serving", SchedulerConfig(policy="dynamic", max_queued_requests=0))

    assert config_file(said).splitlines() == ["max_batch_size { value: 8 }", "batch_timeout_micros { value: 50000 }"]
    assert "--batching_parameters_file" in command_line(said)


def test_protobuf_text_is_nested_by_braces() -> None:
    """Triton's model configuration."""
    said = flags_for("triton", SchedulerConfig(policy="dynamic", preferred_batch_sizes=(4,), max_queued_requests=9))
    lines = config_file(said).splitlines()

    assert "max_batch_size: 8" in lines
    assert "  preferred_batch_size: [ 4 ]" in lines
    assert "    max_queue_size: 9" in lines
    assert lines.count("}") == 1


def test_the_report_says_why_and_what_is_lost() -> None:
    """And which version the table was checked with where another one is asked for."""
    said = flags_for("vllm", SchedulerConfig(target_itl=50_000_000), version="0.20.0")
    text = "\n".join(report_lines(said))

    assert "vLLM 0.20.0 (the table was checked with 0.32.0)" in text
    assert "cannot be said:" in text
    assert "--target-itl 50ms: steps are bounded by tokens" in text
    assert all(one.startswith("https://docs.vllm.ai") for one in sources(said))


def test_nothing_is_lost_in_our_own_words() -> None:
    """Every setting of every policy has a flag here."""
    for policy in ("static", "dynamic", "continuous"):
        said = flags_for("chairlift", SchedulerConfig(policy=policy, max_wait=10**9, target_itl=5 * 10**7))

        assert said.unexpressed == ()
