"""The flags that every command with a model has: which model, on what device, batched how."""

from __future__ import annotations

import argparse
from dataclasses import fields

from chairlift.cli.flags import add_flags
from chairlift.cli.parser import Parser
from chairlift.core.config import SchedulerConfig
from chairlift.engine.config import EngineConfig
from chairlift.runners.openvino.settings import RunnerSettings

INNER = ("model", "runner", "scheduler", "fit_max_model_len")
"""Fields of EngineConfig that are no flags: MODEL is an argument, the others are made of flags."""


def add_engine_flags(parser: Parser) -> None:
    """MODEL and a flag for each setting of model, device and scheduler."""
    parser.add_argument(
        "model",
        metavar="MODEL",
        help="a GGUF file, a Hugging Face directory, a name on the hub (OWNER/NAME), "
        "or a GGUF file there (OWNER/NAME/FILE.gguf)",
    )
    add_flags(parser, EngineConfig, "model", without=INNER)
    add_flags(parser, SchedulerConfig, "batching")
    add_flags(parser, RunnerSettings, "device")


def engine_config(arguments: argparse.Namespace) -> EngineConfig:
    """The engine's configuration from the flags that were given.

    Raises:
        ConfigError: a value cannot be, or some do not go together.
    """
    names = {field.name for part in (EngineConfig, SchedulerConfig, RunnerSettings) for field in fields(part)}
    given = {name: value for name, value in vars(arguments).items() if name in names and name not in INNER}
    return EngineConfig.of(arguments.model, given)
