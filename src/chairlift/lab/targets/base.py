"""What a load can be run against, seen from the lab: a target runs a schedule and yields what was observed.

The target owns its clock. A server and a model live in real time; a simulation yields the same records in virtual time,
as fast as it can make them.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from chairlift.devices.model import DeviceModel
from chairlift.lab.client.options import RunOptions, Stop
from chairlift.lab.loads.schedule import Schedule
from chairlift.records.client import Observation
from chairlift.records.manifest import Manifest


@dataclass(frozen=True, slots=True)
class TargetInfo:
    """What the target is, for the manifest and for people."""

    kind: str
    """vllm, sglang, tgi, llama.cpp, tensorrt-llm, triton, chairlift, openai (any other server), model, simulator."""
    name: str
    """Its URL, the model's path, or the device model's name."""
    model: str
    """The model that answers."""
    version: str = ""
    """Of the server or engine; empty where it does not say."""
    prompts: str = ""
    """How prompts are sent: token ids, text or messages, and who checked their lengths."""
    max_model_len: int | None = None
    """Most tokens of prompt and answer together, where it says so."""
    notes: tuple[str, ...] = ()
    """What a reader of the results must know, such as: this server cannot be told to ignore the end of sequence."""
    details: Mapping[str, Any] = field(default_factory=dict)
    """Whatever else it said of itself."""
    virtual_time: bool = False
    """Its clock is a simulation's, and begins with each run."""


class Target(Protocol):
    """Something that answers requests."""

    async def open(self) -> TargetInfo:
        """Look at it. To be called once, before anything is run.

        Raises:
            ConfigError: it is not there, or cannot do what was asked for; the message says what would help.
        """

    def run(
        self, schedule: Schedule, options: RunOptions | None = None, stop: Stop | None = None
    ) -> AsyncGenerator[Observation, None]:
        """Send the schedule's requests when they are due, and yield each trace as its request ends, with samples of
        the client and the server in between.

        Every request that was due before the end has exactly one trace. Close the generator (`aclosing`) to break off;
        use `stop` to end early and still have the traces of what was cut.
        """

    async def close(self) -> None:
        """Free what it holds. Closing again does nothing."""


@runtime_checkable
class KeepsRecords(Protocol):
    """A target whose engine can be looked into: it keeps the engine's own records beside the client's."""

    @property
    def device(self) -> DeviceModel | None:
        """What its device was found to do, for the saturation; None where that is not known."""

    def records(self, folder: Path, client: Manifest) -> AbstractAsyncContextManager[None]:
        """Within this, what is run is recorded; at its end the target is closed, so that the last step is in.

        Args:
            folder: of the engine's records; must not hold others.
            client: the manifest of the client's run.

        Raises:
            RecordError: the folder holds records, or cannot be written.
        """
