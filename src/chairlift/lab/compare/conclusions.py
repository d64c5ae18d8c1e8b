"""What the figures of a comparison say: differences with their intervals, and what each policy suits.

A sentence is only said where its figures bear it out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from chairlift.core.config import PolicyName
from chairlift.lab.compare.comparison import Comparison
from chairlift.lab.compare.complexity import SETTINGS, lines_of_policy
from chairlift.lab.statistics import Ratio, paired_ratio
from chairlift.lab.studies.words import number, seconds

_PAIRS: Final[tuple[tuple[PolicyName, PolicyName], ...]] = (
    ("continuous", "static"),
    ("continuous", "dynamic"),
    ("dynamic", "static"),
)
ENOUGH: Final = 0.95
"""A simpler policy with at least this share of the best throughput, and no longer waits, is enough."""
_LONGER: Final = 1.1
_SIMPLEST: Final[tuple[PolicyName, ...]] = ("static", "dynamic", "continuous")


@dataclass(frozen=True, slots=True)
class Difference:
    """Two policies by one figure."""

    figure: str
    above: PolicyName
    below: PolicyName
    ratio: Ratio | None
    """above / below; None where the figure is missing for one of them."""
    better: str
    """higher or lower: which of the two is better."""

    def __str__(self) -> str:
        if self.ratio is None:
            return f"{self.figure}: {self.above} and {self.below} cannot be compared."
        finding = self.ratio.finding
        if finding == "inside the noise":
            word = "a difference inside the noise"
        elif finding == "not known":
            word = "one round: whether that is more than noise is not known"
        else:
            word = "better" if finding == self.better else "worse"
        return f"{self.figure}: {self.above} / {self.below} = {self.ratio}: {word}."


def differences(comparison: Comparison) -> list[Difference]:
    """Throughput and latencies of every pair."""
    figures = (
        ("output tokens/s", comparison.rates, "higher"),
        ("time to first token, p50", lambda name: comparison.values(name, "ttft_from_schedule", 50), "lower"),
        ("end to end, p50", lambda name: comparison.values(name, "end_to_end_from_schedule", 50), "lower"),
        ("end to end, p99", lambda name: comparison.values(name, "end_to_end_from_schedule", 99), "lower"),
    )
    return [
        Difference(figure, above, below, _ratio(values(above), values(below)), better)
        for figure, values, better in figures
        for above, below in _PAIRS
    ]


def suits(comparison: Comparison) -> dict[PolicyName, str]:
    """What each policy suits, by these figures."""
    rates = {name: _mean(comparison.rates(name)) for name in comparison.runs}
    firsts = {name: _mean(comparison.values(name, "ttft_from_schedule", 50)) for name in comparison.runs}
    tails = {name: _mean(comparison.values(name, "end_to_end_from_schedule", 99)) for name in comparison.runs}
    best_rate = max((value for value in rates.values() if value), default=None)
    quickest = min((value for value in firsts.values() if value), default=None)
    told: dict[PolicyName, str] = {}
    for name in comparison.runs:
        rate, first, tail = rates[name], firsts[name], tails[name]
        if not rate or not best_rate or not first or not quickest:
            told[name] = "nothing was answered"
            continue
        share = rate / best_rate
        output = "as much output as the best" if share >= ENOUGH else f"{number(100 * share, 2)}% of the best's output"
        waits = (
            "as quick to the first token as the quickest"
            if first <= _LONGER * quickest
            else f"first token {number(first / quickest, 2)} times as late ({seconds(first)}, not {seconds(quickest)})"
        )
        if share >= ENOUGH:
            use = (
                "suits this load" if first <= _LONGER * quickest else "suits it where nobody waits for the first token"
            )
        else:
            use = "suits other loads than this"
        told[name] = f"{use}: {output}, {waits}, p99 end to end {seconds(tail)}"
    return told


def choice(comparison: Comparison) -> str:
    """The simplest policy that is enough, and what it saves."""
    rates = {name: _mean(comparison.rates(name)) or 0.0 for name in comparison.runs}
    tails = {name: _mean(comparison.values(name, "end_to_end_from_schedule", 99)) for name in comparison.runs}
    firsts = {name: _mean(comparison.values(name, "ttft_from_schedule", 50)) for name in comparison.runs}
    best = max(rates, key=lambda name: rates[name])
    if not rates[best]:
        return "Nothing was answered under any policy."
    for name in _SIMPLEST:
        if name not in rates:
            continue
        worse = [
            _beyond(firsts[name], min(v for v in firsts.values() if v is not None)) if firsts[name] else True,
            _beyond(tails[name], min(v for v in tails.values() if v is not None)) if tails[name] else True,
        ]
        if rates[name] >= ENOUGH * rates[best] and not any(worse):
            return _enough(name, best, rates[name] / rates[best])
    return (
        f"No policy is within {1 - ENOUGH:.0%} of the best in output and within {_LONGER - 1:.0%} in first token and "
        f"p99 end to end at once: {best} gives the most output ({number(rates[best])} tokens/s)."
    )


def _enough(name: PolicyName, best: PolicyName, share: float) -> str:
    if name == "continuous":
        return (
            "continuous is what this load needs: neither simpler policy comes within "
            f"{1 - ENOUGH:.0%} of its output with waits within {_LONGER - 1:.0%}."
        )
    saved = len(SETTINGS["continuous"]) - len(SETTINGS[name])
    lines = lines_of_policy("continuous") - lines_of_policy(name)
    return (
        f"{name} is enough for this load: {number(100 * share, 3)}% of {best}'s output, and no longer waits. It saves "
        f"{saved} settings to choose, {lines} lines of policy, and preemptions."
        if name != best
        else f"{name} is enough for this load: no other policy gives more output or shorter waits. It saves {saved} "
        f"settings to choose, {lines} lines of policy, and preemptions."
    )


def statements(comparison: Comparison) -> Iterator[str]:
    """All of it, in the order in which it should be read."""
    yield choice(comparison)
    yield from (str(one) for one in differences(comparison))


def _beyond(value: float | None, least: float) -> bool:
    return value is None or value > _LONGER * least


def _ratio(above: Sequence[float | None], below: Sequence[float | None]) -> Ratio | None:
    pairs = [(one, other) for one, other in zip(above, below, strict=True) if one and other]
    if len(pairs) < len(above) or not pairs:
        return None
    return paired_ratio([one for one, _ in pairs], [other for _, other in pairs])


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known and len(known) == len(values) else None
