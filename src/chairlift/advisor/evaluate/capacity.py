"""How much of a load a setting can take: the highest rate at which every limit still holds.

The same requests come in the same order, all times divided by a factor; the factor is found by bisection on its
logarithm, to about 4%. Only a load that keeps its schedule whatever the target does has a rate to raise.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any, Final

from chairlift.advisor.evaluate.pool import Pool, Trial
from chairlift.advisor.evaluate.rounds import Listed, Round
from chairlift.advisor.evaluate.run import Problem
from chairlift.advisor.evaluate.targets import Targets
from chairlift.lab.loads.request import After, At, ScheduledRequest, Start

LARGEST: Final = 64.0
"""The rate is looked for between the load's over this and the load's times this."""
_FINEST: Final = 2 ** (1 / 16)
"""The factor is found to a sixteenth of an octave."""


@dataclass(frozen=True, slots=True)
class Capacity:
    """Of one setting."""

    factors: tuple[float, ...]
    """By round: how many times the load's rate it can take; 0: not even a sixty-fourth."""
    rates: tuple[float, ...]
    """The same in requests a second."""

    @property
    def factor(self) -> float:
        """Mean over rounds."""
        return fmean(self.factors)

    @property
    def rate(self) -> float:
        """Mean over rounds, requests/s."""
        return fmean(self.rates)


def capacities(
    pool: Pool,
    problem: Problem,
    several: Sequence[Mapping[str, Any]],
    rounds: Sequence[Round],
    targets: Targets,
    hint: float | None = None,
) -> list[Capacity]:
    """Of each of these settings, all bisected side by side.

    Args:
        pool: runs the trials.
        problem: device and shared settings.
        several: settings.
        rounds: of the load.
        targets: whose limits must hold.
        hint: a factor that it may be near to, which saves trials.
    """
    hunts = [[_Hunt(hint) for _ in rounds] for _ in several]
    while True:
        open_ = [
            (hunt, settings, load)
            for settings, own in zip(several, hunts, strict=True)
            for hunt, load in zip(own, rounds, strict=True)
            if not hunt.done
        ]
        if not open_:
            break
        trials = [Trial(problem, settings, compressed(load, hunt.factor)) for hunt, settings, load in open_]
        for (hunt, _, _), outcome in zip(open_, pool.run(trials), strict=True):
            hunt.tell(held=targets.meets(outcome))
    found = []
    for own in hunts:
        factors = tuple(hunt.low for hunt in own)
        found.append(Capacity(factors, tuple(f * rate_of(load) for f, load in zip(factors, rounds, strict=True))))
    return found


class _Hunt:
    """A bisection that is asked for its next factor and told whether the limits held there."""

    def __init__(self, hint: float | None = None) -> None:
        self.factor = hint or 1.0
        self.low = 0.0
        """The largest that is known to hold."""
        self.done = False
        self._high = math.inf
        """The smallest that is known not to."""
        self._stride = 2.0 if hint is None else math.sqrt(2)

    def tell(self, *, held: bool) -> None:
        """Whether the limits held at `factor`, which is then the next one to try."""
        if held:
            self.low = self.factor
        else:
            self._high = self.factor
        if self._high == math.inf:
            self.done = self.low >= LARGEST
            self.factor = min(LARGEST, self.factor * self._stride)
        elif not self.low:
            self.done = self._high <= 1 / LARGEST
            self.factor = max(1 / LARGEST, self.factor / self._stride)
        else:
            self.done = self._high / self.low < _FINEST * 1.0001
            self.factor = math.sqrt(self.low * self._high)


def compressed(load: Round, factor: float) -> Round:
    """The same requests, so many times as fast."""
    if factor == 1:
        return load
    requests = [replace(one, start=_sooner(one.start, factor)) for one in load.schedule]
    return replace(load, schedule=Listed(load.schedule.load, requests))


def rate_of(load: Round) -> float:
    """Requests a second, from the first start to the last; 0 where all come at once."""
    dues = [_due(one) for one in load.schedule]
    span = max(dues) - min(dues)
    return (len(dues) - 1) * 1e9 / span if span else 0.0


def _due(request: ScheduledRequest) -> int:
    start = request.start
    return start.due if isinstance(start, At) else start.not_before


def _sooner(start: Start, factor: float) -> Start:
    if isinstance(start, At):
        return At(round(start.due / factor))
    if isinstance(start, After):
        return replace(start, not_before=round(start.not_before / factor))
    return start
