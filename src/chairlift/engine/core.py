"""The step loop's body: plan, execute, read the tokens, commit, deliver.

EngineCore has no thread of its own. One thread calls step(); any thread may call the other methods, because a lock
guards the scheduler. It is held while a plan is made or committed (well under a millisecond), never while the device
works, so that the door answers at once.

Side effects of step(), in this order: the runner forgets who has ended; the plan; the device; texts grow; the commit;
records are shown to observers; answers leave.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from chairlift.core.blocks import BlockPool
from chairlift.core.config import KVCapacity, PolicyName, SchedulerConfig
from chairlift.core.errors import RequestRefused, StepFailed
from chairlift.core.journal import Entry
from chairlift.core.ledger import LedgerReport
from chairlift.core.plan import StepEvents, StepOutcome, StepPlan, Wait
from chairlift.core.reasons import Reason
from chairlift.core.request import Accepted, FinishReason, Nanoseconds, Refused, Request, TokenId
from chairlift.core.scheduler import Scheduler
from chairlift.core.state import Counters
from chairlift.core.status import Health, Usage
from chairlift.engine.answer import Answer, Sink
from chairlift.engine.desk import Desk
from chairlift.engine.faults import MAX_ATTEMPTS, Faults
from chairlift.engine.observe import Observer, Recorder
from chairlift.engine.params import SamplingParams
from chairlift.engine.sampling import BatchSampler
from chairlift.runners.base import ModelRunner
from chairlift.text.tokenizer import Tokenizer

Clock = Callable[[], Nanoseconds]


@dataclass(frozen=True, slots=True)
class EngineStats:
    """The engine at one moment."""

    usage: Usage
    counters: Counters
    health: Health
    ledger: LedgerReport


class EngineCore:
    """One scheduler, one runner, and the answers in progress.

    Args:
        config: the scheduler's settings.
        runner: what executes plans. One that samples from logits was built with the same `sampler`.
        tokenizer: turns tokens into text; its `special.end_ids` end answers.
        sampler: is told who comes, whose tokens count, and who leaves.
        clock: the time in nanoseconds; never runs backwards.
        observers: told of every step and request.
        journal: appended to at every call of the scheduler; grows without bound.
        pool: for tests, an allocator with faults.
    """

    def __init__(
        self,
        config: SchedulerConfig,
        runner: ModelRunner,
        tokenizer: Tokenizer,
        sampler: BatchSampler | None = None,
        *,
        clock: Clock = time.monotonic_ns,
        observers: Iterable[Observer] = (),
        journal: list[Entry] | None = None,
        pool: BlockPool | None = None,
    ) -> None:
        capacity = runner.capacity()
        self.tokenizer = tokenizer
        self._clock = clock
        self._runner = runner
        pool = BlockPool(capacity.num_blocks, capacity.block_size) if pool is None else pool
        self._scheduler = Scheduler(config, capacity, pool=pool, journal=journal)
        self._recorder = Recorder(runner.shape(), pool, observers)
        self._desk = Desk(BatchSampler() if sampler is None else sampler, self._recorder)
        self._faults = Faults()
        self._lock = threading.RLock()

    # for any thread

    @property
    def config(self) -> SchedulerConfig:
        return self._scheduler.config

    @property
    def capacity(self) -> KVCapacity:
        return self._scheduler.capacity

    @property
    def has_work(self) -> bool:
        """Whether any answer is in progress or undelivered."""
        return self._desk.busy

    @property
    def broken(self) -> bool:
        """Whether the device broke down: no step will ever follow."""
        return self._faults.broken is not None

    def now(self) -> Nanoseconds:
        """The time on the engine's clock."""
        return self._clock()

    @contextmanager
    def together(self) -> Iterator[None]:
        """No step is planned while this is held: what is submitted inside arrives as one."""
        with self._lock:
            yield

    def submit(
        self,
        prompt_token_ids: Sequence[TokenId],
        params: SamplingParams,
        *,
        request_id: str,
        sink: Sink,
        priority: int = 0,
        cache_salt: str = "",
        arrival: Nanoseconds | None = None,
    ) -> Accepted:
        """Take in a request.

        Args:
            prompt_token_ids: the prompt.
            params: how to answer.
            request_id: unique among the requests in progress.
            sink: gets the answer piece by piece; the last piece, and only that, has a finish_reason.
            priority: lower runs first under queue_order=priority.
            cache_salt: KV blocks are shared only among requests of equal salt.
            arrival: when it was due, on the engine's clock. None: now.

        Raises:
            RequestRefused: with the numbers and the setting to change.
            EngineClosed: the engine was shut down, or is being.
            EngineUnhealthy: the device broke down.
        """
        stop_ids = params.stop_ids(self.tokenizer.special.end_ids)
        with self._lock:
            self._faults.check_door()
            now = self._clock()
            request = Request(
                request_id=request_id,
                prompt=prompt_token_ids,
                max_tokens=params.max_tokens,
                min_tokens=params.min_tokens,
                stop_ids=stop_ids,
                priority=priority,
                arrival=arrival,
                cache_salt=cache_salt,
            )
            verdict = self._scheduler.submit(request, now)
            if isinstance(verdict, Refused):
                raise RequestRefused(verdict)
            answer = Answer(
                request_id,
                prompt_tokens=len(prompt_token_ids),
                params=params,
                stop_ids=stop_ids,
                tokenizer=self.tokenizer,
                arrival=now if arrival is None else arrival,
                sink=sink,
            )
            self._desk.take_in(answer, params, stop_ids)
            return verdict

    def cancel(self, request_id: str, sink: Sink | None = None) -> None:
        """The request is not wanted any more: its blocks are free at the end of the step in flight. An id that has
        ended or was never here is no error.

        Args:
            request_id: whom.
            sink: only the request that was submitted with it, not a later one of the same id.
        """
        with self._lock:
            if sink is not None and not self._desk.serves(request_id, sink):
                return
            now = self._clock()
            self._release(self._scheduler.cancel(request_id, now), now)

    def switch_policy(self, policy: PolicyName, **changes: Any) -> None:
        """Go over to another policy, live; see Scheduler.switch_policy.

        Raises:
            ConfigError: the settings do not go together, or need larger steps than were reserved for at start.
        """
        with self._lock:
            now = self._clock()
            self._release(self._scheduler.switch_policy(policy, now, **changes), now)

    def end_input(self) -> None:
        """Nobody will come any more, or whoever comes arrives together: unfilled batches may leave."""
        with self._lock:
            self._scheduler.end_input(self._clock())

    def drain(self) -> None:
        """Take nobody in any more; whoever is here is answered."""
        with self._lock:
            self._faults.close_door("the engine is shutting down and takes no more requests.")
            self._scheduler.end_input(self._clock())

    def stats(self) -> EngineStats:
        """A consistent copy of everything there is to know. Linear in the pool: not for every step."""
        with self._lock:
            counters = self._scheduler.counters
            return EngineStats(
                usage=self._scheduler.usage(),
                counters=replace(counters, finished=dict(counters.finished)),
                health=self.health(),
                ledger=self._scheduler.ledger.report(self._clock()),
            )

    def health(self) -> Health:
        """Whether the engine can do its work; if not, why and since when."""
        with self._lock:
            return self._faults.health(self._scheduler.health())

    def attach(self, observer: Observer) -> None:
        """Show it every record from now on."""
        self._recorder.attach(observer)

    def detach(self, observer: Observer) -> None:
        self._recorder.detach(observer)

    # for the thread that steps

    def step(self) -> Wait | None:
        """Compute one step and deliver what came of it.

        Returns:
            None after a step, also after one that failed; otherwise why there was nothing to compute, and until when.
        """
        try:
            return self._step()
        except Exception as error:  # noqa: BLE001 - whatever it was, nobody may hang on it
            with self._lock:
                cause = self._faults.break_down(error, self._clock())
                self._desk.end_all(FinishReason.ERROR, cause, self.config.policy, self._clock())
            return None
        finally:
            self._deliver()

    def close(self) -> None:
        """End what is still in progress as cancelled, and free the device. No step may follow."""
        with self._lock:
            self._faults.close_door("the engine was shut down.")
            for answer in tuple(self._desk.book):
                self.cancel(answer.request_id)
            # Whoever is in a step that was interrupted half-way.
            self._desk.end_all(FinishReason.CANCELLED, "", self.config.policy, self._clock())
        self._deliver()
        self._forget_ended()
        self._runner.close()

    # inside

    def _step(self) -> Wait | None:
        self._forget_ended()
        with self._lock:
            plan = self._plan()
        if isinstance(plan, Wait):
            return plan
        try:
            outcome = self._runner.execute(plan)
        except StepFailed as error:
            self._step_failed(plan, error)
        else:
            self._faults.step_succeeded()
            self._commit(plan, self._desk.read(plan, outcome))
        return None

    def _plan(self) -> StepPlan | Wait:
        if self._faults.broken is not None:
            return Wait(None, Reason.STALLED, self._faults.broken.cause)
        now = self._clock()
        plan = self._scheduler.plan(now)
        if isinstance(plan, StepPlan):
            self._desk.note(plan.decisions, now)
        elif plan.reason is Reason.STALLED:
            self._faults.stalled(plan.detail, now)
        elif plan.reason is Reason.QUEUE_EMPTY:
            self._faults.idle()
        return plan

    def _commit(self, plan: StepPlan, outcome: StepOutcome) -> None:
        with self._lock:
            now = self._clock()
            self._desk.committed(plan, outcome, now)
            events = self._scheduler.commit(plan, outcome, now)
            self._release(events, now)
            self._recorder.step(plan, outcome, self._desk.book, now, preempted=len(events.preempted))

    def _release(self, events: StepEvents, now: Nanoseconds) -> None:
        self._desk.release(events, self._scheduler.config.policy, now)

    def _step_failed(self, plan: StepPlan, error: StepFailed) -> None:
        """Try again; after MAX_ATTEMPTS in a row the requests in the step end, and only they."""
        with self._lock:
            now = self._clock()
            if not self._faults.step_failed(error, now):
                self._release(self._scheduler.abort(plan, now), now)
                return
        message = f"the step failed {MAX_ATTEMPTS} times in a row: {error}"
        failures = dict.fromkeys(range(len(plan)), message)
        self._commit(plan, StepOutcome([0] * len(plan.sampled_rows), device_time=0, failures=failures))

    def _deliver(self) -> None:
        """Outside the lock: whatever an observer or a reader does, the door stays open."""
        with self._lock:
            records, deliveries = self._recorder.pending(), self._desk.deliveries()
        self._recorder.show(records)
        for sink, delta in deliveries:
            sink(delta)

    def _forget_ended(self) -> None:
        with self._lock:
            ended = self._desk.ended()
        for request_id in ended:
            self._runner.forget(request_id)
