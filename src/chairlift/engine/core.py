"""The step loop's body: plan, execute, read the tokens, commit, deliver.

EngineCore has no thread of its own. One thread calls step(); any thread may call the other methods, because a lock
guards the scheduler. It is held while a plan is made or committed (well under a millisecond), never while the device
works, so that the door answers at once.

Side effects of step(), in this order: the runner forgets who has ended; the plan; the device; texts grow; the commit;
records are shown to observers; answers leave.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from chairlift.core.blocks import BlockPool
from chairlift.core.config import KVCapacity, PolicyName, SchedulerConfig
from chairlift.core.errors import EngineClosed, EngineError, EngineUnhealthy, RequestRefused, StepFailed
from chairlift.core.journal import Entry
from chairlift.core.ledger import LedgerReport
from chairlift.core.plan import StepEvents, StepOutcome, StepPlan, Wait
from chairlift.core.reasons import Decision, Reason
from chairlift.core.request import Accepted, FinishReason, Nanoseconds, Refused, Request, TokenId
from chairlift.core.scheduler import Scheduler
from chairlift.core.state import Counters
from chairlift.core.status import Health, Usage
from chairlift.engine.answer import Answer, Sink
from chairlift.engine.book import AnswerBook
from chairlift.engine.observe import Observer, Recorder
from chairlift.engine.outputs import OutputDelta
from chairlift.engine.params import SamplingParams
from chairlift.engine.sampling import BatchSampler
from chairlift.engine.throttle import Throttle
from chairlift.runners.base import ModelRunner
from chairlift.text.tokenizer import Tokenizer

logger = logging.getLogger("chairlift.engine")

Clock = Callable[[], Nanoseconds]

MAX_ATTEMPTS = 3
"""How often in a row a step may fail before the requests in it end with an error."""


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
        self._sampler = BatchSampler() if sampler is None else sampler
        self._pool = BlockPool(capacity.num_blocks, capacity.block_size) if pool is None else pool
        self._scheduler = Scheduler(config, capacity, pool=self._pool, journal=journal)
        self._recorder = Recorder(runner.shape(), self._pool, observers)
        self._book = AnswerBook()
        self._lock = threading.RLock()
        self._outbox: list[tuple[Sink, OutputDelta]] = []
        """What has left the scheduler and not been delivered."""
        self._ended: list[str] = []
        """Whom the runner may forget."""
        self._attempts = 0
        self._step_fault: Health | None = None
        self._closed: EngineError | None = None
        """Why nobody is taken in any more."""
        self._broken_since: Nanoseconds | None = None
        self._throttle = Throttle()

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
        return bool(self._book) or bool(self._outbox)

    @property
    def broken(self) -> bool:
        """Whether the device broke down: no step will ever follow."""
        return self._broken_since is not None

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
            if self._closed is not None:
                raise type(self._closed)(str(self._closed))
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
            self._sampler.add(request_id, params, stop_ids)
            self._book.add(
                Answer(
                    request_id,
                    prompt_tokens=len(prompt_token_ids),
                    params=params,
                    stop_ids=stop_ids,
                    tokenizer=self.tokenizer,
                    arrival=now if arrival is None else arrival,
                    sink=sink,
                )
            )
            return verdict

    def cancel(self, request_id: str) -> None:
        """The request is not wanted any more: its blocks are free at the end of the step in flight. An id that has
        ended or was never here is no error.
        """
        with self._lock:
            now = self._clock()
            self._leave(self._scheduler.cancel(request_id, now), now)

    def switch_policy(self, policy: PolicyName, **changes: Any) -> None:
        """Go over to another policy, live; see Scheduler.switch_policy.

        Raises:
            ConfigError: the settings do not go together, or need larger steps than were reserved for at start.
        """
        with self._lock:
            now = self._clock()
            self._leave(self._scheduler.switch_policy(policy, now, **changes), now)

    def end_input(self) -> None:
        """Nobody will come any more, or whoever comes arrives together: unfilled batches may leave."""
        with self._lock:
            self._scheduler.end_input(self._clock())

    def drain(self) -> None:
        """Take nobody in any more; whoever is here is answered."""
        with self._lock:
            self._closed = self._closed or EngineClosed("the engine is shutting down and takes no more requests.")
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
            if self._broken_since is not None:
                return Health(ok=False, cause=str(self._closed), since=self._broken_since)
            scheduler = self._scheduler.health()
            return scheduler if not scheduler.ok else self._step_fault or scheduler

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
        self._forget_ended()
        with self._lock:
            plan = self._plan()
        if isinstance(plan, Wait):
            self._deliver()
            return plan
        try:
            outcome = self._runner.execute(plan)
        except StepFailed as error:
            self._step_failed(plan, error)
        except Exception as error:  # whatever it was, nobody may hang on it
            logger.exception("the device broke down in step %d.", plan.step)
            self._break_down(error)
        else:
            self._attempts, self._step_fault = 0, None
            self._commit(plan, self._read(plan, outcome))
        self._deliver()
        return None

    def close(self) -> None:
        """End what is still in progress as cancelled, and free the device. No step may follow."""
        with self._lock:
            self._closed = self._closed or EngineClosed("the engine was shut down.")
            for answer in tuple(self._book):
                self.cancel(answer.request_id)
        self._deliver()
        self._forget_ended()
        self._runner.close()

    # inside

    def _plan(self) -> StepPlan | Wait:
        if self._broken_since is not None:
            return Wait(None, Reason.STALLED, str(self._closed))
        now = self._clock()
        plan = self._scheduler.plan(now)
        if isinstance(plan, StepPlan):
            self._note(plan.decisions, now)
        elif plan.reason is Reason.STALLED:
            self._complain(f"work is pending and cannot be scheduled: {plan.detail}", now)
        return plan

    def _read(self, plan: StepPlan, outcome: StepOutcome) -> StepOutcome:
        """Let the texts grow by the step's tokens, and see whose stop string is complete."""
        stops: dict[int, FinishReason] = {}
        book, accept, failures = self._book, self._sampler.accept, outcome.failures
        for row, token in zip(plan.sampled_rows, outcome.tokens, strict=True):
            if row in failures:
                continue
            request_id = plan.request_ids[row]
            accept(request_id, token)
            reason = book[request_id].push(token)
            if reason is not None:
                stops[row] = reason
        return replace(outcome, stops=stops) if stops else outcome

    def _commit(self, plan: StepPlan, outcome: StepOutcome) -> None:
        with self._lock:
            now = self._clock()
            for row in plan.sampled_rows:
                if row not in outcome.failures:
                    self._book[plan.request_ids[row]].computed(now)
            events = self._scheduler.commit(plan, outcome, now)
            self._leave(events, now)
            self._recorder.step(plan, outcome, self._book, now, preempted=len(events.preempted))

    def _leave(self, events: StepEvents, now: Nanoseconds) -> None:
        """Turn what the scheduler released into text on its way out."""
        self._note(events.decisions, now)
        released: dict[str, list[TokenId]] = {}
        for request_id, token in zip(events.request_ids, events.tokens, strict=True):
            released.setdefault(request_id, []).append(token)
        for finished in events.finished:
            tokens = released.pop(finished.request_id, [])
            self._end(finished.request_id, tokens, now, finished.reason, finished.message)
        for request_id, tokens in released.items():
            answer = self._book[request_id]
            self._outbox.append((answer.sink, answer.take(tokens, now)))

    def _end(
        self, request_id: str, tokens: Sequence[TokenId], now: Nanoseconds, reason: FinishReason, error: str
    ) -> None:
        answer = self._book.remove(request_id)
        self._sampler.remove(request_id)
        self._ended.append(request_id)
        self._outbox.append((answer.sink, answer.end(tokens, now, reason, error)))
        policy = self._scheduler.config.policy
        self._recorder.request(answer.record(policy=policy, now=now, reason=reason, error=error))

    def _note(self, decisions: Sequence[Decision], now: Nanoseconds) -> None:
        if decisions:
            self._book.note(decisions, now)
            self._recorder.decisions(decisions, now)

    def _deliver(self) -> None:
        """Outside the lock: whatever an observer or a reader does, the door stays open."""
        self._recorder.flush()
        with self._lock:
            outbox, self._outbox = self._outbox, []
        for sink, delta in outbox:
            sink(delta)

    def _forget_ended(self) -> None:
        with self._lock:
            ended, self._ended = self._ended, []
        for request_id in ended:
            self._runner.forget(request_id)

    # when things go wrong

    def _step_failed(self, plan: StepPlan, error: StepFailed) -> None:
        """Try again; after MAX_ATTEMPTS in a row the requests in the step end, and only they."""
        self._attempts += 1
        with self._lock:
            now = self._clock()
            since = self._step_fault.since if self._step_fault else now
            self._step_fault = Health(ok=False, cause=f"steps fail: {error}", since=since)
            self._complain(f"a step failed ({self._attempts} of {MAX_ATTEMPTS} attempts): {error}", now, str(error))
            if self._attempts < MAX_ATTEMPTS:
                self._leave(self._scheduler.abort(plan, now), now)
                return
        self._attempts = 0
        message = f"the step failed {MAX_ATTEMPTS} times in a row: {error}"
        self._commit(
            plan,
            StepOutcome(
                tokens=[0] * len(plan.sampled_rows),
                device_time=0,
                failures=dict.fromkeys(range(len(plan)), message),
            ),
        )

    def _break_down(self, error: Exception) -> None:
        """The device is gone: every request ends with an error, and nobody is taken in."""
        cause = f"the device broke down: {type(error).__name__}: {error}"
        with self._lock:
            now = self._clock()
            self._broken_since = now
            self._closed = EngineUnhealthy(f"{cause}. Restart the server; its log has the traceback.")
            for answer in tuple(self._book):
                self._end(answer.request_id, [], now, FinishReason.ERROR, cause)

    def _complain(self, line: str, now: Nanoseconds, cause: str | None = None) -> None:
        """One log line a period about one cause."""
        cause = cause or line
        if self._throttle.speaks(cause, now):
            held_back = self._throttle.held_back(cause)
            logger.error("%s%s", line, f" ({held_back} more since the last such line)" if held_back else "")
