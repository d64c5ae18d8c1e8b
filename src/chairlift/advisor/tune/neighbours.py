"""What half and double of each parameter would do, and so what binds it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from chairlift.advisor.choose.search import SIZE_SETTING
from chairlift.advisor.evaluate.outcome import Outcome
from chairlift.advisor.evaluate.pool import Pool, Trial
from chairlift.advisor.evaluate.rounds import Round
from chairlift.advisor.evaluate.run import Problem
from chairlift.advisor.evaluate.targets import Reached, Targets

SAME: Final = 0.01
"""Changes of the objective below this share are called none."""
_ROOM: Final = 0.05
"""Shares of a limit closer than this are called the same."""
_SMALLEST_DELAY: Final = 10_000_000
"""ns: what is tried as the double of a delay of zero."""


@dataclass(frozen=True, slots=True)
class Change:
    """Another value of one parameter, everything else as chosen."""

    value: Any
    objective: float | None
    """Relative to the chosen value's: 0.1 is a tenth better, -0.1 a tenth worse, whichever way is better. None: it does
    not run, or cannot be observed."""
    spent: float | None
    """Of the limit that is nearest, value / limit; None without limits."""
    broken: tuple[Reached, ...]
    """Limits that it breaks."""
    refusal: str
    """Why it does not run; empty where it does."""
    refusal_kind: str

    @property
    def allowed(self) -> bool:
        return not self.broken and not self.refusal


@dataclass(frozen=True, slots=True)
class Sensitivity:
    """One parameter."""

    name: str
    value: Any
    half: Change | None
    """None: there is no smaller value."""
    double: Change | None
    """None: there is no larger one."""

    spent: float | None
    """Of the limit that is nearest with the chosen value, value / limit; None without limits."""

    @property
    def binding(self) -> str:
        """What keeps the value from being larger, or why larger would be no better."""
        return _binding(self)


def sensitivities(
    pool: Pool, problem: Problem, load: Round, targets: Targets, chosen: Outcome, names: Sequence[str]
) -> list[Sensitivity]:
    """Try half and double of each.

    Args:
        pool: runs them.
        problem: as it is.
        load: to live through.
        targets: what is to be best.
        chosen: what came of the chosen settings on that load.
        names: parameters to vary, in order.
    """
    now = _values(problem, chosen.settings)
    pairs = [(name, *_around(name, now[name])) for name in names]
    trials = [
        Trial(problem, beside(chosen.settings, name, value), load)
        for name, *values in pairs
        for value in values
        if value is not None
    ]
    outcomes = iter(pool.run(trials))
    found = []
    for name, *values in pairs:
        half, double = (None if value is None else _change(value, next(outcomes), chosen, targets) for value in values)
        found.append(Sensitivity(name, now[name], half, double, _spent(targets, chosen)))
    return found


def beside(settings: Mapping[str, Any], name: str, value: Any) -> dict[str, Any]:
    """The settings with another value of one of them. A step has room for a token of each of its sequences, so those
    two settings give way to one another.
    """
    changed = {**settings, name: value}
    size = SIZE_SETTING.get(settings.get("policy", "continuous"), "")
    if "max_num_batched_tokens" in changed and size in changed:
        if name == size:
            changed["max_num_batched_tokens"] = max(changed["max_num_batched_tokens"], value)
        elif name == "max_num_batched_tokens":
            changed[size] = min(changed[size], value)
    return changed


def _spent(targets: Targets, outcome: Outcome) -> float | None:
    limits = () if outcome.figures is None else targets.reached(outcome.figures)
    return max((one.ratio for one in limits), default=None)


def _values(problem: Problem, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Every setting, defaults included."""
    parts = (problem.config(settings), problem.simulator(settings))
    return {name: getattr(part, name) for part in parts for name in part.__slots__}


def _around(name: str, value: Any) -> tuple[Any, Any]:
    """Half and double; the other one for a switch."""
    if isinstance(value, bool):
        return (False, None) if value else (None, True)
    if name == "gpu_memory_utilization":
        return round(value / 2, 3), None if value >= 0.99 else min(1.0, round(2 * value, 3))
    if isinstance(value, float):
        return (value / 2, min(0.5, 2 * value)) if value else (None, 0.01)
    if isinstance(value, tuple):
        return None, None
    if name.endswith("delay"):
        return (value // 2, 2 * value) if value else (None, _SMALLEST_DELAY)
    return value // 2 if value > 1 else None, 2 * value


def _change(value: Any, outcome: Outcome, chosen: Outcome, targets: Targets) -> Change:
    if outcome.figures is None:
        refusal = outcome.refusal
        return Change(
            value, None, None, (), "" if refusal is None else refusal.message, "" if refusal is None else refusal.kind
        )
    before = None if chosen.figures is None else targets.value(chosen.figures)
    after = targets.value(outcome.figures)
    relative = None
    if before and after is not None:
        relative = after / before - 1 if targets.higher_is_better else 1 - after / before
    broken = tuple(one for one in targets.reached(outcome.figures) if one.ratio > 1)
    return Change(value, relative, _spent(targets, outcome), broken, "", "")


def _binding(one: Sensitivity) -> str:
    up, down = one.double, one.half
    for change, word in ((up, "more"), (down, "less")):
        if change is not None and change.allowed and change.objective is not None and change.objective > SAME:
            return f"nothing yet: {word} is better on the first round"
    for change, word in ((up, "more"), (down, "less")):
        if change is None:
            continue
        if change.broken:
            worst = max(change.broken, key=lambda reached: reached.ratio)
            return f"{worst.name} ({word} breaks it)"
        if change.refusal:
            kinds = {
                "out_of_memory": "memory",
                "load_does_not_fit": "the load's lengths",
                "outside_range": "the device model's range",
                "setting": "another setting",
                "stalled": "the load",
            }
            return f"{kinds.get(change.refusal_kind, change.refusal_kind)} ({word} does not run)"
        if change.objective is not None and change.objective < -SAME:
            return f"the target itself ({word} is worse)"
    for change, word in ((up, "more"), (down, "less")):
        if change is not None and change.spent is not None and (one.spent or 0.0) + _ROOM < change.spent:
            return f"room below the limits ({word} leaves less)"
    return "nothing: it makes no difference here"
