"""What a load is, in numbers: printed and stored before it runs. How each number is reckoned is in `statistics`."""

from __future__ import annotations

import itertools
from array import array
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

from chairlift.core.errors import ConfigError
from chairlift.core.request import Nanoseconds
from chairlift.lab.loads.arrivals import ClosedLoop
from chairlift.lab.loads.request import After, At, ScheduledRequest, Segment
from chairlift.lab.loads.schedule import Schedule
from chairlift.lab.loads.statistics import Distribution, cv_of_gaps, dispersion, peak_overlap, rate
from chairlift.lab.loads.units import SECOND, seconds

WINDOWS: Final = (1, 10, 60)
"""Seconds of the windows whose counts' dispersion is told."""
AT_MOST: Final = 10_000
"""Requests that are looked at where the load has no end of its own."""


@dataclass(frozen=True, slots=True)
class Description:
    """Numbers of a load. None: it does not apply, or there is too little to tell."""

    requests: int
    complete: bool
    """Whether these are all requests. A closed loop bounded by time has no end of its own, so a sample is described."""
    sessions: int
    """Conversations of several turns or one; 0 in a load without."""
    prompt: Distribution
    """Tokens of prompts, shared ones included."""
    output: Distribution
    """Tokens of answers."""
    longest: int
    """Largest prompt + max_tokens: what max_model_len must hold."""
    shared_tokens: float
    """Share of all prompt tokens that an earlier prompt of the load begins with too: what a perfect prefix cache
    would save. Answers of earlier turns count as seen."""
    users: int | None
    """Of a closed loop."""
    span_s: float | None
    """From the first start to the last, of starts at times of their own (later turns have none)."""
    rate: float | None
    """Those starts a second."""
    cv_of_gaps: float | None
    """Standard deviation over mean of the gaps between those starts. 0: even, 1: Poisson."""
    dispersion: Mapping[str, float | None]
    """Variance over mean of the counts of those starts in windows of 1, 10 and 60 s. 1: Poisson."""
    peak_concurrency_at_least: int
    """Most requests that are open at once, however fast the target is (see token_time)."""
    token_time_s: float
    """Time a token takes at the least, by assumption; 0 counts only what starts at the same instant."""
    classes: Mapping[str, int]
    """Requests of each class."""
    priorities: Mapping[str, int]
    """Requests of each priority."""
    deadlines: int
    """Requests with a deadline."""
    notes: tuple[str, ...]
    """What was noticed about the load's files."""

    def to_json(self) -> dict[str, Any]:
        """Plain values, for a record."""
        return asdict(self) | {"notes": list(self.notes)}

    def table(self) -> str:
        """For people, before a run."""
        return "\n".join([*_table(self), *self.notes])


def describe(schedule: Schedule, token_time: Nanoseconds = 0) -> Description:
    """Go through a schedule once.

    Args:
        schedule: the load's requests.
        token_time: a token of an answer takes at least this long, for the bound on concurrency.

    Raises:
        ConfigError: it has no request in it.
    """
    seen = Seen(extended=schedule.extends)
    prompts, outputs, starts, lasting = array("q"), array("q"), array("q"), array("q")
    sessions: set[int] = set()
    classes: Counter[str] = Counter()
    priorities: Counter[str] = Counter()
    deadlines = longest = 0
    for request in sample(schedule):
        prompts.append(request.prompt_tokens)
        outputs.append(request.output_tokens)
        if isinstance(request.start, At) or (isinstance(request.start, After) and request.start.not_before):
            starts.append(request.start.due if isinstance(request.start, At) else request.start.not_before)
            lasting.append(request.output_tokens * token_time)
        if request.session is not None:
            sessions.add(request.session)
        classes[request.kind] += 1
        priorities[str(request.priority)] += 1
        deadlines += request.deadline is not None
        longest = max(longest, request.prompt_tokens + request.max_tokens)
        seen.add(request)
    if not prompts:
        raise ConfigError("the load has no request in it: its duration is over before the first one is due.")
    arrivals = schedule.load.arrivals
    users = arrivals.users if isinstance(arrivals, ClosedLoop) else None
    return Description(
        requests=len(prompts),
        complete=schedule.load.bounded,
        sessions=len(sessions),
        prompt=Distribution.of(prompts),
        output=Distribution.of(outputs),
        longest=longest,
        shared_tokens=seen.shared / seen.total,
        users=users,
        span_s=seconds(starts[-1] - starts[0]) if starts else None,
        rate=rate(starts),
        cv_of_gaps=cv_of_gaps(starts),
        dispersion={f"{window}s": dispersion(starts, window * SECOND) for window in WINDOWS},
        peak_concurrency_at_least=peak_overlap(starts, lasting) if users is None else min(users, len(prompts)),
        token_time_s=seconds(token_time),
        classes=dict(classes) if set(classes) != {""} else {},
        priorities=dict(sorted(priorities.items())),
        deadlines=deadlines,
        notes=schedule.notes,
    )


