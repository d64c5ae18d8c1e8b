"""The settings that a search starts from: those that are given, and for the rest what the load and the device ask."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from chairlift.advisor.evaluate.rounds import Rounds
from chairlift.advisor.evaluate.run import Problem
from chairlift.advisor.evaluate.targets import Targets
from chairlift.core.errors import ConfigError
from chairlift.devices.model import DeviceModel

STEP_TOKENS: Final = 2048
"""max_num_batched_tokens where nobody says and the device model holds as much: vLLM's default, too."""


def problem_of(device: DeviceModel, load: Rounds, targets: Targets, given: Mapping[str, Any]) -> Problem:
    """What is tried on a device.

    max_model_len holds the load's longest request and no more; the queue has no bound, so that waiting shows as latency
    and not as refusals; where first tokens or the time between tokens matter, closed batches stream too.

    Raises:
        ConfigError: the settings given do not go together, or cannot hold the load.
    """
    settings: dict[str, Any] = {
        "max_model_len": load.longest,
        "max_queued_requests": 0,
        "max_num_batched_tokens": min(STEP_TOKENS, device.valid.tokens),
    }
    if targets.needs_streams:
        settings["release"] = "token"
    settings |= given
    if settings["max_model_len"] < load.longest:
        raise ConfigError(
            f"--max-model-len is {settings['max_model_len']:,}, and the load's longest prompt and answer have "
            f"{load.longest:,} tokens: raise it to that, or shorten the load."
        )
    return Problem(device, settings, targets.per_request, frozenset(given))
