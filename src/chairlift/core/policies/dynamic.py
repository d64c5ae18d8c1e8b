"""Dynamic batching: closed batches from a queue, with a bounded wait."""

from __future__ import annotations

from chairlift.core.config import SchedulerConfig
from chairlift.core.policies.views import Hold, Launch, QueueView
from chairlift.core.reasons import Reason
from chairlift.core.request import Nanoseconds


class Dynamic:
    """A shuttle: it leaves when it is full, or when its first passenger has waited long enough.

    The delay is counted from the arrival of the oldest waiting request (as Triton does), not from the first look at it.
    While it runs, the largest preferred size that is reached leaves at once, so that a small preferred size wins over
    waiting for a larger one; where none is configured, max_batch_size plays that part. Once it is over everything that
    waits leaves, up to max_batch_size, preferred or not. Inside the batch nothing changes until the last member ends.

    Source of the rules: Triton's model configuration guide, "Dynamic Batcher".
    """

    def __init__(self, settings: SchedulerConfig) -> None:
        self.max_batch_size = settings.max_batch_size
        self.max_queue_delay = settings.max_queue_delay
        self.sizes = sorted(settings.preferred_batch_sizes or (settings.max_batch_size,), reverse=True)

    def choose(self, view: QueueView, now: Nanoseconds) -> Launch | Hold:
        if not view.waiting:
            return Hold(until=None, reason=Reason.QUEUE_EMPTY)
        everything = min(view.waiting, self.max_batch_size)
        leaves_at = view.oldest_arrival + self.max_queue_delay
        if self.max_queue_delay and now >= leaves_at:
            return Launch(everything, Reason.DELAY_OVER)
        for size in self.sizes:
            if view.waiting >= size:
                return Launch(size, Reason.BATCH_FULL if size == self.max_batch_size else Reason.PREFERRED_SIZE)
        if not self.max_queue_delay:
            return Launch(everything, Reason.NO_DELAY)
        if view.input_ended:
            return Launch(everything, Reason.END_OF_INPUT)
        return Hold(leaves_at, Reason.BATCH_NOT_FULL)
