"""The order in which to tune by hand, walked through on the simulator.

One request alone, for what the device can do. More and more at once with lengths alike, watching memory and the time
between tokens, until throughput bends, memory is full or a limit breaks. Then the load's own lengths at that
concurrency, watching p99. Never everything at its maximum from the start.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any, Final

from chairlift.advisor.choose.search import SIZE_SETTING
from chairlift.advisor.evaluate.outcome import Figures
from chairlift.advisor.evaluate.pool import Pool, Trial
from chairlift.advisor.evaluate.rounds import Listed, Round
from chairlift.advisor.evaluate.run import Problem
from chairlift.advisor.evaluate.targets import Targets
from chairlift.core.config import PolicyName
from chairlift.lab.loads.arrivals import ClosedLoop
from chairlift.lab.loads.lengths import FixedLength
from chairlift.lab.loads.load import Load
from chairlift.lab.loads.request import ScheduledRequest, Segment, WhenFree

_BEND: Final = 1.1
"""Twice as many at once that give less than this times the throughput: the curve has bent."""
_EACH: Final = 4
"""Requests of each user."""


@dataclass(frozen=True, slots=True)
class Stage:
    """So many at once."""

    name: str
    users: int
    figures: Figures | None
    refusal: str
    remark: str
    """What was seen: the bend, a full pool, a broken limit; or empty."""


@dataclass(frozen=True, slots=True)
class Walk:
    """All stages, in order."""

    stages: tuple[Stage, ...]
    concurrency: int
    """The most at once before something gave way."""


def walk(
    pool: Pool, problem: Problem, load: Round, targets: Targets, policy: PolicyName, settings: Mapping[str, Any]
) -> Walk:
    """Go through the stages.

    Args:
        pool: runs them.
        problem: device and shared settings.
        load: whose lengths are taken.
        targets: whose limits are watched.
        policy: that is tuned.
        settings: other than the number of sequences at once.
    """
    requests = list(load.schedule)
    most = min(problem.device.valid.rows, problem.config({**settings, SIZE_SETTING[policy]: 1}).max_num_batched_tokens)
    counts = [1 << power for power in range(most.bit_length()) if 1 << power <= min(most, 4 * len(requests))]
    outcomes = pool.run(
        Trial(problem, {**settings, SIZE_SETTING[policy]: users}, even_round(requests, users)) for users in counts
    )
    stages: list[Stage] = []
    before: Figures | None = None
    concurrency = 1
    for users, outcome in zip(counts, outcomes, strict=True):
        figures = outcome.figures
        name = "one request alone" if users == 1 else "lengths alike"
        refusal = "" if outcome.refusal is None else outcome.refusal.message
        remark = _remark(figures, before, targets)
        stages.append(Stage(name, users, figures, refusal, remark))
        if figures is None or (remark and users > 1):
            break
        before, concurrency = figures, users
    mixed = pool.run(
        Trial(problem, {**settings, SIZE_SETTING[policy]: users}, mixed_round(requests, users))
        for users in dict.fromkeys((concurrency, max(1, concurrency // 2)))
    )
    for users, outcome in zip(dict.fromkeys((concurrency, max(1, concurrency // 2))), mixed, strict=True):
        refusal = "" if outcome.refusal is None else outcome.refusal.message
        stages.append(
            Stage("the load's lengths", users, outcome.figures, refusal, _remark(outcome.figures, None, targets))
        )
    return Walk(tuple(stages), concurrency)


def even_round(requests: list[ScheduledRequest], users: int) -> Round:
    """So many users, each with requests of the load's mean lengths, one after the other."""
    prompt = round(fmean(one.prompt_tokens for one in requests))
    output = max(1, round(fmean(one.output_tokens for one in requests)))
    return _closed(users, [(prompt, output)] * (users * _EACH))


def mixed_round(requests: list[ScheduledRequest], users: int) -> Round:
    """So many users with the load's own lengths, in its order, from the first again after the last."""
    lengths = [(one.prompt_tokens, one.output_tokens) for one in requests]
    count = users * _EACH
    return _closed(users, [lengths[index % len(lengths)] for index in range(count)])


def _closed(users: int, lengths: list[tuple[int, int]]) -> Round:
    load = Load(arrivals=ClosedLoop(users), prompt=FixedLength(1), output=FixedLength(1), count=len(lengths))
    made = [
        ScheduledRequest(
            index=index,
            start=WhenFree(),
            recipe=(Segment("own", index, prompt),),
            prompt_tokens=prompt,
            output_tokens=output,
            max_tokens=output,
        )
        for index, (prompt, output) in enumerate(lengths)
    ]
    return replace(Round(Listed(load, made)))


def _remark(figures: Figures | None, before: Figures | None, targets: Targets) -> str:
    if figures is None:
        return "it does not run"
    broken = [one for one in targets.reached(figures) if one.ratio > 1]
    if broken:
        worst = max(broken, key=lambda one: one.ratio)
        return f"breaks {worst.flag}"
    if figures.preemptions:
        return f"the pool is full: {figures.preemptions:,} preemptions"
    if before is not None and figures.tokens_per_second < _BEND * before.tokens_per_second:
        return "throughput has bent"
    return ""
