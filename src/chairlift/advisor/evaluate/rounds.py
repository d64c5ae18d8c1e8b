"""A load cut to a size that can be lived through many times, and repeats of it that differ as two days do.

A load that is drawn is drawn again with the next seed. A trace has no seed to speak of: its rounds are stretches of
consecutive requests, spread evenly over the whole of it.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from chairlift.core.config import PolicyName
from chairlift.core.errors import ConfigError
from chairlift.lab.compare.fairness import offline
from chairlift.lab.loads.arrivals import Burst, ClosedLoop, TraceReplay
from chairlift.lab.loads.load import Load
from chairlift.lab.loads.request import At, ScheduledRequest
from chairlift.lab.loads.schedule import Schedule

REQUESTS: Final = 400
"""Most requests of a round, unless told otherwise."""
TOKENS: Final = 1_500_000
"""A round ends with the request that reaches so many tokens of prompts and answers, so that long prompts do not make it
long; but not before LEAST requests."""
LEAST: Final = 50
_SORTED: Final = (
    "everything is there at once: static takes it in the order of the prompts' lengths, which whoever sends it knows"
)


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
    sortable: bool = False
    """Whether everything is there at one instant, so that whoever sends it may choose the order."""

    def under(self, policy: PolicyName) -> Listed:
        """As it is sent. For static batching what may be sorted is sorted by the prompts' lengths, which the sender
        knows, so that little is padded; how long answers will be he does not know.
        """
        if not self.sortable or policy != "static":
            return self.schedule
        ordered = sorted(self.schedule, key=lambda one: one.prompt_tokens)
        return Listed(self.schedule.load, [replace(one, index=index) for index, one in enumerate(ordered)])


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
    cut: bool
    """Whether the load goes on after what is simulated of it."""

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
    def has_a_rate(self) -> bool:
        """Whether requests keep to times of their own, so that they could come faster."""
        return not self.waits_for_the_target and not isinstance(self.load.arrivals, Burst)

    def most_at_once(self, policy: PolicyName) -> int:
        """Requests that can ever be there together. Of a load that was cut short a closed batch holds a quarter at
        most: a batch of all that is left would say nothing about the next one.
        """
        requests = len(self.first.schedule)
        if isinstance(self.load.arrivals, ClosedLoop):
            return min(requests, self.load.arrivals.users)
        return max(1, requests // 4) if self.cut and policy != "continuous" else requests


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
    drawn = list(_windows(load, count, requests, longest) if windows else _drawn(load, count, requests, longest))
    made = [one.requests for one in drawn]
    if not made or not all(made):
        raise ConfigError("the load has no request that can be simulated: none, or none short enough.")
    cut = any(one.cut for one in drawn)
    return Rounds(
        load=load,
        rounds=tuple(Round(Listed(load, each), offline(load)) for each in made),
        longest=max(_length(one) for each in made for one in each),
        notes=(*_notes(drawn, longest, windows=windows), *([_SORTED] if offline(load) else [])),
        cut=cut,
    )


@dataclass(frozen=True, slots=True)
class _Drawn:
    requests: list[ScheduledRequest]
    left_out: int
    cut: bool


def _drawn(load: Load, count: int, requests: int, longest: int | None) -> Iterator[_Drawn]:
    for number in range(count):
        yield _taken(iter(Schedule(replace(load, seed=load.seed + number))), requests, longest)


def _windows(load: Load, count: int, requests: int, longest: int | None) -> Iterator[_Drawn]:
    whole = list(Schedule(load))
    size = len(_taken(iter(whole), requests, longest).requests)
    spare = max(0, len(whole) - size)
    for start in sorted({round(number * spare / max(1, count - 1)) for number in range(count)}):
        taken = _taken(itertools.islice(whole, start, None), requests, longest)
        yield replace(taken, requests=_renumbered(taken.requests), cut=spare > 0)


def _taken(source: Iterator[ScheduledRequest], most: int, longest: int | None) -> _Drawn:
    """The first requests that are not too long."""
    taken: list[ScheduledRequest] = []
    tokens = left_out = 0
    for one in source:
        if len(taken) >= most or (tokens >= TOKENS and len(taken) >= LEAST):
            return _Drawn(taken, left_out, cut=True)
        if longest is not None and _length(one) > longest:
            left_out += 1
            continue
        taken.append(one)
        tokens += one.prompt_tokens + one.output_tokens
    return _Drawn(taken if not left_out else _renumbered(taken), left_out, cut=False)


def _notes(drawn: Sequence[_Drawn], longest: int | None, *, windows: bool) -> Iterator[str]:
    sizes = sorted({len(one.requests) for one in drawn})
    most = f"{sizes[0]:,} to {sizes[-1]:,}" if len(sizes) > 1 else f"{sizes[0]:,}"
    if windows and any(one.cut for one in drawn):
        yield (
            f"simulated: {len(drawn)} stretches of {most} consecutive requests, evenly spread over the trace "
            "(--requests, --rounds)"
        )
    elif any(one.cut for one in drawn):
        yield f"simulated: the first {most} requests, {len(drawn)} times with seeds of their own (--requests, --rounds)"
    if left_out := sum(one.left_out for one in drawn):
        yield f"{left_out:,} requests are left out: longer than the {longest or 0:,} tokens of the model's context"


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


def _length(request: ScheduledRequest) -> int:
    return request.prompt_tokens + request.max_tokens
