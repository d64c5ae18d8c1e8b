"""How a schedule is run, and what passes between a target's parts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

from chairlift.core.errors import ConfigError
from chairlift.core.request import Nanoseconds, TokenId
from chairlift.lab.client.clock import SECOND
from chairlift.lab.loads.request import ScheduledRequest
from chairlift.lab.loads.text import Message

Prompt: TypeAlias = Sequence[TokenId] | str | tuple[Message, ...]
"""Token ids, text, or a chat: what the target takes."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What an earlier turn of a session was answered."""

    text: str
    token_ids: tuple[TokenId, ...] | None


class PromptWriter(Protocol):
    """Makes the prompts of one load for one target."""

    def __call__(self, request: ScheduledRequest, answers: Mapping[int, Answer]) -> Prompt:
        """A prompt, the same every time.

        Args:
            request: whose.
            answers: by request index, what the turns before were answered, as far as they ended well.

        Raises:
            ConfigError: no prompt of the length asked for can be made.
        """


@dataclass(frozen=True, slots=True)
class TimeLimits:
    """When the client stops waiting. What ends so is recorded as a timeout.

    Raises:
        ConfigError: a limit is not positive.
    """

    connect: Nanoseconds | None = 30 * SECOND
    """From the beginning of a request until it is written. None: as long as the operating system tries."""
    idle: Nanoseconds | None = 600 * SECOND
    """Without a byte, the wait for the first one included. None: for ever."""
    total: Nanoseconds | None = None
    """From the beginning of a request to the end of its answer. None: for ever."""

    def __post_init__(self) -> None:
        for name in ("connect", "idle", "total"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ConfigError(f"--{name}-timeout is {value} ns; it must be positive, or none.")


@dataclass(frozen=True, slots=True)
class RunOptions:
    """How a schedule is run, beside what it says itself.

    Raises:
        ConfigError: the time limit is not positive.
    """

    salt: str = ""
    """Goes into the prompts' nonces: with a fresh one, nothing that the target has cached of an earlier run helps."""
    keep_text: bool = False
    """Keep answers in the traces."""
    time_limit: Nanoseconds | None = None
    """Cut everything at this moment."""
    limits: TimeLimits = field(default_factory=TimeLimits)
    """When to stop waiting for one request."""
    sample_interval: Nanoseconds = SECOND
    """Between two samples of the client's health, and of the server's metrics."""

    def __post_init__(self) -> None:
        if self.time_limit is not None and self.time_limit < 1:
            raise ConfigError(f"--time-limit is {self.time_limit} ns; it must be positive, or absent.")


class Stop:
    """Asks a run to end early: what is under way is cut and recorded as such."""

    def __init__(self) -> None:
        self.requested = False
        self._listeners: list[Callable[[], None]] = []

    def request(self) -> None:
        """End soon. Call it on the event loop's thread. Asking again does nothing."""
        if not self.requested:
            self.requested = True
            for listener in tuple(self._listeners):
                listener()

    def listen(self, listener: Callable[[], None]) -> None:
        """Be called when it is requested; at once if it was."""
        self._listeners.append(listener)
        if self.requested:
            listener()
