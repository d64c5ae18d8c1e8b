"""A load cut to a size that can be lived through many times, and repeats of it that differ as two days do.

A load that is drawn is drawn again with the next seed. A trace has no seed to speak of: its rounds are stretches of
consecutive requests, spread evenly over the whole of it.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from chairlift.core.errors import ConfigError
from chairlift.lab.compare.fairness import offline
from chairlift.lab.loads.arrivals import Burst, ClosedLoop, TraceReplay
from chairlift.lab.loads.load import Load
from chairlift.lab.loads.request import At, ScheduledRequest
from chairlift.lab.loads.schedule import Schedule

REQUESTS: Final = 400
"""Most requests of a round, unless told otherwise."""


class Listed(Schedule):
    """A schedule whose requests are there already: nothing is read or drawn again.

    Args:
        load: what they were made from.
        requests: in order, numbered from 0.
    """

    def __init__(self, load: Load, requests: Sequence[ScheduledRequest]) -> None:
        self.load = load
        self.notes = ()
        self.files = {}
        self.extends = False
        self._requests = tuple(requests)

    def __iter__(self) -> Iterator[ScheduledRequest]:
        return iter(self._requests)

    def __len__(self) -> int:
        return len(self._requests)


@dataclass(frozen=True, slots=True)
class Round:
    """One repeat of a load."""

    schedule: Listed


@dataclass(frozen=True, slots=True)
class Rounds:
    """A load as it is simulated."""

    load: Load
    rounds: tuple[Round, ...]
    """At least one; the first is the one that is searched on."""
    longest: int
    """Most tokens of prompt and permitted answer together, over all rounds."""
    notes: tuple[str, ...]
    """What was cut or left out."""

    @property
    def first(self) -> Round:
        return self.rounds[0]

    @property
    def offline(self) -> bool:
        """Whether everything is there at one instant."""
        return offline(self.load)

    @property
    def waits_for_the_target(self) -> bool:
        """Whether the load takes what it can get, so that its throughput says something about the target."""
        return self.offline or isinstance(self.load.arrivals, ClosedLoop)

    @property
    def most_at_once(self) -> int:
        """Requests that can ever be there together."""
        requests = len(self.first.schedule)
        return min(requests, self.load.arrivals.users) if isinstance(self.load.arrivals, ClosedLoop) else requests


def rounds_of(load: Load, *, count: int, requests: int = REQUESTS, longest: int | None = None) -> Rounds:
    """Cut a load, and repeat it.

    Args:
        load: what is asked.
        count: rounds.
        requests: most requests of a round.
        longest: leave out requests whose prompt and permitted answer are longer together.

    Raises:
        ConfigError: nothing is left, or a file cannot be used.
    """
    if count < 1 or requests < 1:
        raise ConfigError(f"{count} rounds of {requests} requests say nothing; both must be at least 1.")
    windows = isinstance(load.arrivals, TraceReplay) and not load.arrivals.follow
    made = list(_windows(load, count, requests)) if windows else list(_drawn(load, count, requests))
    notes = [*_cut_note(load, requests, windows=windows, count=len(made))]
    if longest is not None:
        whole = sum(map(len, made))
        made = [_renumbered([one for one in each if _length(one) <= longest]) for each in made]
        if left_out := whole - sum(map(len, made)):
            notes.append(
                f"{left_out:,} of {whole:,} requests are longer than {longest:,} tokens, more than the model or the "
                "device model holds: left out."
            )
    if not made or not all(made):
        raise ConfigError("the load has no request that can be simulated: none, or none short enough.")
    return Rounds(
        load=load,
        rounds=tuple(Round(Listed(load, each)) for each in made),
        longest=max(_length(one) for each in made for one in each),
        notes=tuple(notes),
    )


def _drawn(load: Load, count: int, requests: int) -> Iterator[list[ScheduledRequest]]:
    for number in range(count):
        yield list(itertools.islice(Schedule(replace(load, seed=load.seed + number)), requests))


def _windows(load: Load, count: int, requests: int) -> Iterator[list[ScheduledRequest]]:
    whole = list(Schedule(load))
    spare = max(0, len(whole) - requests)
    starts = sorted({round(number * spare / max(1, count - 1)) for number in range(count)})
    for start in starts:
        yield _renumbered(whole[start : start + requests])


def _renumbered(requests: Sequence[ScheduledRequest]) -> list[ScheduledRequest]:
    """Numbered from 0; times at their own moments start at 0."""
    if not requests or not all(isinstance(one.start, At) for one in requests):
        # Turns and users follow one another by number: with a gap in between they are left as they are.
        return list(requests)
    first = min(one.start.due for one in requests if isinstance(one.start, At))
    return [
        replace(one, index=index, start=At(one.start.due - first))
        for index, one in enumerate(requests)
        if isinstance(one.start, At)
    ]


def _cut_note(load: Load, requests: int, *, windows: bool, count: int) -> Iterator[str]:
    stretches = f"{count} stretches of up to {requests:,} consecutive requests, evenly spread over the trace"
    if windows:
        yield f"simulated: {stretches} (--requests, --rounds)."
    elif load.count is None or load.count > requests:
        size = load.arrivals.size if isinstance(load.arrivals, Burst) and load.arrivals.every is None else load.count
        if size is None or size > requests:
            of = "" if size is None else f" of {size:,}"
            yield f"simulated: up to {requests:,}{of} requests (--requests), {count} times with seeds of their own."


def _length(request: ScheduledRequest) -> int:
    return request.prompt_tokens + request.max_tokens
