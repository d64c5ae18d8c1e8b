"""Static batching: collect N, start together, release together."""

from __future__ import annotations

from chairlift.core.config import SchedulerConfig
from chairlift.core.policies.views import Hold, Launch, QueueView
from chairlift.core.reasons import Reason
from chairlift.core.request import Nanoseconds


class Static:
    """A cable car: it leaves when it is full.

    An unfilled batch leaves only when nobody else will come (the end of an offline input, a drain), or, if max_wait is
    set, when its oldest request has waited that long. Inside the batch nothing changes until the last member ends.
    """

    def __init__(self, settings: SchedulerConfig) -> None:
        self.batch_size = settings.batch_size
        self.max_wait = settings.max_wait

    def choose(self, view: QueueView, now: Nanoseconds) -> Launch | Hold:
        if not view.waiting:
            return Hold(until=None, reason=Reason.QUEUE_EMPTY)
        if view.waiting >= self.batch_size:
            return Launch(self.batch_size, Reason.BATCH_FULL)
        if view.input_ended:
            return Launch(view.waiting, Reason.END_OF_INPUT)
        if self.max_wait is None:
            return Hold(until=None, reason=Reason.BATCH_NOT_FULL)
        leaves_at = view.oldest_arrival + self.max_wait
        return (
            Launch(view.waiting, Reason.MAX_WAIT_OVER) if now >= leaves_at else Hold(leaves_at, Reason.BATCH_NOT_FULL)
        )
