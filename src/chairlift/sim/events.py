"""What comes to a simulated engine from outside, when, and from whom."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from chairlift.core.config import PolicyName
from chairlift.core.errors import ConfigError
from chairlift.core.request import Nanoseconds, Refused, Request


@dataclass(frozen=True, slots=True)
class Arrival:
    """A request comes to the door."""

    time: Nanoseconds
    request: Request
    """Its `arrival` may be earlier than the time, if it was due before. A prompt of TokenRuns or a range takes no room.
    Without stop ids it can be jumped over."""
    output_tokens: int | None = None
    """How long the answer is that the model would give; its request's max_tokens is only a bound then. None: as long as
    the bound allows."""
    leaves: Nanoseconds | None = None
    """When its client gives up, if it has not been answered."""


@dataclass(frozen=True, slots=True)
class Departure:
    """A client leaves: its request is cancelled. No error when that has ended."""

    time: Nanoseconds
    request_id: str


@dataclass(frozen=True, slots=True)
class Switch:
    """The policy changes, live."""

    time: Nanoseconds
    policy: PolicyName
    changes: Mapping[str, Any] = field(default_factory=dict)
    """Settings that change with it."""


@dataclass(frozen=True, slots=True)
class InputEnd:
    """Nobody will come any more: unfilled batches may leave."""

    time: Nanoseconds


Event = Arrival | Departure | Switch | InputEnd


class Source(Protocol):
    """Where events come from. It may learn from what becomes of them, as a user who waits for an answer does."""

    def next(self) -> Nanoseconds | None:
        """When the next event comes, as far as is known. None: none, unless something ends."""
        ...

    def take(self, before: Nanoseconds) -> Sequence[Event]:
        """Events that come before this time, each once and in order; nothing when there are none. It is asked again
        after each time it gave some, so what depends on their fate can wait.
        """
        ...

    def refused(self, arrival: Arrival, verdict: Refused) -> None:
        """A request was turned away, at the time it came."""
        ...

    def ended(self, request_id: str, now: Nanoseconds, *, well: bool) -> None:
        """A request's result has left.

        Args:
            request_id: whose.
            now: when.
            well: whether it was answered; False when it was cancelled or failed.
        """
        ...


class OpenLoop:
    """Requests that come when they come, whatever becomes of the others.

    Args:
        arrivals: in order of time; read as late as possible, so that a million of them take no room.
        others: departures and switches, in any order.
        start: when an empty input is at its end.
    """

    def __init__(
        self, arrivals: Iterable[Arrival], others: Iterable[Departure | Switch] = (), start: Nanoseconds = 0
    ) -> None:
        self._rest = iter(arrivals)
        self._next = next(self._rest, None)
        self._others: list[tuple[Nanoseconds, int, Departure | Switch]] = []
        self._numbered = 0
        self._end: InputEnd | None = None if self._next else InputEnd(start)
        for event in others:
            self._add(event)

    def next(self) -> Nanoseconds | None:
        times = [event.time for event in (self._next, self._end) if event is not None]
        if self._others:
            times.append(self._others[0][0])
        return min(times, default=None)

    def take(self, before: Nanoseconds) -> Sequence[Event]:
        if self._others and self._others[0][0] < before and not self._arrives_by(self._others[0][0]):
            return (heapq.heappop(self._others)[2],)
        if (arrival := self._next) is not None and arrival.time < before:
            self._advance(arrival)
            return (arrival,)
        if (end := self._end) is not None and end.time < before:
            self._end = None
            return (end,)
        return ()

    def refused(self, arrival: Arrival, verdict: Refused) -> None:
        """It makes no difference."""

    def ended(self, request_id: str, now: Nanoseconds, *, well: bool) -> None:
        """It makes no difference."""

    def _arrives_by(self, time: Nanoseconds) -> bool:
        """Whether an arrival, or the end of them, comes before what else happens at this time."""
        arrival = self._next or self._end
        return arrival is not None and arrival.time <= time

    def _advance(self, arrival: Arrival) -> None:
        if arrival.leaves is not None:
            self._add(Departure(arrival.leaves, arrival.request.request_id))
        self._next = next(self._rest, None)
        if self._next is None:
            self._end = InputEnd(arrival.time)
        elif self._next.time < arrival.time:
            raise ConfigError(
                f"the arrival of {self._next.request.request_id!r} at {self._next.time:,} ns comes after one at "
                f"{arrival.time:,} ns: arrivals must be in order of time."
            )

    def _add(self, event: Departure | Switch) -> None:
        heapq.heappush(self._others, (event.time, self._numbered, event))
        self._numbered += 1
