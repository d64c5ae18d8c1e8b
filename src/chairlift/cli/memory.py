"""`chairlift memory MODEL --device DEVICE`: where the memory goes, how many sequences fit, and how many of them pay."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Final

from chairlift.cli.flags import add_flag, add_flags, build
from chairlift.cli.main import FOUND, OK
from chairlift.cli.parser import Parser
from chairlift.cli.units import NUMBER, PATH, SIZE, TEXT, WHOLE, choice
from chairlift.core.config import SchedulerConfig
from chairlift.core.errors import ConfigError, OutOfDeviceMemory

if TYPE_CHECKING:
    from chairlift.advisor.memory.advice import MemoryQuestion
    from chairlift.advisor.memory.described import DescribedModel
    from chairlift.advisor.memory.lengths import Lengths
    from chairlift.advisor.memory.sources import Source
    from chairlift.runners.openvino.settings import KVCacheDtype

_GPU_SHARE, _GPU_BLOCK = 0.9, 16
_HERE: Final[Mapping[str, KVCacheDtype]] = {"bf16": "f16", "f16": "f16", "f32": "f32"}
"""Precisions of keys and values that this machine has, and what its runner calls them; 16 bits are 16 bits."""


def configure(parser: Parser) -> None:
    """Model, device, lengths, how much of the memory; and the settings of batching."""
    parser.add_argument(
        "model", metavar="MODEL", help="a built-in model, a config.json, a model's directory, or a GGUF file"
    )
    device = parser.add_argument_group("device")
    add_flag(
        device,
        "device",
        TEXT,
        "A built-in device (h100-sxm, l4, ...), a sheet or device model (.toml). Default: this machine.",
    )
    add_flag(device, "tensor_parallel_size", WHOLE, "Devices that work as one.", 1)
    add_flag(
        device,
        "weights",
        choice(("f32", "bf16", "f16", "f8", "int8", "int4")),
        "How weights are stored. Default: as in the file, or bf16.",
    )
    add_flag(device, "kv", choice(("f32", "bf16", "f16", "f8", "int8")), "How keys and values are stored.", "bf16")
    device.add_argument(
        "--measure", action="store_true", help="load the model on this machine and measure instead of assuming"
    )
    add_flag(
        device,
        "gpu_memory_utilization",
        NUMBER,
        "Share of the device's memory that may be used. Default: 0.9; on this machine 0.5.",
    )
    add_flag(device, "kv_cache_memory", SIZE, "Bytes of the KV pool on one device, instead of what the share leaves.")
    add_flag(device, "num_kv_blocks", WHOLE, "Usable KV blocks, instead of both.")
    add_flag(device, "block_size", WHOLE, "Tokens in a block. Default: 16; on this machine 32.")
    lengths = parser.add_argument_group("lengths")
    add_flag(lengths, "prompt", WHOLE, "Prompt tokens of every request.")
    add_flag(lengths, "output", WHOLE, "Output tokens of every request.")
    add_flag(lengths, "load", PATH, "A load's TOML file: its real lengths.")
    parser.add_argument("--alternatives", action="store_true", help="other precisions and numbers of devices, too")
    parser.add_argument("--json", action="store_true", help="print it as JSON")
    add_flags(parser, SchedulerConfig, "batching")


def run(arguments: argparse.Namespace) -> int:
    """Answer. 1 when the model does not fit; what would is then said.

    Raises:
        ChairliftError: model, device or load cannot be used.
    """
    from chairlift.advisor.memory.advice import advise, alternatives
    from chairlift.advisor.memory.described import describe_model
    from chairlift.advisor.memory.report import advice_lines, alternative_lines

    model = describe_model(arguments.model)
    config = _config(arguments, model)
    source = _source(arguments, model, config)
    question = _question(arguments, source, config, model.config.context_length)
    others = [] if source.sheet is None else alternatives(question, model, source.sheet)
    try:
        advice = advise(question, model.config.context_length)
    except OutOfDeviceMemory as error:
        if arguments.json:
            print(
                json.dumps(
                    {"device": source.name, "does_not_fit": str(error), "alternatives": _plain(others)}, indent=2
                )
            )
        else:
            print(f"{source.name}: {error}", "", *alternative_lines(others), sep="\n")
        return FOUND
    if arguments.json:
        print(json.dumps(advice.to_json() | {"notes": source.notes, "alternatives": _plain(others)}, indent=2))
        return OK
    print(*advice_lines(advice, source.notes), sep="\n")
    if arguments.alternatives and others:
        print("", *alternative_lines(others), sep="\n")
    return OK


def _config(arguments: argparse.Namespace, model: DescribedModel) -> SchedulerConfig:
    """With max_model_len fitted to the model where nobody asked for one."""
    fitted = {}
    if not hasattr(arguments, "max_model_len"):
        fitted["max_model_len"] = min(SchedulerConfig().max_model_len, model.config.context_length)
    elif arguments.max_model_len > (most := model.config.context_length):
        raise ConfigError(f"--max-model-len is {arguments.max_model_len:,}; the model was made for {most:,}: lower it.")
    return build(SchedulerConfig, arguments, **fitted)


def _source(arguments: argparse.Namespace, model: DescribedModel, config: SchedulerConfig) -> Source:
    from chairlift.advisor.memory.sources import measured, of_device, of_this_machine
    from chairlift.runners.openvino.settings import RunnerSettings

    device, kv = getattr(arguments, "device", None), getattr(arguments, "kv", "bf16")
    if device is not None:
        if arguments.measure:
            raise ConfigError(f"--measure loads the model on this machine: leave --device {device} out.")
        return of_device(
            model,
            device,
            tensor_parallel=getattr(arguments, "tensor_parallel_size", 1),
            weights=getattr(arguments, "weights", None),
            kv=kv,
        )
    for name in ("tensor_parallel_size", "weights"):
        if hasattr(arguments, name):
            raise ConfigError(f"--{name.replace('_', '-')} needs a device: add --device, such as --device h100-sxm.")
    if kv not in _HERE:
        raise ConfigError(f"--kv is {kv}; this machine keeps keys and values as {', '.join(_HERE)}: add --device.")
    if arguments.measure:
        if not Path(model.source).exists():
            raise ConfigError(
                f"--measure loads the model, and there is no file or directory {model.source}: name one, or leave "
                "--measure out."
            )
        names = {one.name for one in fields(RunnerSettings)}
        settings = {name: value for name, value in vars(arguments).items() if name in names}
        return measured(Path(model.source), config, RunnerSettings(**settings, kv_cache_dtype=_HERE[kv]))
    return of_this_machine(model, wide=kv == "f32")


def _question(arguments: argparse.Namespace, source: Source, config: SchedulerConfig, context: int) -> MemoryQuestion:
    from chairlift.advisor.memory.advice import MemoryQuestion
    from chairlift.advisor.memory.sources import CPU_BLOCK
    from chairlift.runners.openvino.settings import DEFAULT_SHARE

    here = not hasattr(arguments, "device")
    return MemoryQuestion(
        memory=source.memory,
        config=config,
        lengths=_fitting(_lengths(arguments, config), config, context),
        device=source.device,
        name=source.name,
        share=getattr(arguments, "gpu_memory_utilization", DEFAULT_SHARE if here else _GPU_SHARE),
        block_size=getattr(arguments, "block_size", CPU_BLOCK if here else _GPU_BLOCK),
        kv_cache_memory=getattr(arguments, "kv_cache_memory", None),
        num_kv_blocks=getattr(arguments, "num_kv_blocks", None),
    )


def _lengths(arguments: argparse.Namespace, config: SchedulerConfig) -> Lengths:
    from chairlift.advisor.memory.lengths import Lengths

    path: Path | None = getattr(arguments, "load", None)
    prompt, output = getattr(arguments, "prompt", None), getattr(arguments, "output", None)
    if path is not None:
        if prompt is not None or output is not None:
            raise ConfigError("--load has lengths of its own: leave --prompt and --output out.")
        from chairlift.lab.loads.describe import sample
        from chairlift.lab.loads.files import read_load
        from chairlift.lab.loads.schedule import Schedule

        requests = sample(Schedule(read_load(path)))
        return Lengths.of((one.prompt_tokens, one.output_tokens, one.max_tokens) for one in requests)
    # Three quarters and one quarter of what is allowed: an assumption that the first line of the answer shows.
    quarter = max(1, config.max_model_len // 4)
    if prompt is not None and output is None:
        output = min(quarter, max(1, config.max_model_len - prompt))
    output = quarter if output is None else output
    prompt = max(1, config.max_model_len - output) if prompt is None else prompt
    return Lengths.fixed(prompt, output)


def _fitting(lengths: Lengths, config: SchedulerConfig, context: int) -> Lengths:
    """The same; requests that a server would refuse are no question of memory."""
    if lengths.longest <= config.max_model_len:
        return lengths
    limit = f"--max-model-len is {config.max_model_len:,}"
    way = f"raise it to {lengths.longest:,}" if lengths.longest <= context else f"the model was made for {context:,}"
    raise ConfigError(
        f"the longest request has {lengths.longest:,} tokens of prompt and answer together, and {limit}: {way}, or "
        "ask about shorter ones."
    )


def _plain(found: object) -> list[dict[str, object]]:
    from chairlift.advisor.memory.advice import Alternative

    rows = found if isinstance(found, tuple) else ()
    return [{name: getattr(one, name) for name in one.__slots__} for one in rows if isinstance(one, Alternative)]
