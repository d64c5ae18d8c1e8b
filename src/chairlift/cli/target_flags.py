"""The flags of every command that puts a load to a target: the load, and what servers, models and simulations take."""

from __future__ import annotations

import argparse
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

from chairlift.cli.engine_flags import INNER
from chairlift.cli.flags import add_flag, add_flags
from chairlift.cli.parser import Parser
from chairlift.cli.units import PATH, TEXT, choice
from chairlift.core.config import SchedulerConfig, flag
from chairlift.core.errors import ConfigError
from chairlift.engine.config import EngineConfig
from chairlift.runners.openvino.settings import RunnerSettings
from chairlift.runners.simulated import SimulatorSettings

if TYPE_CHECKING:
    from chairlift.lab.loads.load import Load
    from chairlift.lab.subjects import Subject
    from chairlift.text.tokenizer import Tokenizer

SERVER: Final = {
    "model": (TEXT, "Which of the server's models. Default: the first."),
    "api": (choice(("completions", "chat")), "The endpoint; chat puts the server's chat template around prompts."),
    "kind": (TEXT, "Which server it is, where it cannot be told: vllm, sglang, tgi, llama.cpp, ..."),
    "api_key": (TEXT, "Sent as a bearer token; it is not kept in the run."),
    "metrics_url": (TEXT, "Where the server's metrics are. Default: /metrics."),
    "tokenizer": (PATH, "Hugging Face directory of the model's tokenizer: prompts get exactly the lengths asked for."),
}
_WITHOUT: Final = (*INNER, "record")
"""Runs have their own place, so --record is no flag here."""
_SHARED: Final = tuple({one.name for one in fields(SimulatorSettings)} & {one.name for one in fields(RunnerSettings)})
"""Settings that a real and a simulated device both have."""


def add_load_flags(parser: Parser) -> argparse._ArgumentGroup:
    """--load and --set; the group takes more."""
    load = parser.add_argument_group("load")
    add_flag(load, "load", PATH, "A load's TOML file.")
    load.add_argument(
        "--set",
        dest="pairs",
        nargs="+",
        action="extend",
        default=[],
        metavar="KEY=VALUE",
        help="the load, or changes to its file: arrivals=poisson arrivals.rate=4 prompt=128 output=64 count=100 ...",
    )
    return load


def load_of(arguments: argparse.Namespace) -> Load:
    """The load that the flags ask for.

    Raises:
        ConfigError: there is none, or it cannot be.
    """
    from chairlift.lab.loads.files import load_from_pairs, read_load

    path: Path | None = getattr(arguments, "load", None)
    if path is not None:
        return read_load(path, arguments.pairs)
    if not arguments.pairs:
        raise ConfigError("there is no load: give --load FILE, or --set arrivals=poisson arrivals.rate=4 and so on.")
    return load_from_pairs(arguments.pairs)


def add_target_flags(parser: Parser) -> None:
    """Settings of whatever TARGET is."""
    server = parser.add_argument_group("server (TARGET is a URL)")
    for name, (kind, doc) in SERVER.items():
        add_flag(server, name, kind, doc)
    add_flags(parser, EngineConfig, "model (TARGET is a model)", without=_WITHOUT)
    add_flags(parser, SchedulerConfig, "batching (TARGET is a model or sim:DEVICE)")
    add_flags(parser, RunnerSettings, "device (TARGET is a model)")
    add_flags(parser, SimulatorSettings, "simulated device (TARGET is sim:DEVICE/MODEL)", without=_SHARED)


@dataclass(frozen=True, slots=True)
class TargetFlags:
    """What was given about the target."""

    target: str
    server: dict[str, Any]
    """Fields of UrlSettings."""
    engine: dict[str, Any]
    """Settings of a model or a simulation, by name."""
    tokenizer: Path | None

    @classmethod
    def of(cls, arguments: argparse.Namespace) -> Self:
        """From the flags.

        Raises:
            ConfigError: a flag does not go with this kind of target.
        """
        from chairlift.lab.targets.named import is_simulated, is_url

        given, name = vars(arguments), arguments.target
        server = {key: given[key] for key in SERVER if key in given}
        parts = (EngineConfig, SchedulerConfig, RunnerSettings, SimulatorSettings)
        names = {one.name for part in parts for one in fields(part)} - set(_WITHOUT)
        engine = {key: given[key] for key in names if key in given}
        url, simulated = is_url(name), is_simulated(name)
        # A simulated device has no tokenizer of its own, and recorded chats are counted with one.
        wrong = engine if url else server.keys() - ({"tokenizer"} if simulated else set())
        if wrong:
            other = f"a {'simulation' if simulated else 'model'}, and no server"
            what = "a server, which has its own settings" if url else other
            raise ConfigError(f"{', '.join(map(flag, sorted(wrong)))} cannot be set: {name} is {what}.")
        return cls(name, server, engine, server.pop("tokenizer", None))

    def for_record(self) -> dict[str, Any]:
        """Settings for a manifest: no secrets."""
        return {name: value for name, value in {**self.server, **self.engine}.items() if name != "api_key"}

    def read_tokenizer(self) -> Tokenizer | None:
        """The one that was named.

        Raises:
            TokenizerError: it cannot be used.
        """
        from chairlift.text.tokenizer import Tokenizer

        return None if self.tokenizer is None else Tokenizer.from_directory(self.tokenizer)

    def subject(self) -> Subject:
        """What a study runs again and again. A model is not loaded yet.

        Raises:
            TokenizerError: the tokenizer cannot be used.
        """
        from chairlift.lab.subjects import ModelSubject, ServerSubject, SimulatedSubject
        from chairlift.lab.targets.named import is_simulated, is_url, target_named
        from chairlift.lab.targets.url import UrlSettings

        if is_url(self.target):
            settings, tokenizer = UrlSettings(**self.server), self.read_tokenizer()
            return ServerSubject(
                self.target, lambda: target_named(self.target, server=settings, tokenizer=tokenizer), self.for_record()
            )
        if is_simulated(self.target):
            return SimulatedSubject(self.target, self.engine)
        return ModelSubject(self.target, self.engine)
