"""Dynamic batching against Triton's documented behaviour, case by case.

Sources: Triton Inference Server, model configuration guide, "Dynamic Batcher" ("Preferred Batch Sizes", "Delayed
Batching"), and what `GetDynamicBatch` of its core does for requests of one item each while an instance is idle:
  - while the delay is not over and a preferred size is reached, the largest preferred size reached is sent at once;
  - with no preferred size in the configuration, max_batch_size is the only one;
  - when the delay is over, everything pending is sent, up to max_batch_size, preferred size or not;
  - a delay of 0 is never over and never waited for: a preferred size if one is reached, else everything.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chairlift.core.config import SchedulerConfig
from chairlift.core.policies.dynamic import Dynamic
from chairlift.core.policies.views import Hold, Launch, QueueView
from chairlift.core.reasons import Reason

ARRIVED, DELAY = 1000, 100
HELD = 0
"""In the tables: nothing leaves yet."""

# How many leave with 1, 2, 3 ... 20 waiting, of max_batch_size 8.
BEFORE_THE_DELAY_IS_OVER: dict[tuple[int, ...], list[int]] = {
    (): [HELD] * 7 + [8] * 13,
    (4,): [HELD] * 3 + [4] * 17,
    (8,): [HELD] * 7 + [8] * 13,
    (4, 8): [HELD] * 3 + [4] * 4 + [8] * 13,
    (2, 6): [HELD, 2, 2, 2, 2] + [6] * 15,
    (1,): [1] * 20,
    (3, 5, 7): [HELD, HELD, 3, 3, 5, 5] + [7] * 14,
}
WITHOUT_A_DELAY: dict[tuple[int, ...], list[int]] = {
    (): [1, 2, 3, 4, 5, 6, 7] + [8] * 13,
    (4,): [1, 2, 3] + [4] * 17,
    (8,): [1, 2, 3, 4, 5, 6, 7] + [8] * 13,
    (4, 8): [1, 2, 3] + [4] * 4 + [8] * 13,
    (2, 6): [1, 2, 2, 2, 2] + [6] * 15,
    (1,): [1] * 20,
    (3, 5, 7): [1, 2, 3, 3, 5, 5] + [7] * 14,
}
AFTER_THE_DELAY = [1, 2, 3, 4, 5, 6, 7] + [8] * 13
"""Whatever is preferred."""


def _dynamic(preferred: tuple[int, ...] = (), delay: int = DELAY) -> Dynamic:
    settings = SchedulerConfig(
        policy="dynamic", max_batch_size=8, max_queue_delay=delay, preferred_batch_sizes=preferred
    )
    return Dynamic(settings)


def _left(choice: Launch | Hold) -> int:
    return choice.size if isinstance(choice, Launch) else HELD


@pytest.mark.parametrize("preferred", BEFORE_THE_DELAY_IS_OVER)
def test_before_the_delay_is_over_a_preferred_size_leaves_at_once(preferred: tuple[int, ...]) -> None:
    """The largest one reached, exactly; a small one wins over waiting for a larger; else all wait."""
    for now in (ARRIVED, ARRIVED + DELAY - 1):
        found = [_left(_dynamic(preferred).choose(QueueView(n, ARRIVED), now)) for n in range(1, 21)]
        assert found == BEFORE_THE_DELAY_IS_OVER[preferred]


@pytest.mark.parametrize("preferred", BEFORE_THE_DELAY_IS_OVER)
def test_after_the_delay_everything_leaves(preferred: tuple[int, ...]) -> None:
    """Up to max_batch_size, below, between or above the preferred sizes."""
    for now in (ARRIVED + DELAY, ARRIVED + 10 * DELAY):
        choices = [_dynamic(preferred).choose(QueueView(n, ARRIVED), now) for n in range(1, 21)]
        assert [_left(choice) for choice in choices] == AFTER_THE_DELAY
        assert {choice.reason for choice in choices} == {Reason.DELAY_OVER}


@pytest.mark.parametrize("preferred", WITHOUT_A_DELAY)
def test_a_delay_of_zero_never_waits(preferred: tuple[int, ...]) -> None:
    """A preferred size if one is reached, however long the oldest has waited, else all that wait."""
    for now in (ARRIVED, ARRIVED + 10**9):
        found = [_left(_dynamic(preferred, delay=0).choose(QueueView(n, ARRIVED), now)) for n in range(1, 21)]
        assert found == WITHOUT_A_DELAY[preferred]


def test_with_one_preferred_size_of_four_eight_leave_as_four_and_four() -> None:
    """A full batch of 8 would fit, but the preferred size was configured to be preferred."""
    policy = _dynamic((4,))
    assert policy.choose(QueueView(8, ARRIVED), ARRIVED) == Launch(4, Reason.PREFERRED_SIZE)
    assert policy.choose(QueueView(4, ARRIVED), ARRIVED) == Launch(4, Reason.PREFERRED_SIZE)


def test_a_hold_names_the_moment_at_which_the_oldest_has_waited_long_enough() -> None:
    """Counted from its arrival and not from the first look at it."""
    choice = _dynamic((4,)).choose(QueueView(3, ARRIVED), ARRIVED + 60)
    assert choice == Hold(ARRIVED + DELAY, Reason.BATCH_NOT_FULL)


def test_a_request_that_is_due_later_is_waited_for_from_then_on() -> None:
    """An arrival in the future has not waited yet."""
    assert _dynamic().choose(QueueView(1, ARRIVED), ARRIVED - 500) == Hold(ARRIVED + DELAY, Reason.BATCH_NOT_FULL)


@pytest.mark.parametrize(
    ("waiting", "preferred", "delay", "reason"),
    [
        (8, (), DELAY, Reason.BATCH_FULL),
        (9, (4, 8), DELAY, Reason.BATCH_FULL),
        (5, (4, 8), DELAY, Reason.PREFERRED_SIZE),
        (5, (), 0, Reason.NO_DELAY),
        (5, (4,), 0, Reason.PREFERRED_SIZE),
    ],
)
def test_the_reason_says_which_rule_it_was(
    waiting: int, preferred: tuple[int, ...], delay: int, reason: Reason
) -> None:
    """Full, a preferred size, or no delay to wait for."""
    assert _dynamic(preferred, delay).choose(QueueView(waiting, ARRIVED), ARRIVED).reason is reason


def test_at_the_end_of_the_input_nobody_is_waited_for() -> None:
    """A preferred size first, then the rest at once."""
    policy = _dynamic((4,))
    assert policy.choose(QueueView(6, ARRIVED, input_ended=True), ARRIVED) == Launch(4, Reason.PREFERRED_SIZE)
    assert policy.choose(QueueView(2, ARRIVED, input_ended=True), ARRIVED) == Launch(2, Reason.END_OF_INPUT)


def test_an_empty_queue_is_idle() -> None:
    """There is no oldest request whose delay could be over."""
    for delay in (0, DELAY):
        assert _dynamic(delay=delay).choose(QueueView(0, 0), 10**9) == Hold(None, Reason.QUEUE_EMPTY)


@given(
    most=st.integers(1, 20),
    waiting=st.integers(1, 60),
    delay=st.integers(0, 300),
    waited=st.integers(-50, 600),
    data=st.data(),
)
def test_what_leaves_is_preferred_or_everything(
    most: int, waiting: int, delay: int, waited: int, data: st.DataObject
) -> None:
    """Never more than wait or than max_batch_size; before the delay is over only a preferred size; a hold is never in
    the past.
    """
    preferred = tuple(data.draw(st.sets(st.integers(1, most), max_size=4)))
    settings = SchedulerConfig(
        policy="dynamic", max_batch_size=most, max_queue_delay=delay, preferred_batch_sizes=preferred
    )
    now = ARRIVED + waited
    choice = Dynamic(settings).choose(QueueView(waiting, ARRIVED), now)
    reached = [size for size in preferred or (most,) if size <= waiting]

    if isinstance(choice, Hold):
        assert choice.until is not None
        assert choice.until > now
        assert not reached
        assert delay > 0
    elif delay and waited >= delay:
        assert choice.size == min(waiting, most)
    else:
        assert choice.size == max(reached, default=min(waiting, most))
