"""Carries out the closed policies, static and dynamic: a batch forms, runs in lockstep, and ends.

Prompts are padded to the longest and computed together (in equal chunks when they exceed a step's token budget), then
every row decodes until the last member has ended. An ended member's row stays in every step and computes its last token
over and over, because that is what a closed batch costs; its reservation has room for it. A cancelled or failed
member's blocks are freed at once, and its row goes on on the scratch block.
"""

from __future__ import annotations

from array import array

from chairlift.core.batchers.formation import forecast, form
from chairlift.core.batchers.lockstep import Lockstep
from chairlift.core.batchers.members import Member, Release
from chairlift.core.batchers.rows import PAD, Rows, advance, end_of
from chairlift.core.plan import BatchForecast, RowKind, StepEvents, StepOutcome, StepPlan, Wait
from chairlift.core.policies.dynamic import Dynamic
from chairlift.core.policies.static import Static
from chairlift.core.policies.views import Hold, QueueView
from chairlift.core.reasons import Reason
from chairlift.core.request import FinishReason, Nanoseconds
from chairlift.core.sequence import Phase, Sequence
from chairlift.core.state import SchedulerState
from chairlift.core.steptime import StepTimePredictor


class ClosedBatcher:
    """Runs at most one closed batch at a time."""

    def __init__(self, state: SchedulerState, predictor: StepTimePredictor) -> None:
        self.state = state
        self.predictor = predictor
        self.policy: Static | Dynamic = (
            Static(state.config) if state.config.policy == "static" else Dynamic(state.config)
        )
        self.input_ended = False
        self.members: list[Member] = []
        self._scratch = array("i", [state.capacity.scratch_block])
        self._in_flight: list[Member] = []
        """The members behind the rows of the plan in flight."""
        self._forecast: BatchForecast | None = None
        """Of a batch whose first step has not been committed."""
        self._lockstep: Lockstep | None = None
        """The rows of the batch as it decodes; None while it does not, and when a member's state has changed."""

    @property
    def prefilling(self) -> bool:
        return any(member.prefill_left for member in self.members)

    @property
    def drained(self) -> bool:
        """Whether no batch runs."""
        return not self.members

    def running(self) -> list[Sequence]:
        return [member.sequence for member in self.members if member.sequence.phase is not Phase.ENDED]

    def holders(self) -> list[Sequence]:
        return [member.sequence for member in self.members if member.sequence.table]

    def plan(self, now: Nanoseconds) -> StepPlan | Wait:
        if not self.members and (wait := self._launch(now)):
            return wait
        if self._lockstep is None:
            if self.prefilling:
                rows = Rows()
                rows.forecast = self._forecast
                self._in_flight = self._prefill_rows(rows)
                return rows.plan(self.state, now)
            self._lockstep = Lockstep(self.members, self._scratch)
        self._in_flight = self.members
        return self._lockstep.plan(self.state, now, self._forecast)

    def apply(self, plan: StepPlan, outcome: StepOutcome, times: int) -> StepEvents:
        self._forecast = None
        events = Release(self.state)
        if self._lockstep is not None and not outcome.failures:
            over = self._advance_lockstep(self._lockstep, outcome, times, events)
        else:
            self._advance(plan, outcome, events)
            over = True
        if over:
            self._changed(events)
        return events.done()

    def cancel(self, sequence: Sequence) -> StepEvents:
        # One that had ended was only held back: the cancellation finds its result, which leaves whole.
        whole = sequence.phase is Phase.ENDED
        if not whole:
            self.state.end(sequence, FinishReason.CANCELLED)
        self.state.free(sequence)
        events = Release(self.state)
        events.leave(sequence, tokens=whole)
        self._changed(events)
        return events.done()

    def horizon(self) -> int:
        lockstep = self._lockstep
        if lockstep is None or lockstep.stoppable:
            return 1
        return max(1, lockstep.steps_left)

    def surrender(self) -> tuple[list[Sequence], StepEvents]:
        """The batch dissolves: its running members, with their blocks, and the results that were held back."""
        events = Release(self.state)
        live = self.running()
        for member in self.members:
            sequence = member.sequence
            if sequence.phase is Phase.ENDED:
                self.state.free(sequence)
                events.leave(sequence)
        self.members = []
        self._lockstep = None
        return live, events.done()

    # launch

    def _launch(self, now: Nanoseconds) -> Wait | None:
        """Form the next batch; or say why there is none."""
        state = self.state
        oldest = state.queue.oldest()
        view = QueueView(len(state.queue), oldest.arrival if oldest else 0, self.input_ended)
        choice = self.policy.choose(view, now)
        if isinstance(choice, Hold):
            return Wait(choice.until, choice.reason)
        self.members = form(state, choice.size)
        if not self.members:
            return Wait(None, Reason.STALLED, self._stall())
        state.counters.batches += 1
        self._forecast = forecast(state, self.members, choice.reason, self.predictor)
        numbers = {"batch": self._forecast.batch, "members": len(self.members), "blocks": self._forecast.blocks}
        for member in self.members:
            cached = {"cached_tokens": member.sequence.computed}
            state.decide(member.sequence, Reason.ADMITTED, numbers | cached)
        return None

    def _stall(self) -> str:
        pool = self.state.pool
        return (
            f"{len(self.state.queue)} requests wait and none runs, yet not one of them gets its KV blocks; "
            f"the pool offers {pool.free_blocks} of {pool.num_blocks}."
        )

    # rows

    def _prefill_rows(self, rows: Rows) -> list[Member]:
        """An equal chunk for each row that is not through; rows on scratch run beside them, the others rest."""
        scratch = [member for member in self.members if member.on_scratch]
        computing = [member for member in self.members if member.prefill_left]
        for member in scratch:
            rows.add_single(member.sequence, RowKind.DEAD, 0, PAD, self._scratch)
        chunk = max(1, (self.state.config.max_num_batched_tokens - len(scratch)) // len(computing))
        for member in computing:
            rows.add_prompt(member.sequence, member.position, min(chunk, member.target - member.position), member.known)
        return scratch + computing

    # moving on

    def _advance_lockstep(self, lockstep: Lockstep, outcome: StepOutcome, times: int, release: Release) -> bool:
        """Every live member got a token, so many times; nobody ends before the last of the steps. Returns whether
        anybody's state has changed.
        """
        judged = lockstep.advance(outcome.tokens, times)
        if self.state.config.effective_release == "token":
            release.steps(lockstep.live, outcome.tokens, times)
        if outcome.stops:
            judged = list(zip(lockstep.live_rows, lockstep.live, strict=True))
        for row, sequence in judged:
            self._judge(sequence, outcome.stops.get(row), release)
        return bool(judged)

    def _advance(self, plan: StepPlan, outcome: StepOutcome, release: Release) -> None:
        """One step, row by row: prompts, and whatever went wrong."""
        sampled = iter(outcome.tokens)
        for row, member in enumerate(self._in_flight):
            sequence = member.sequence
            token = next(sampled) if plan.samples[row] else None
            if row in outcome.failures:
                self._fail(sequence, outcome.failures[row], release)
                continue
            if plan.kinds[row] is RowKind.DEAD:
                continue
            end = plan.starts[row] + plan.counts[row]
            member.position = max(member.position, end)
            if sequence.phase is not Phase.ENDED:
                advance(sequence, token, end if plan.kinds[row] is RowKind.DECODE else min(end, member.known))
                if plan.kinds[row] is not RowKind.DECODE:
                    self.state.publish(sequence)
            if token is not None:
                if self.state.config.effective_release == "token":
                    release.tokens_of(sequence)
                self._judge(sequence, outcome.stops.get(row), release)

    def _judge(self, sequence: Sequence, stop: FinishReason | None, release: Release) -> None:
        """A member has a new token: does that end it?"""
        reason = stop or end_of(sequence)
        if reason is None:
            self.state.decide(sequence, Reason.DECODING)
            return
        self.state.end(sequence, reason)
        if self.state.config.effective_release != "batch":
            release.leave(sequence)

    def _fail(self, sequence: Sequence, message: str, release: Release) -> None:
        """An error leaves at once, whatever the release; what failed on a dead row had ended already."""
        if sequence.phase is Phase.ENDED:
            return
        self.state.end(sequence, FinishReason.ERROR, message)
        self.state.free(sequence)
        release.leave(sequence)

    def _changed(self, release: Release) -> None:
        """Members' states have changed. When the last has ended, all blocks and all results go."""
        self._lockstep = None
        if any(member.sequence.phase is not Phase.ENDED for member in self.members):
            return
        for member in self.members:
            self.state.free(member.sequence)
            release.leave(member.sequence)
        self.members = []
