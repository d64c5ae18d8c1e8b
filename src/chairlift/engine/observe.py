"""The records the engine makes of itself, and who is shown them."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from chairlift.core.blocks import BlockPool
from chairlift.core.plan import BatchForecast, StepOutcome, StepPlan
from chairlift.core.reasons import Decision
from chairlift.core.request import Nanoseconds
from chairlift.core.work import ModelShape, Work, work_of
from chairlift.engine.book import AnswerBook
from chairlift.engine.shares import Shares
from chairlift.records.observer import Observer, show
from chairlift.records.schema import BatchRecord, DecisionRecord, Record, RequestRecord, StepRecord

__all__ = ["Observer", "Recorder"]

logger = logging.getLogger("chairlift.engine")

_NO_WORK = Work(0, 0, 0, 0, 0)


@dataclass(slots=True)
class _OpenBatch:
    """A closed batch that runs."""

    forecast: BatchForecast
    policy: str
    started: Nanoseconds
    ended: Nanoseconds = 0
    steps: int = 0
    peak_blocks: int = 0

    def record(self) -> BatchRecord:
        forecast = self.forecast
        return BatchRecord(
            batch=forecast.batch,
            policy=self.policy,
            reason=forecast.reason,
            members=forecast.members,
            forecast_blocks=forecast.blocks,
            forecast_steps=forecast.prefill_steps + forecast.decode_steps,
            forecast_time=forecast.duration,
            started=self.started,
            ended=self.ended,
            steps=self.steps,
            peak_blocks=self.peak_blocks,
        )


class Recorder:
    """Makes the records, and shows them to the observers; makes none while there are none."""

    def __init__(self, shape: ModelShape | None, pool: BlockPool, observers: Iterable[Observer]) -> None:
        self._shape = shape
        self._pool = pool
        self._observers = tuple(observers)
        self._batch: _OpenBatch | None = None
        self._shares = Shares()
        self._pending: list[Record] = []

    def attach(self, observer: Observer) -> None:
        self._shares.tell_all(forget=not self._observers)
        if not self._observers:
            self._pool.take_peak()
        self._observers = (*self._observers, observer)

    def detach(self, observer: Observer) -> None:
        """No error when it is not attached any more."""
        self._observers = tuple(other for other in self._observers if other is not observer)

    def decisions(self, decisions: Iterable[Decision], now: Nanoseconds) -> None:
        if self._observers:
            self._pending += [DecisionRecord(now, d.step, d.request_id, d.reason, d.numbers) for d in decisions]

    def request(self, record: RequestRecord) -> None:
        if self._observers:
            self._pending.append(record)

    def step(
        self,
        plan: StepPlan,
        outcome: StepOutcome,
        book: AnswerBook[Any],
        now: Nanoseconds,
        *,
        preempted: int,
        times: int = 1,
    ) -> None:
        """A plan was committed at `now`, so many times; the book is as it stands after it."""
        self._count_batch(plan, now, times)
        if not self._observers:
            return
        self._pending += self._shares.changes(plan)
        counts, pool = plan.token_counts, self._pool
        work = work_of(plan, self._shape, times) if self._shape is not None else _NO_WORK
        record = StepRecord(
            step=plan.step,
            repeats=times,
            policy=plan.policy,
            planned=plan.now,
            committed=now,
            device_time=outcome.device_time,
            rows=len(plan),
            samples=(sum(plan.samples) - sum(plan.samples[row] for row in outcome.failures)) * times,
            failures=len(outcome.failures),
            prefill=counts.prefill * times,
            decode=counts.decode * times,
            recompute=counts.recompute * times,
            padding=counts.padding * times,
            dead=counts.dead * times,
            decode_flops=work.decode_flops,
            prefill_flops=work.prefill_flops,
            weight_bytes=work.weight_bytes,
            decode_kv_bytes=work.decode_kv_bytes,
            prefill_kv_bytes=work.prefill_kv_bytes,
            running=book.running,
            waiting=book.waiting,
            waiting_tokens=book.waiting_tokens,
            preempted=preempted,
            kv_used=pool.used_blocks,
            kv_cached=pool.cached_blocks,
            kv_total=pool.num_blocks,
            batch=self._batch.forecast.batch if self._batch else None,
            kv_peak=pool.take_peak(),
        )
        self._pending.append(record)
        # A closed batch ends when nobody in it runs; nobody outside it can.
        if self._batch is not None and not book.running:
            self._pending.append(self._batch.record())
            self._batch = None

    def pending(self) -> list[Record]:
        """The records since the last call."""
        pending, self._pending = self._pending, []
        return pending

    def show(self, records: list[Record]) -> None:
        """Show them to the observers. Not under a lock: an observer may write files."""
        for observer in self._observers:
            try:
                for record in records:
                    show(observer, record)
            except Exception:  # an observer's trouble is not the engine's
                logger.exception("observer %r failed and is not called any more; the engine goes on.", observer)
                self.detach(observer)

    def _count_batch(self, plan: StepPlan, now: Nanoseconds, times: int) -> None:
        if plan.forecast is not None:
            self._batch = _OpenBatch(plan.forecast, plan.policy, plan.now)
        elif plan.policy == "continuous":
            self._batch = None  # dissolved by a live switch: it did not run to its end
        if self._batch is not None:
            self._batch.steps += times
            self._batch.ended = now
            self._batch.peak_blocks = max(self._batch.peak_blocks, self._pool.used_blocks)
