"""Books every committed step: its time in the ledger, its cost in the predictor.

A jump over n steps leaves the same books as n steps one by one, to the last bit, if its outcome says how long each took
(StepOutcome.times). That is why of a long run of steps the predictor sees the first and then ever fewer, eight for each
doubling: that costs little in a jump and tells as much, since between them only lengths grow.
"""

from __future__ import annotations

from chairlift.core.ledger import Ledger
from chairlift.core.plan import RowKind, StepOutcome, StepPlan
from chairlift.core.request import Nanoseconds
from chairlift.core.steptime import StepFeatures, StepTimePredictor

_ALL_UNTIL = 64
"""Steps that the predictor is shown without exception, so that it knows the device soon."""
_STRIDE = 3
"""After those, of a run of steps in which only lengths grow, the first and every eighth (2 ** _STRIDE); from the 128th
on every sixteenth, from the 256th on every thirty-second, and so on."""
_NONE = StepFeatures(0, 0, -1)
"""No step looks like this."""


class Accounts:
    """The ledger and the step-time predictor of one scheduler, kept in step with each other."""

    def __init__(self) -> None:
        self.ledger = Ledger()
        self.predictor = StepTimePredictor()
        self._next = _NONE
        """What the coming step looks like if only lengths grow."""
        self._repeats = 0
        """How many steps the present run has had."""

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

        What the predictor has learnt before each step says what could have been saved of it.
        """
        singles, counts = plan.single_token_rows, plan.token_counts
        first = StepFeatures(counts.total - singles, singles, sum(plan.starts[:singles]) + singles)
        growth = singles - counts.dead
        if first != self._next:
            self._repeats = 0
        saved = self._observe(plan, outcome, first, growth, times)
        self._next = StepFeatures(0, singles, first.context + growth * times) if singles == len(plan) else _NONE
        self.ledger.book_step(
            now,
            device_time=outcome.device_time,
            tokens=counts,
            live_rows=len(plan) - counts.dead,
            dead_rows=counts.dead,
            slots=slots,
            times=times,
            saved=saved,
            switching=switching,
        )

    def _observe(self, plan: StepPlan, outcome: StepOutcome, first: StepFeatures, growth: int, times: int) -> int:
        """Show the predictor what it is to see of these steps. Returns what could have been saved, in femtoseconds."""
        predictor = self.predictor
        needed = _without_waste(plan, first) if plan.token_counts.padding or plan.token_counts.dead else None
        done = unpredicted = predicted = 0
        while done < times:
            # Until the step after the next one that it sees, it predicts the same.
            stride = 1 << max(_STRIDE, self._repeats.bit_length() - _STRIDE - 1)
            seen = predictor.steps < _ALL_UNTIL or self._repeats % stride == 0
            count = 1 if seen else min(times - done, stride - self._repeats % stride)
            if needed is not None:
                if (cost := predictor.cost()) is None:
                    unpredicted += _device_time(outcome, done, times)  # before it knows enough, it sees every step
                else:
                    predicted += cost.femtoseconds(needed, growth, done, count)
            if seen:
                features = StepFeatures(first.prompt_tokens, first.rows, first.context + growth * done)
                predictor.observe(features, _device_time(outcome, done, times))
            done += count
            self._repeats += count
        return 0 if needed is None else (outcome.device_time - unpredicted) * 10**6 - predicted


def _device_time(outcome: StepOutcome, repeat: int, times: int) -> Nanoseconds:
    """Of one of so many repeats."""
    if times == 1:
        return outcome.device_time
    if outcome.times is None:
        each, rest = divmod(outcome.device_time, times)
        return each + (repeat < rest)
    return outcome.times(repeat)


def _without_waste(plan: StepPlan, features: StepFeatures) -> StepFeatures:
    """The step without padding and dead rows."""
    kinds = zip(plan.starts[: features.rows], plan.kinds, strict=False)  # kinds of prompt rows follow
    live = [start + 1 for start, kind in kinds if kind is RowKind.DECODE]
    return StepFeatures(features.prompt_tokens - plan.token_counts.padding, len(live), sum(live))
