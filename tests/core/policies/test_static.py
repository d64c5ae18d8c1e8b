import pytest

from chairlift.core.config import SchedulerConfig
from chairlift.core.policies.static import Static
from chairlift.core.policies.views import Hold, Launch, QueueView
from chairlift.core.reasons import Reason

ARRIVED = 1000


def _static(max_wait: int | None = None) -> Static:
    return Static(SchedulerConfig(policy="static", batch_size=4, max_wait=max_wait))


@pytest.mark.parametrize("waiting", [4, 5, 100])
def test_a_full_batch_leaves_at_once(waiting: int) -> None:
    """batch_size requests leave, and no more, whatever else is said."""
    for max_wait in (None, 50):
        for ended in (False, True):
            choice = _static(max_wait).choose(QueueView(waiting, ARRIVED, input_ended=ended), ARRIVED + 10**9)
            assert choice == Launch(4, Reason.BATCH_FULL)


@pytest.mark.parametrize("waiting", [1, 3])
def test_an_unfilled_batch_waits_for_ever_by_default(waiting: int) -> None:
    """Only an arrival can change it: there is no time to name."""
    assert _static().choose(QueueView(waiting, ARRIVED), 10**15) == Hold(None, Reason.BATCH_NOT_FULL)


@pytest.mark.parametrize("waiting", [1, 3])
def test_the_end_of_the_input_sends_what_there_is(waiting: int) -> None:
    """Nobody else will come: an offline input is at its end, or the server drains."""
    choice = _static().choose(QueueView(waiting, ARRIVED, input_ended=True), ARRIVED)
    assert choice == Launch(waiting, Reason.END_OF_INPUT)


@pytest.mark.parametrize(
    ("now", "expected"),
    [
        (ARRIVED, Hold(ARRIVED + 50, Reason.BATCH_NOT_FULL)),
        (ARRIVED + 49, Hold(ARRIVED + 50, Reason.BATCH_NOT_FULL)),
        (ARRIVED + 50, Launch(3, Reason.MAX_WAIT_OVER)),
        (ARRIVED + 51, Launch(3, Reason.MAX_WAIT_OVER)),
    ],
)
def test_max_wait_counts_from_the_oldest_arrival(now: int, expected: Launch | Hold) -> None:
    """At exactly max_wait after it the batch leaves; before, the hold names that moment."""
    assert _static(max_wait=50).choose(QueueView(3, ARRIVED), now) == expected


def test_an_empty_queue_is_not_a_batch_that_waits() -> None:
    """With nobody there the device is idle, not held, even at the end of the input."""
    for ended in (False, True):
        assert _static().choose(QueueView(0, 0, input_ended=ended), 5) == Hold(None, Reason.QUEUE_EMPTY)
