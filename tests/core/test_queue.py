from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chairlift.core.config import QueueOrder
from chairlift.core.queue import WaitingQueue
from chairlift.core.sequence import Sequence
from tests.core.helpers import request

ORDERS: tuple[QueueOrder, ...] = get_args(QueueOrder)


def _sequence(number: int, *, prompt: int = 4, priority: int = 0, arrival: int = 0) -> Sequence:
    one = request(f"r{number}", prompt=prompt, priority=priority)
    return Sequence(one, number=number, arrival=arrival, max_tokens=4)


def _order_of(order: QueueOrder, *sequences: Sequence) -> list[int]:
    queue = WaitingQueue(order)
    for one in sequences:
        queue.push(one)
    return [one.number for one in queue]


def test_first_come_first_served_goes_by_arrival_and_not_by_submission() -> None:
    """fcfs: the earlier arrival first, of equal arrivals the one that was submitted first."""
    assert _order_of("fcfs", _sequence(0, arrival=5), _sequence(1, arrival=3), _sequence(2, arrival=5)) == [1, 0, 2]


def test_priority_goes_before_arrival() -> None:
    """priority: the lower value first, then arrival."""
    waiting = (_sequence(0, priority=1, arrival=0), _sequence(1, priority=0, arrival=9), _sequence(2, priority=1))
    assert _order_of("priority", *waiting) == [1, 0, 2]


def test_the_shortest_prompt_goes_first() -> None:
    """shortest_prompt: then arrival."""
    waiting = (_sequence(0, prompt=9), _sequence(1, prompt=2, arrival=7), _sequence(2, prompt=2, arrival=6))
    assert _order_of("shortest_prompt", *waiting) == [2, 1, 0]


def test_an_empty_queue_has_no_head() -> None:
    """Nothing waits, and nobody is the oldest."""
    queue = WaitingQueue("priority")
    assert (len(queue), queue.head(), queue.oldest(), queue.tokens) == (0, None, None, 0)


@given(
    order=st.sampled_from(ORDERS),
    waiting=st.lists(st.tuples(st.integers(1, 5), st.integers(0, 2), st.integers(0, 3)), max_size=12),
    data=st.data(),
)
def test_the_queue_agrees_with_a_sorted_list(
    order: QueueOrder, waiting: list[tuple[int, int, int]], data: st.DataObject
) -> None:
    """Whatever is pushed and removed: order, oldest, length and tokens are those of a list sorted anew."""
    queue, model = WaitingQueue(order), list[Sequence]()
    keys = {
        "fcfs": lambda one: (one.arrival, one.number),
        "priority": lambda one: (one.request.priority, one.arrival, one.number),
        "shortest_prompt": lambda one: (one.prompt_length, one.arrival, one.number),
    }
    for number, (prompt, priority, arrival) in enumerate(waiting):
        one = _sequence(number, prompt=prompt, priority=priority, arrival=arrival)
        queue.push(one)
        model.append(one)
        if data.draw(st.integers(0, 2)) == 0:
            gone = data.draw(st.sampled_from(model))
            queue.remove(gone)
            model.remove(gone)
        model.sort(key=keys[order])
        assert list(queue) == model
        assert queue.head() is (model[0] if model else None)
        assert queue.oldest() is min(model, key=keys["fcfs"], default=None)
        assert queue.tokens == sum(one.length for one in model)


@pytest.mark.parametrize("order", ORDERS)
def test_a_sequence_that_comes_back_finds_its_own_place(order: QueueOrder) -> None:
    """A preempted sequence, longer by its answer now, has the place that it had before."""
    queue = WaitingQueue(order)
    sequences = [_sequence(number, arrival=number) for number in range(3)]
    for one in sequences:
        queue.push(one)
    first = sequences[0]
    queue.remove(first)
    first.output = [7, 8]

    queue.push(first)

    assert [one.number for one in queue] == [0, 1, 2]
    assert queue.tokens == 6 + 4 + 4
