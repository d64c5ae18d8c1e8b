"""All rules on one case. The symptom first, then what accounts for most of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from chairlift.advisor.doctor.case import Case
from chairlift.advisor.doctor.facts import DEFINITIONS, Facts
from chairlift.advisor.doctor.finding import Finding, Seen, Stage, seconds, share
from chairlift.advisor.doctor.reckon import facts_of
from chairlift.advisor.doctor.rules import RULES


@dataclass(frozen=True)
class Diagnosis:
    """What was found."""

    case: Case
    facts: Facts
    symptoms: tuple[Seen, ...]
    """In the words of whoever complains: slow, waiting, failing, stuck."""
    findings: tuple[Finding, ...]
    """What weighs most comes first; notes come last."""
    looked_at: tuple[str, ...]
    """Rules that were asked."""

    @property
    def sick(self) -> bool:
        """Whether there is something to be cured."""
        return any(not one.note for one in self.findings)

    @property
    def first(self) -> Finding | None:
        """The cause that weighs most, None for a healthy case."""
        return self.findings[0] if self.sick else None

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "case": self.case.name,
            "server": self.case.server,
            "version": self.case.version,
            "sick": self.sick,
            "symptoms": [{"name": one.name, "value": one.value, "means": one.means} for one in self.symptoms],
            "findings": [one.to_json() for one in self.findings],
            "figures": {
                name: {"value": value, "means": means}
                for name, means in DEFINITIONS.items()
                if (value := getattr(self.facts, name)) is not None
            },
            "looked_at": list(self.looked_at),
        }


EXPLAIN_A_QUEUE: Final = frozenset(
    {
        "batch_cliff",
        "budget_too_small",
        "host_bound",
        "kv_too_small",
        "padding_waste",
        "preemption_thrash",
        "preferred_size_caps",
        "prompts_held_back",
        "reservation_too_large",
        "sharing_off",
        "slots_short",
        "straggler_waste",
    }
)
"""Causes of a queue that can be cured by a setting: where one of them holds, overload is its consequence."""
_EXPLAINED: Final = 0.2


def diagnose(case: Case, facts: Facts | None = None) -> Diagnosis:
    """Ask every rule.

    Args:
        case: what is looked at.
        facts: its figures, where they do not come from its records.
    """
    known = facts_of(case) if facts is None else facts
    found = [finding for rule in RULES for finding in rule(case, known)]
    if {one.rule for one in found} & EXPLAIN_A_QUEUE:
        found = [replace(one, weight=_EXPLAINED * one.weight) if one.rule == "overload" else one for one in found]
    found.sort(key=lambda one: (one.note, -one.weight, one.stage))
    return Diagnosis(case, known, symptoms(known), tuple(found), tuple(rule.__name__ for rule in RULES))


_WAITING: Final = 0.25
_BUSY: Final = 0.5


def symptoms(facts: Facts) -> tuple[Seen, ...]:
    """What somebody would complain about. No cause is named here."""
    found = []
    if facts.errors:
        words = ", ".join(f"{count:,} {name}" for name, count in facts.errors.items())
        found.append(Seen("requests fail", words))
    if facts.details.get("stuck_for"):
        found.append(Seen("stuck", f"nothing generated for {seconds(facts.details['stuck_for'])} while requests wait"))
    if facts.queue_mean is not None and facts.end_to_end_mean and facts.queue_mean > _WAITING * facts.end_to_end_mean:
        wait = f"{seconds(facts.queue_mean)} of {seconds(facts.end_to_end_mean)} end to end, mean"
        found.append(Seen("high latency: requests wait before they run", wait))
    elif facts.queue_mean is None and facts.waiting_mean is not None and facts.waiting_mean >= 1:
        found.append(Seen("requests wait before they run", f"{facts.waiting_mean:.1f} at a time, mean"))
    if facts.itl_p50 and facts.itl_p99 is not None and facts.itl_p99 > 3 * facts.itl_p50:
        tail = f"p99 {seconds(facts.itl_p99)}, p50 {seconds(facts.itl_p50)}"
        found.append(Seen("high latency: answers stutter", tail, "time between tokens"))
    if facts.busy is not None and facts.busy < _BUSY and (facts.waiting_mean or 0) > 0.5:
        found.append(Seen("low throughput: requests wait while the device is idle", f"busy {share(facts.busy)}"))
    if facts.useful is not None and facts.useful < 0.75:
        found.append(Seen("low throughput: much is computed for nothing", f"useful {share(facts.useful)}"))
    return tuple(found)


def by_stage(findings: Sequence[Finding]) -> dict[Stage, list[Finding]]:
    """In the order in which a case is looked at."""
    return {stage: [one for one in findings if one.stage is stage] for stage in Stage}
