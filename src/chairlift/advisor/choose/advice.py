"""From a load and a device model to a policy, its settings and the reasons."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from chairlift.advisor.choose.binding import Binding, binding_of
from chairlift.advisor.choose.confidence import Confidence, confidence_in
from chairlift.advisor.choose.decision import WITHIN, Decision, decide
from chairlift.advisor.choose.search import Contender, search
from chairlift.advisor.choose.tail import Tail, find_tail
from chairlift.advisor.evaluate.pool import Pool
from chairlift.advisor.evaluate.relief import reliefs
from chairlift.advisor.evaluate.rounds import Rounds
from chairlift.advisor.evaluate.run import Problem
from chairlift.advisor.evaluate.targets import Targets
from chairlift.core.config import PolicyName, SchedulerConfig
from chairlift.core.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Choice:
    """What was asked, and the answer."""

    problem: Problem
    load: Rounds
    targets: Targets
    contenders: Mapping[PolicyName, Contender]
    decision: Decision
    binding: Binding | None
    """None: nothing runs."""
    tail: Tail | None
    confidence: Confidence | None
    trials: int

    @property
    def recommended(self) -> Contender | None:
        """None: nothing runs."""
        return None if self.decision.policy is None else self.contenders[self.decision.policy]

    @property
    def config(self) -> SchedulerConfig | None:
        """The recommended settings."""
        found = self.recommended
        return None if found is None else self.problem.config(found.settings)

    def to_json(self) -> dict[str, Any]:
        """Plain values; times in seconds, shares between 0 and 1, settings by name."""
        decision = self.decision
        return {
            "device": self.problem.device.name,
            "device_kind": self.problem.device.provenance.kind,
            "targets": asdict(self.targets),
            "load": {
                "rounds": len(self.load.rounds),
                "requests": len(self.load.first.schedule),
                "longest": self.load.longest,
                "notes": list(self.load.notes),
            },
            "shared_settings": dict(self.problem.settings),
            "policy": decision.policy,
            "settings": None if self.recommended is None else dict(self.recommended.settings),
            "limits_met": decision.limits_met,
            "within": decision.within,
            "gaps": {name: _plain_gap(gap.cost, gap.interval) for name, gap in decision.gaps.items()},
            "policies": {
                name: {
                    "settings": dict(one.settings),
                    "tried": len(one.tried),
                    "rounds": [outcome.to_json() for outcome in one.outcomes],
                }
                for name, one in self.contenders.items()
            },
            "binding": None if self.binding is None else asdict(self.binding),
            "tail": None if self.tail is None else asdict(self.tail),
            "confidence": None if self.confidence is None else asdict(self.confidence),
            "trials": self.trials,
        }


def choose(
    pool: Pool, problem: Problem, load: Rounds, targets: Targets, *, within: float = WITHIN, explain: bool = True
) -> Choice:
    """Search, decide, explain.

    Args:
        pool: runs the simulations.
        problem: device and shared settings.
        load: what is asked.
        targets: what is to be best, and which limits must hold.
        within: how much worse than continuous a simpler policy may be, as a share.
        explain: also find what binds, where the answer changes, and how sure it is.

    Raises:
        ConfigError: `within` is no share.
    """
    if not 0 <= within < 1:
        raise ConfigError(f"--within is {within:g}; it is a share, at least 0 and below 1: 0.05 is 5%.")
    begun = pool.done
    contenders = search(pool, problem, load, targets)
    decision = decide(contenders, targets, within)
    binding = tail = confidence = None
    if explain and decision.policy is not None:
        chosen = contenders[decision.policy]
        figures = chosen.outcomes[0].figures
        if figures is not None:
            found = reliefs(pool, problem, chosen.settings, load.first, figures)
            binding = binding_of(chosen, found, targets, by_throughput=load.waits_for_the_target)
        tail = find_tail(pool, problem, load.first, targets, contenders, decision.policy, within)
        confidence = confidence_in(pool, problem, load, targets, contenders, decision)
    return Choice(problem, load, targets, contenders, decision, binding, tail, confidence, pool.done - begun)


def _plain_gap(cost: float, interval: Any) -> dict[str, Any]:
    """Infinity is no JSON."""
    finite = cost != float("inf")
    return {
        "cost": cost if finite else None,
        "comparable": interval is not None,
        "low": None if interval is None else interval.low,
        "high": None if interval is None else interval.high,
    }