def sample(schedule: Schedule) -> Iterator[ScheduledRequest]:
    """All requests, or the first AT_MOST of a load without an end."""
    return itertools.islice(schedule, None if schedule.load.bounded else AT_MOST)


class Seen:
    """Prompts' beginnings, to tell how much of a new prompt was there before.

    What nobody can begin with again is not remembered, so that a long trace takes little room.
    """

    def __init__(self, *, extended: bool) -> None:
        """Nothing is known yet.

        Args:
            extended: whether later turns extend earlier prompts and answers.
        """
        self.shared = self.total = 0
        self._extended = extended
        self._lengths: dict[tuple[int, str, int], int] = {}  # longest seen, by path so far, stream and number
        self._paths: dict[tuple[int, str, int, int], int] = {}  # the path that a segment leads to

    def add(self, request: ScheduledRequest) -> None:
        """Count a prompt; it is known from now on, and so is its answer if a later turn may extend it."""
        path = 0  # where a path is new, nothing on it was seen
        for segment in request.recipe:
            self.total += segment.tokens
            if segment.stream == "own" and (request.session is None or not self._extended):
                return
            place = (path, segment.stream, segment.number)
            before = self._lengths.get(place, 0)
            self.shared += min(before, segment.tokens)
            path = self._remember(path, segment, before)
        if request.session is not None and self._extended:
            self._remember(path, Segment("answer", request.index, request.output_tokens), 0)

    def _remember(self, path: int, segment: Segment, before: int) -> int:
        self._lengths[path, segment.stream, segment.number] = max(before, segment.tokens)
        step = (path, segment.stream, segment.number, segment.tokens)
        return self._paths.setdefault(step, len(self._paths) + 1)


def _table(description: Description) -> Iterator[str]:
    prompt, output = description.prompt, description.output
    yield f"{'tokens':<8}{'mean':>10}{'p50':>8}{'p90':>8}{'p99':>8}{'max':>8}{'variance':>14}{'CV²':>8}"
    for name, of in (("prompt", prompt), ("output", output)):
        yield (
            f"{name:<8}{of.mean:>10,.1f}{of.p50:>8,}{of.p90:>8,}{of.p99:>8,}{of.max:>8,}"
            f"{of.variance:>14,.1f}{of.cv2:>8.3f}"
        )
    whole = "" if description.complete else " (the first ones; the load goes on until its time is over)"
    sessions = f" in {description.sessions:,} sessions" if description.sessions else ""
    yield f"{description.requests:,} requests{sessions}{whole}, longest prompt + max_tokens {description.longest:,}"
    yield f"{description.shared_tokens:.1%} of the prompt tokens are shared with an earlier prompt"
    if description.users is not None:
        yield f"closed loop of {description.users:,} users: when requests start is for the target to decide"
    elif description.rate is None:
        yield "all start at one instant"
    else:
        spread = ", ".join(f"{window} {_number(value)}" for window, value in description.dispersion.items())
        yield (
            f"{description.rate:.4g} starts/s over {description.span_s:,.1f} s, CV of gaps "
            f"{_number(description.cv_of_gaps)}, index of dispersion: {spread}"
        )
    assumed = f" if a token takes {description.token_time_s:g} s" if description.token_time_s else ""
    yield f"at least {description.peak_concurrency_at_least:,} in flight at the peak{assumed}"
    if description.classes:
        yield "classes: " + ", ".join(f"{name} {count:,}" for name, count in sorted(description.classes.items()))
    if len(description.priorities) > 1:
        yield "priorities: " + ", ".join(f"{name}: {count:,}" for name, count in description.priorities.items())
    if description.deadlines:
        yield f"{description.deadlines:,} with a deadline"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}"
