"""Everything an engine is built from, and how loose settings by name find their place in it."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

from chairlift.core.config import SchedulerConfig, flag
from chairlift.core.errors import ConfigError
from chairlift.runners.openvino.settings import RunnerSettings

ALIASES: Mapping[str, str] = {"max_seq_len": "max_model_len"}
"""Second names of settings, as other engines have them."""


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """A model, and the settings of what runs it."""

    model: str
    """A GGUF file, a Hugging Face directory, a name on the hub (OWNER/NAME), or a GGUF file there
    (OWNER/NAME/FILE.gguf)."""

    revision: str | None = None
    """Branch, tag or commit of a model on the hub. Default: its main branch."""

    chat_template: Path | None = None
    """A file with the chat template to use instead of the model's own."""

    record: Path | None = None
    """A folder to keep the run in: every step, request and decision as they happen, with settings, machine and
    versions. Must not hold another run. Default: nothing is kept."""

    runner: RunnerSettings = field(default_factory=RunnerSettings)
    """Settings of the device."""

    scheduler: SchedulerConfig = field(default_factory=SchedulerConfig)
    """Settings of batching."""

    fit_max_model_len: bool = True
    """Nobody asked for a max_model_len: a default longer than the model was trained for is shortened to that."""

    @classmethod
    def of(cls, model: str, settings: Mapping[str, Any]) -> Self:
        """Settings by name, of whichever part they belong to. What is not given keeps its default.

        Raises:
            ConfigError: there is no such setting (the message has the closest), or a value cannot be.
        """
        parts: dict[type, dict[str, Any]] = {cls: {}, RunnerSettings: {}, SchedulerConfig: {}}
        for given, value in settings.items():
            name = ALIASES.get(given, given)
            owner = next((part for part in parts if name in _names(part)), None)
            if owner is None:
                raise ConfigError(_unknown(given, parts))
            if name in parts[owner]:
                raise ConfigError(f"{flag(name)} is given twice, also as {flag(given)}: leave one out.")
            parts[owner][name] = value
        return cls(
            model,
            **parts[cls],
            runner=RunnerSettings(**parts[RunnerSettings]),
            scheduler=SchedulerConfig(**parts[SchedulerConfig]),
            fit_max_model_len="max_model_len" not in parts[SchedulerConfig],
        )

    def fitted(self, longest_context: int) -> SchedulerConfig:
        """The scheduler's settings for a model that was trained for so many positions."""
        config = self.scheduler
        if self.fit_max_model_len and config.max_model_len > longest_context:
            return replace(config, max_model_len=longest_context)
        return config


def _names(part: type) -> set[str]:
    """The settings of a part that may be given by name."""
    whole = {"model", "runner", "scheduler", "fit_max_model_len"}
    return {one.name for one in dataclasses.fields(part)} - (whole if part is EngineConfig else set())


def _unknown(given: str, parts: Mapping[type, object]) -> str:
    known = sorted({*ALIASES, *(name for part in parts for name in _names(part))})
    near = difflib.get_close_matches(given, known, n=1)
    meant = f"did you mean {near[0]}?" if near else f"there are {', '.join(known)}."
    return f"there is no setting {given!r}; {meant}"
