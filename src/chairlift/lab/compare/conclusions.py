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
_TTFT, _E2E = "ttft_from_schedule", "end_to_end_from_schedule"
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
        ("time to first token, p50", lambda name: comparison.values(name, _TTFT, 50), "lower"),
        ("end to end, p50", lambda name: comparison.values(name, _E2E, 50), "lower"),
        ("end to end, p99", lambda name: comparison.values(name, _E2E, 99), "lower"),
    )
    return [
        Difference(figure, above, below, _ratio(values(above), values(below)), better)
        for figure, values, better in figures
        for above, below in _PAIRS
    ]


@dataclass(frozen=True, slots=True)
class _Standing:
    """One policy beside the best of all."""

    share: float
    """Of the best's output."""
    first: float | None
    """Times the shortest p50 to the first token; None where nobody waits for it."""
    tail: float
    """Times the shortest p99 end to end."""

    @property
    def enough(self) -> bool:
        return self.share >= ENOUGH and self.tail <= _LONGER and (self.first is None or self.first <= _LONGER)


def _standings(comparison: Comparison) -> dict[PolicyName, _Standing]:
    """Of every policy that answered."""
    rates = _known({name: _mean(comparison.rates(name)) for name in comparison.runs})
    firsts = _known({name: _mean(comparison.values(name, _TTFT, 50)) for name in comparison.runs})
    tails = _known({name: _mean(comparison.values(name, _E2E, 99)) for name in comparison.runs})
    return {
        name: _Standing(
            share=rates[name] / max(rates.values()),
            first=None if comparison.offline else firsts[name] / min(firsts.values()),
            tail=tails[name] / min(tails.values()),
        )
        for name in comparison.runs
        if name in rates and name in firsts and name in tails
    }


def suits(comparison: Comparison) -> dict[PolicyName, str]:
    """What each policy suits, by these figures."""
    standings = _standings(comparison)
    return {
        name: _suits(comparison, name, standings[name]) if name in standings else "nothing was answered"
        for name in comparison.runs
    }


def _suits(comparison: Comparison, name: PolicyName, standing: _Standing) -> str:
    parts = [
        "as much output as the best"
        if standing.share >= ENOUGH
        else f"{number(100 * standing.share, 2)}% of the best's output"
    ]
    if standing.first is not None:
        first = seconds(_mean(comparison.values(name, _TTFT, 50)))
        times = "" if standing.first <= _LONGER else f", {number(standing.first, 2)} times the shortest"
        parts.append(f"first token {first}{times}")
    tail = seconds(_mean(comparison.values(name, _E2E, 99)))
    times = "" if standing.tail <= _LONGER else f", {number(standing.tail, 2)} times the shortest"
    parts.append(f"p99 end to end {tail}{times}")
    if standing.enough:
        use = "suits this load"
    elif standing.share >= ENOUGH:
        use = "suits it where nobody waits for an answer"
    else:
        use = "suits other loads than this"
    return f"{use}: {'; '.join(parts)}"


def choice(comparison: Comparison) -> str:
    """The simplest policy that is enough, and what it saves."""
    standings = _standings(comparison)
    if not standings:
        return "Nothing was answered under any policy."
    best = max(standings, key=lambda name: standings[name].share)
    for name in _SIMPLEST:
        if name in standings and standings[name].enough:
            return _enough(name, best, standings[name].share) + _doubt(comparison, name, best)
    waits = "p99 end to end" if comparison.offline else "first token and p99 end to end"
    return (
        f"No policy is within {1 - ENOUGH:.0%} of the best in output and within {_LONGER - 1:.0%} in {waits} at once: "
        f"{best} gives the most output ({number(_mean(comparison.rates(best)))} tokens/s)."
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


def _doubt(comparison: Comparison, name: PolicyName, best: PolicyName) -> str:
    """Where the rounds do not bear out what was chosen, that is said with it."""
    others = [other for other in comparison.runs if other != name] if name == best else [best]
    for other in others:
        ratio = _ratio(comparison.rates(name), comparison.rates(other))
        if ratio is not None and ratio.finding == "not known":
            return " One round cannot tell that from noise: repeat it (--repeats)."
        if ratio is not None and ratio.finding == "inside the noise":
            return f" Its output beside {other}'s is inside the noise: {ratio}."
    return ""


def statements(comparison: Comparison) -> Iterator[str]:
    """All of it, in the order in which it should be read."""
    yield choice(comparison)
    yield from (str(one) for one in differences(comparison))


def _known(values: dict[PolicyName, float | None]) -> dict[PolicyName, float]:
    return {name: value for name, value in values.items() if value}


def _ratio(above: Sequence[float | None], below: Sequence[float | None]) -> Ratio | None:
    pairs = [(one, other) for one, other in zip(above, below, strict=True) if one and other]
    if len(pairs) < len(above) or not pairs:
        return None
    return paired_ratio([one for one, _ in pairs], [other for _, other in pairs])


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known and len(known) == len(values) else None
