"""What holds the recommended policy back: memory, bandwidth, compute, a latency limit, or nothing but the load."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from chairlift.advisor.choose.search import Contender
from chairlift.advisor.evaluate.relief import Constraint, Relief
from chairlift.advisor.evaluate.targets import Reached, Targets

NOTABLE: Final = 0.03
"""Gains below this share are called none."""
CLOSE: Final = 0.9
"""A limit is close when the figure is at least this share of it."""


@dataclass(frozen=True, slots=True)
class Binding:
    """The constraint, and what it rests on."""

    constraint: Constraint | str
    """memory, bandwidth, compute, latency (a limit), or load (nothing: more of anything would gain next to nothing)."""
    reliefs: tuple[Relief, ...]
    without_limits: float | None
    """Gain of the objective by the best settings that break the limits; None without limits or where it is no gain."""
    limits: tuple[Reached, ...]
    by_throughput: bool
    """Whether gains are of throughput; else they are of the mean time from end to end."""


def binding_of(contender: Contender, reliefs: list[Relief], targets: Targets, *, by_throughput: bool) -> Binding:
    """Say which.

    Args:
        contender: the recommended policy.
        reliefs: what twice as much of each thing would bring it.
        targets: objective and limits.
        by_throughput: whether the load takes what it can get; else its rate decides the throughput, and what relief
            brings shows in latency.
    """
    figures = contender.outcomes[0].figures
    limits = () if figures is None else tuple(targets.reached(figures))
    without = _without_limits(contender, targets)
    gains: dict[Constraint | str, float] = {
        one.constraint: one.throughput if by_throughput else -one.e2e for one in reliefs
    }
    close = [one for one in limits if one.ratio >= CLOSE]
    if (without or 0.0) > NOTABLE or any(one.ratio > 1 for one in limits):
        gains["latency"] = max(without or 0.0, *gains.values(), NOTABLE) + NOTABLE
    most = max(gains, key=lambda name: gains[name])
    name = most if gains[most] > NOTABLE else "latency" if close else "load"
    return Binding(name, tuple(reliefs), without, limits, by_throughput)


def _without_limits(contender: Contender, targets: Targets) -> float | None:
    """What the best settings would gain if no limit had to hold, among those that were tried."""
    free = Targets(targets.objective) if targets.objective != "goodput" else None
    own = contender.outcomes[0].figures
    if free is None or own is None or free == targets:
        return None
    values = [value for one in contender.tried if one.figures and (value := free.value(one.figures)) is not None]
    now = free.value(own)
    if not values or not now:
        return None
    return max(values) / now - 1 if free.higher_is_better else 1 - min(values) / now
