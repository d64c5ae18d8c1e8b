"""`chairlift flags --for vllm`: settings of batching and memory in the words of another framework."""

from __future__ import annotations

import argparse
import dataclasses
import json
from typing import TYPE_CHECKING

from chairlift.cli.flags import add_flag, add_flags, build
from chairlift.cli.main import OK
from chairlift.cli.parser import Parser
from chairlift.cli.units import NUMBER, SIZE, TEXT, WHOLE, choice
from chairlift.core.config import SchedulerConfig

if TYPE_CHECKING:
    from chairlift.advisor.flags.settings import MemorySettings

_SHARE, _BLOCK = 0.9, 16
_MEMORY = {
    "gpu_memory_utilization": (NUMBER, "Share of the device's memory that may be used."),
    "kv_cache_memory": (SIZE, "Bytes of the KV pool on one device."),
    "num_kv_blocks": (WHOLE, "Usable KV blocks."),
    "block_size": (WHOLE, "Tokens in a block."),
    "kv_dtype": (choice(("f32", "bf16", "f16", "f8", "int8")), "How keys and values are stored."),
    "tensor_parallel_size": (WHOLE, "Devices that work as one."),
}


def configure(parser: Parser) -> None:
    """Which framework, which of its versions, and the settings."""
    which = parser.add_argument_group("framework")
    add_flag(which, "for", TEXT, "vllm, sglang, tgi, tensorrt-llm, triton, tf-serving, llama.cpp or chairlift.")
    add_flag(which, "framework_version", TEXT, "Its version. Default: the one that the table was checked with.")
    add_flag(
        which,
        "device",
        TEXT,
        "A built-in device or a device model (.toml): shares of something else than the "
        "whole device are then converted.",
    )
    add_flag(which, "model", TEXT, "The model on it: built-in, a config.json, a directory, or a GGUF file.")
    memory = parser.add_argument_group("memory")
    for name, (kind, doc) in _MEMORY.items():
        add_flag(memory, name, kind, doc)
    parser.add_argument("--sources", action="store_true", help="where it is written, too")
    parser.add_argument("--json", action="store_true", help="print it as JSON")
    add_flags(parser, SchedulerConfig, "batching")


def run(arguments: argparse.Namespace) -> int:
    """Say it.

    Raises:
        ConfigError: nobody knows the framework, or a setting cannot be.
    """
    from chairlift.advisor.flags.flags import flags_for, framework_names
    from chairlift.advisor.flags.render import arguments as as_arguments
    from chairlift.advisor.flags.render import config_file, report_lines, sources
    from chairlift.advisor.flags.settings import MemorySettings
    from chairlift.core.errors import ConfigError

    framework = getattr(arguments, "for", None)
    if framework is None:
        raise ConfigError(f"--for is missing: one of {', '.join(framework_names())}.")
    config = build(SchedulerConfig, arguments)
    memory = MemorySettings(**{name: getattr(arguments, name) for name in _MEMORY if hasattr(arguments, name)})
    memory = _with_plan(arguments, memory, config)
    said = flags_for(framework, config, memory, version=getattr(arguments, "framework_version", None))
    if arguments.json:
        print(json.dumps(said.to_json() | {"arguments": as_arguments(said), "file": config_file(said)}, indent=2))
        return OK
    print(*report_lines(said), sep="\n")
    if arguments.sources:
        print("", *sources(said), sep="\n")
    return OK


def _with_plan(arguments: argparse.Namespace, memory: MemorySettings, config: SchedulerConfig) -> MemorySettings:
    """With the device's memory divided, where a device and a model are named."""
    from chairlift.advisor.memory.described import describe_model
    from chairlift.advisor.memory.sources import of_device
    from chairlift.core.errors import ConfigError

    device, model = getattr(arguments, "device", None), getattr(arguments, "model", None)
    if device is None and model is None:
        return memory
    if device is None or model is None:
        raise ConfigError("--device and --model go together: memory is divided for a model on a device.")
    source = of_device(describe_model(model), device, tensor_parallel=memory.tensor_parallel_size)
    plan = source.memory.plan(
        gpu_memory_utilization=memory.gpu_memory_utilization or _SHARE,
        block_size=memory.block_size or _BLOCK,
        max_num_batched_tokens=config.max_num_batched_tokens,
        max_rows=config.max_rows,
        kv_cache_memory=memory.kv_cache_memory,
        num_kv_blocks=memory.num_kv_blocks,
    )
    return dataclasses.replace(memory, plan=plan)
