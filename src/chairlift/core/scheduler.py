"""The scheduler: one object that serves the engine on a real device and the simulator in virtual time.

It is pure: no clock (time is an argument, in integer nanoseconds), no I/O, no threads. Side effects of a call, in this
order:
  submit   gates, then the queue;
  plan     blocks, admissions, preemptions (see batchers/); nothing is moved on;
  commit   the sequences move on, results leave, then cancellations, then a policy switch;
  abort    nothing is moved on; cancellations, then a policy switch.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from chairlift.core.accounts import Accounts
from chairlift.core.admission import check_pool, check_queue, check_request
from chairlift.core.batchers.closed import ClosedBatcher
from chairlift.core.batchers.continuous import ContinuousBatcher
from chairlift.core.batchers.members import Release
from chairlift.core.blocks import BlockPool
from chairlift.core.config import KVCapacity, PolicyName, SchedulerConfig, flag
from chairlift.core.errors import ConfigError, ContractError
from chairlift.core.journal import (
    Aborted,
    Cancelled,
    Committed,
    Entry,
    InputEnded,
    Planned,
    Submitted,
    Switched,
    fingerprint,
)
from chairlift.core.ledger import Category, Ledger
from chairlift.core.plan import StepEvents, StepOutcome, StepPlan, Wait
from chairlift.core.reasons import Reason
from chairlift.core.request import Accepted, FinishReason, Nanoseconds, Refused, Request, Verdict
from chairlift.core.sequence import Phase, Sequence
from chairlift.core.state import Counters, SchedulerState
from chairlift.core.status import Health, Usage
from chairlift.core.steptime import StepTimePredictor

_GAPS = {
    Reason.QUEUE_EMPTY: Category.IDLE,
    Reason.BATCH_NOT_FULL: Category.HELD,
    Reason.STALLED: Category.HOST,
}


class Scheduler:
    """Batching policies over one KV pool. One plan in flight; one caller at a time."""

    def __init__(
        self,
        config: SchedulerConfig,
        capacity: KVCapacity,
        *,
        pool: BlockPool | None = None,
        journal: list[Entry] | None = None,
    ) -> None:
        """Args:
        config: all settings; `policy` is the one to start with.
        capacity: the runner's KV pool.
        pool: for tests, an allocator with faults.
        journal: appended to at every call, for replay(). Grows without bound.

        Raises:
            ConfigError: the pool is too small for any request under these settings.
        """
        check_pool(config, capacity)
        self._state = SchedulerState(config, capacity, pool)
        self._initial = config
        self._accounts = Accounts()
        self._ledger = self._accounts.ledger
        self._journal = journal
        self._input_ended = False
        self._batcher: ClosedBatcher | ContinuousBatcher = self._new_batcher()
        self._in_flight: StepPlan | None = None
        self._horizon: int | None = None
        """Of the plan in flight, as it was when it was asked for."""
        self._cancelled: list[str] = []
        self._switch: SchedulerConfig | None = None
        self._health = Health(ok=True)

    @property
    def config(self) -> SchedulerConfig:
        return self._state.config

    @property
    def capacity(self) -> KVCapacity:
        return self._state.capacity

    @property
    def counters(self) -> Counters:
        return self._state.counters

    @property
    def ledger(self) -> Ledger:
        return self._ledger

    @property
    def predictor(self) -> StepTimePredictor:
        return self._accounts.predictor

    @property
    def has_work(self) -> bool:
        """Whether any request is held, waiting, running or with its result withheld."""
        return bool(self._state.sequences)

    def submit(self, request: Request, now: Nanoseconds) -> Verdict:
        """Take in a request, or refuse it with the numbers and the setting to change. Nothing is ever dropped later."""
        self._ledger.check(now)
        if self._journal is not None:
            self._journal.append(Submitted(now, request))
        refused = self._refusal(request)
        if refused is not None:
            self._state.counters.refused += 1
            return refused
        if self._in_flight is None and self._ledger.gap is Category.IDLE:
            self._ledger.pass_to(now, Category.HOST)
        sequence = self._state.enqueue(request, now)
        if self.config.closed:
            self._state.decide(sequence, Reason.WAITING_FOR_BATCH, {"waiting": len(self._state.queue)})
        return Accepted(request.request_id, sequence.most_tokens - sequence.prompt_length)

    def plan(self, now: Nanoseconds) -> StepPlan | Wait:
        """The next step, or why there is none now.

        Raises:
            ContractError: a plan is in flight, or time runs backwards.
        """
        if self._in_flight is not None:
            raise ContractError(f"step {self._in_flight.step} is in flight: commit or abort it before the next plan().")
        self._ledger.check(now)
        plan = self._batcher.plan(now)
        if isinstance(plan, Wait):
            self._ledger.pass_to(now, _GAPS[plan.reason])
            stalled = plan.reason is Reason.STALLED
            if stalled == self._health.ok:
                self._health = Health(ok=False, cause=plan.detail, since=now) if stalled else Health(ok=True)
        else:
            self._ledger.pass_to(now, Category.HOST)
            self._in_flight, self._horizon = plan, None
            if not self._health.ok:
                self._health = Health(ok=True)
        if self._journal is not None:
            self._journal.append(Planned(now, fingerprint(plan)))
        return plan

    def commit(self, plan: StepPlan, outcome: StepOutcome, now: Nanoseconds, times: int = 1) -> StepEvents:
        """The step happened: move on.

        Args:
            plan: the plan in flight.
            outcome: what the device made of it.
            now: when its results were there.
            times: how many equal steps were made of it, at most horizon(plan); outcome.tokens holds so many groups.
                What came while the plan was in flight came in the last of them: a jump ends with the first step in
                which anything comes.

        Raises:
            ContractError: another plan or none is in flight, the outcome does not fit it, or time runs backwards.
        """
        self._check_outcome(plan, outcome, times)
        self._ledger.check(now)
        if self._journal is not None:
            self._journal.append(Committed(now, outcome, times))
        draining = isinstance(self._batcher, ContinuousBatcher) and self._batcher.draining
        slots = self.config.max_rows
        self._accounts.book(plan, outcome, now, times=times, slots=slots, switching=draining)
        self._state.counters.output_tokens += len(outcome.tokens) - sum(plan.samples[row] for row in outcome.failures)
        # What was decided since the plan, and what is decided on the outcome, belongs to the last of the steps.
        if times > 1:
            self._state.pass_steps(times - 1)
        events = self._batcher.apply(plan, outcome, times)
        self._state.step += 1
        return self._land(events, now)

    def abort(self, plan: StepPlan, now: Nanoseconds) -> StepEvents:
        """The step did not happen: no sequence moves on, and the time since plan() is host time.

        Who was admitted keeps its reservation and who was preempted stays so (a step that failed half-way may have
        written to those blocks), and the decisions told with the plan stand; the next plan builds on it.
        """
        self._check_flight(plan)
        self._ledger.check(now)
        if self._journal is not None:
            self._journal.append(Aborted(now))
        self._ledger.pass_to(now, Category.HOST)
        return self._land(StepEvents(), now)

    def cancel(self, request_id: str, now: Nanoseconds) -> StepEvents:
        """The request is not wanted any more. Acts at the next commit or abort, at once while no plan is in flight.

        An unknown or ended id is no error: the result may have crossed the cancellation.
        """
        self._ledger.check(now)
        if self._journal is not None:
            self._journal.append(Cancelled(now, request_id))
        if request_id in self._state.sequences:  # and not somebody who comes under this id later
            self._cancelled.append(request_id)
        return StepEvents() if self._in_flight else self._settle(StepEvents(), now)

    def switch_policy(self, policy: PolicyName, now: Nanoseconds, **changes: Any) -> StepEvents:
        """Go over to another policy, live. Acts at the next commit or abort, at once while no plan is in flight.

        Into continuous the running members are adopted. From static to dynamic or back the current batch finishes. Out
        of continuous nothing is admitted until what runs has drained; that time is booked as switching.

        Args:
            policy: the policy to go to.
            now: the time.
            changes: settings to change with it, by field name.

        Raises:
            ConfigError: the settings do not go together, or need larger steps than were reserved for at start.
        """
        self._ledger.check(now)
        config = self.config.with_policy(policy, **changes)
        self._check_switch(config)
        if self._journal is not None:
            self._journal.append(Switched(now, policy, changes))
        self._switch = config
        return StepEvents() if self._in_flight else self._settle(StepEvents(), now)

    def end_input(self, now: Nanoseconds) -> None:
        """Nobody will come any more (an offline input is at its end, or the server drains): unfilled batches may
        leave.
        """
        self._ledger.check(now)
        if self._journal is not None:
            self._journal.append(InputEnded(now))
        self._input_ended = True
        if isinstance(self._batcher, ClosedBatcher):
            self._batcher.input_ended = True

    def horizon(self, plan: StepPlan) -> int:
        """How many times this plan may be committed in one go, only lengths growing, before anything else can happen.

        At least 1. Arrivals, cancels and switches are things only the caller knows of: ask before they come, and end
        the jump with the step in which they do.
        """
        self._check_flight(plan)
        leaving = bool(self._cancelled) or self._switch is not None
        if self._horizon is None:
            self._horizon = 1 if leaving else self._batcher.horizon()
        return 1 if leaving else self._horizon

    def health(self) -> Health:
        return self._health

    def usage(self) -> Usage:
        """Queue, batch and pool as they stand."""
        state, pool = self._state, self._state.pool
        running = self._batcher.running()
        return Usage(
            policy=state.config.policy,
            switching_to=self._switch.policy if self._switch else None,
            waiting=len(state.queue),
            waiting_tokens=state.queue.tokens,
            running=len(running),
            kv_blocks=pool.num_blocks,
            kv_used=pool.used_blocks,
            kv_cached=pool.cached_blocks,
            kv_reserved_unused=sum(sequence.room - sequence.computed for sequence in running),
            kv_largest_free_run=pool.largest_free_run(),
            evictions=pool.evictions,
        )

    def check_integrity(self) -> None:
        """Count the pool's books again. Raises IntegrityError. Linear in the pool: for tests and for idle moments."""
        self._state.pool.check_integrity(sequence.table for sequence in self._batcher.holders())

    # inside

    def _new_batcher(self) -> ClosedBatcher | ContinuousBatcher:
        if self.config.closed:
            batcher = ClosedBatcher(self._state, self._accounts.predictor)
            batcher.input_ended = self._input_ended
            return batcher
        return ContinuousBatcher(self._state, self._accounts.predictor)

    def _refusal(self, request: Request) -> Refused | None:
        if request.request_id in self._state.sequences:
            message = f"a request with the id {request.request_id!r} is already here; ids must be unique."
            return Refused(request.request_id, Reason.DUPLICATE_ID, message, 1, 0, "request_id")
        # A request that passes while a switch drains will run under the policy to come.
        config = self._switch or self.config
        return check_request(request, config, self.capacity) or check_queue(request, config, self._state.queue)

    def _check_flight(self, plan: StepPlan) -> None:
        if plan is not self._in_flight:
            flying = f"step {self._in_flight.step} is" if self._in_flight else "no plan is"
            raise ContractError(f"step {plan.step} is not the plan in flight ({flying}).")

    def _check_outcome(self, plan: StepPlan, outcome: StepOutcome, times: int) -> None:
        self._check_flight(plan)
        expected = sum(plan.samples) * times
        if len(outcome.tokens) != expected:
            raise ContractError(f"step {plan.step} samples {expected} tokens; the outcome has {len(outcome.tokens)}.")
        if not all(0 <= row < len(plan) for row in (*outcome.failures, *outcome.stops)):
            raise ContractError(f"step {plan.step} has rows 0 to {len(plan) - 1}; the outcome speaks of another.")
        if times != 1:
            if outcome.failures:
                raise ContractError("a jump over several steps cannot carry failures: commit that step alone.")
            horizon = self.horizon(plan) if self._horizon is None else self._horizon
            if not 1 <= times <= horizon:
                raise ContractError(f"step {plan.step} may be made {horizon} times at most, not {times}.")

    def _land(self, events: StepEvents, now: Nanoseconds) -> StepEvents:
        """The plan is no longer in flight."""
        self._in_flight = None
        if self._cancelled or self._switch is not None:
            return self._settle(events, now)
        if self._state.decisions:
            events = replace(events, decisions=self._state.take_decisions())
        if not self._state.sequences:
            self._ledger.pass_to(now, Category.IDLE)
        return events

    def _settle(self, events: StepEvents, now: Nanoseconds) -> StepEvents:
        """Carry out what waited for the end of a step: cancellations, then a switch."""
        parts = [events]
        for request_id in self._cancelled:
            sequence = self._state.sequences.get(request_id)
            parts += [self._cancel(sequence)] if sequence else []
        self._cancelled.clear()
        if self._switch is not None:
            parts.append(self._advance_switch(self._switch))
        if not self._state.sequences:
            self._ledger.pass_to(now, Category.IDLE)
        return replace(StepEvents.joined(parts), decisions=self._state.take_decisions())

    def _cancel(self, sequence: Sequence) -> StepEvents:
        if sequence.phase is not Phase.WAITING:
            return self._batcher.cancel(sequence)
        self._state.end(sequence, FinishReason.CANCELLED)
        return StepEvents(finished=(self._state.leave(sequence),))

    def _check_switch(self, config: SchedulerConfig) -> None:
        start = self._initial
        if config.max_num_batched_tokens > start.max_num_batched_tokens:
            raise ConfigError(
                f"a step of --max-num-batched-tokens {config.max_num_batched_tokens} was not reserved for at start "
                f"({start.max_num_batched_tokens}): restart with the larger value to switch to it."
            )
        for name in ("max_model_len", "queue_order", "enable_prefix_caching"):
            if getattr(config, name) != getattr(start, name):
                raise ConfigError(f"{flag(name)} cannot change in a live switch: restart with {getattr(config, name)}.")
        check_pool(config, self.capacity)

    def _advance_switch(self, config: SchedulerConfig) -> StepEvents:
        """Go over if what runs allows it; otherwise prepare, and be asked again after the next step."""
        batcher = self._batcher
        if isinstance(batcher, ContinuousBatcher):
            batcher.draining = config.closed
        if config.closed and not batcher.drained:
            return StepEvents()
        adopted, events = batcher.surrender()
        self._state.config = config
        self._switch = None
        self._batcher = self._new_batcher()
        if isinstance(self._batcher, ContinuousBatcher):
            self._batcher.adopt(adopted)
        for sequence in self._state.queue:
            if config.closed:
                self._state.decide(sequence, Reason.WAITING_FOR_BATCH, {"waiting": len(self._state.queue)})
            elif sequence.reason is Reason.WAITING_FOR_BATCH:
                self._state.decide(sequence, Reason.WAITING_FOR_TURN, {"waiting": len(self._state.queue)})
        released = Release(self._state)
        if config.effective_release == "token":
            for sequence in self._state.sequences.values():
                released.tokens_of(sequence)
        return StepEvents.joined([events, released.done()])
