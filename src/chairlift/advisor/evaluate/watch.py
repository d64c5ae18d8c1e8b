"""What only the simulated engine sees: how full its steps and its pool were, and what requests waited for."""

from __future__ import annotations

from collections import Counter
from typing import Final

from chairlift.core.reasons import Reason
from chairlift.core.request import Nanoseconds
from chairlift.records.observer import Observer
from chairlift.records.schema import DecisionRecord, RequestRecord, StepRecord

WAITING: Final = frozenset(
    str(reason)
    for reason in (
        Reason.WAITING_FOR_TURN,
        Reason.WAITING_FOR_BATCH,
        Reason.WAITING_FOR_SLOT,
        Reason.WAITING_FOR_BLOCKS,
        Reason.WAITING_FOR_BUDGET,
        Reason.WAITING_FOR_INTERVAL,
        Reason.WAITING_FOR_LATENCY,
        Reason.BATCH_NOT_FULL,
        Reason.CUT_BY_MEMORY,
        Reason.PREEMPTED,
    )
)
"""Reasons that leave a request in the queue until its next decision."""


class Watch(Observer):
    """Adds up as it sees.

    Attributes:
        kv_peak: most blocks that requests held after a step.
        waits: ns in the queue, of all requests, by reason.
    """

    def __init__(self) -> None:
        self.kv_peak = 0
        self.waits: Counter[str] = Counter()
        self._since: dict[str, tuple[str, Nanoseconds]] = {}
        self._row_time = self._time = 0

    @property
    def rows(self) -> float:
        """Sequences in a step, mean over the time of steps."""
        return self._row_time / self._time if self._time else 0.0

    def on_step(self, record: StepRecord) -> None:
        taken = record.committed - record.planned
        self._time += taken
        self._row_time += record.rows * taken
        self.kv_peak = max(self.kv_peak, record.kv_most)

    def on_decision(self, record: DecisionRecord) -> None:
        self._close(record.request_id, record.time)
        if record.reason in WAITING:
            self._since[record.request_id] = (record.reason, record.time)

    def on_request(self, record: RequestRecord) -> None:
        self._close(record.request_id, record.released)

    def _close(self, request_id: str, now: Nanoseconds) -> None:
        before = self._since.pop(request_id, None)
        if before is not None:
            self.waits[before[0]] += now - before[1]
