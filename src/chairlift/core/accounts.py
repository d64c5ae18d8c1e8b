"""Books every committed step: its time in the ledger, its cost in the predictor."""

from __future__ import annotations

from chairlift.core.ledger import Ledger
from chairlift.core.plan import RowKind, StepOutcome, StepPlan
from chairlift.core.request import Nanoseconds
from chairlift.core.steptime import StepFeatures, StepTimePredictor


class Accounts:
    """The ledger and the step-time predictor of one scheduler, kept in step with each other."""

    def __init__(self) -> None:
        self.ledger = Ledger()
        self.predictor = StepTimePredictor()

    def book(
        self,
        plan: StepPlan,
        outcome: StepOutcome,
        now: Nanoseconds,
        *,
        times: int,
        slots: int,
        switching: bool,
    ) -> None:
        """A plan was carried out `times` times, the last of them done at `now`.

        What the predictor has learnt before this step says what could have been saved of it.
        """
        singles, counts = plan.single_token_rows, plan.token_counts
        # Of a jump, the average step: each live row's context grows by one a step.
        grown = (singles - counts.dead) * (times - 1) // 2
        context = sum(plan.starts[:singles]) + singles + grown
        features = StepFeatures(counts.total - singles, singles, context)
        recoverable = self._recoverable(plan, outcome, features, grown, times)
        self.predictor.observe(features, outcome.device_time // times)
        self.ledger.book_step(
            now,
            device_time=outcome.device_time,
            tokens=counts,
            live_rows=len(plan) - counts.dead,
            dead_rows=counts.dead,
            slots=slots,
            times=times,
            recoverable=recoverable,
            switching=switching,
        )

    def _recoverable(
        self, plan: StepPlan, outcome: StepOutcome, features: StepFeatures, grown: int, times: int
    ) -> Nanoseconds:
        """Device time that the same steps without padding and dead rows would not have taken, as predicted."""
        counts = plan.token_counts
        if not (counts.padding or counts.dead) or (cost := self.predictor.cost()) is None:
            return 0
        kinds = zip(plan.starts[: features.rows], plan.kinds, strict=False)  # kinds of prompt rows follow
        live = [start + 1 for start, kind in kinds if kind is RowKind.DECODE]
        needed = StepFeatures(features.prompt_tokens - counts.padding, len(live), sum(live) + grown)
        return max(0, outcome.device_time - cost.time(needed) * times)
