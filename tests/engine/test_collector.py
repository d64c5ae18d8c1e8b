import gc
from collections.abc import Iterator

import pytest

from chairlift.engine.collector import calm_collector


@pytest.fixture(autouse=True)
def _collector_as_before() -> Iterator[None]:
    before = gc.get_threshold()
    yield
    gc.unfreeze()
    gc.set_threshold(*before)


def test_what_is_alive_is_set_aside_and_the_collector_stays_on_but_runs_rarely() -> None:
    """After the call the collector is on, its threshold ten times as high or more, and objects are frozen."""
    gc.set_threshold(before := 700, 10, 10)

    calm_collector()

    assert gc.isenabled()
    assert gc.get_threshold()[0] >= 10 * before
    assert gc.get_freeze_count() > 0


def test_a_cycle_is_still_collected() -> None:
    """A cycle made after the call is found by a collection."""

    class Node:
        other: object

    calm_collector()
    node = Node()
    node.other = node
    del node

    assert gc.collect() > 0
