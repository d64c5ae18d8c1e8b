"""Everything Chairlift raises on purpose, as one tree.

    ChairliftError
    ├── ConfigError            a setting is wrong; the message names the flag
    ├── ModelError             a model cannot be loaded
    │   ├── UnsupportedModel       read correctly, but this build cannot run it
    │   ├── CorruptModel           the file is truncated or contradicts itself
    │   └── TokenizerError         the tokenizer or chat template is missing or unusable
    ├── OutOfDeviceMemory      weights, activations or KV pool do not fit
    ├── RequestError           one request is at fault; the others are not concerned
    │   └── RequestRefused         refused at the door; carries the scheduler's verdict
    ├── RunnerError            the device failed
    │   └── StepFailed             one step did not happen; it may be planned again
    ├── EngineError            the engine cannot go on
    │   ├── EngineUnhealthy        work is pending and cannot be scheduled
    │   └── EngineClosed           it was shut down
    ├── RecordError            a record on disk cannot be read or written
    ├── DeviceModelError       a device model or its source cannot be used
    │   └── OutsideValidRange      a step lies outside what the device model was made for
    └── ContractError          a caller broke the scheduler's contract
        ├── IntegrityError         the KV pool's books do not balance
        └── ReplayError            a journal does not lead where it led before

Messages say what happened, with numbers, and the way out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from chairlift.core.request import Refused


class ChairliftError(Exception):
    """Root of every error raised on purpose."""


class ConfigError(ChairliftError):
    """A setting is wrong. The message names its flag and the values that would do."""


class ModelError(ChairliftError):
    """A model cannot be loaded."""


class UnsupportedModel(ModelError):
    """The model was read correctly, but this build cannot run it."""


class CorruptModel(ModelError):
    """The model's files are truncated or contradict themselves."""


class TokenizerError(ModelError):
    """The tokenizer or the chat template is missing or unusable."""


class OutOfDeviceMemory(ChairliftError):
    """Weights, activations or the KV pool do not fit in the memory allowed."""


class RequestError(ChairliftError):
    """One request is at fault; nothing else is affected."""


class RequestRefused(RequestError):
    """A request was refused before it started.

    Attributes:
        refused: the scheduler's verdict, with the numbers and the setting to change.
    """

    def __init__(self, refused: Refused) -> None:
        super().__init__(refused.message)
        self.refused = refused


class RunnerError(ChairliftError):
    """The device or its runtime failed."""


class StepFailed(RunnerError):
    """One step did not happen as a whole. The engine aborts its plan and may plan again."""


class EngineError(ChairliftError):
    """The engine cannot go on."""


class EngineUnhealthy(EngineError):
    """Work is pending and cannot be scheduled; the message has the cause."""


class EngineClosed(EngineError):
    """The engine was shut down."""


class RecordError(ChairliftError):
    """A record on disk cannot be read or written."""


class DeviceModelError(ChairliftError):
    """A device model, a device sheet, a model's config or a table of measurements cannot be used."""


class OutsideValidRange(DeviceModelError):
    """A step has more tokens, rows or context than the device model was made for."""


class ContractError(ChairliftError):
    """A caller broke the scheduler's contract, such as committing a plan that is not in flight."""


class IntegrityError(ContractError):
    """The KV pool's books do not balance. This is a bug, never a user's mistake."""


class ReplayError(ContractError):
    """A journal, replayed, does not lead where it led when it was recorded."""
