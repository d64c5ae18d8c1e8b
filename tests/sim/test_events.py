import pytest
from hypothesis import given
from hypothesis import strategies as st

from chairlift.core.errors import ConfigError
from chairlift.sim.events import Arrival, Departure, Event, InputEnd, OpenLoop, Switch
from tests.sim.helpers import arrival


def _drain(source: OpenLoop, times: list[int]) -> list[Event]:
    """Everything, asked for in these portions and then to the end."""
    found: list[Event] = []
    for before in [*times, 10**9]:
        while events := source.take(before):
            found += events
            assert all(event.time < before for event in events)
        following = source.next()
        assert following is None or following >= before
    assert source.next() is None
    return found


@given(
    st.lists(st.tuples(st.integers(0, 50), st.none() | st.integers(0, 60)), max_size=8),
    st.lists(st.integers(0, 60), max_size=4),
    st.lists(st.integers(0, 60), max_size=4).map(sorted),
)
def test_events_come_once_and_in_order_however_they_are_asked_for(
    coming: list[tuple[int, int | None]], switches: list[int], portions: list[int]
) -> None:
    """Arrivals, then the end of the input with the last of them, departures and switches by their times."""
    arrivals = [
        arrival(f"r{number}", time, leaves=None if stays is None else time + stays)
        for number, (time, stays) in enumerate(sorted(coming, key=lambda pair: pair[0]))
    ]
    events = _drain(OpenLoop(arrivals, [Switch(time, "static") for time in switches]), portions)

    times = [event.time for event in events]
    assert times == sorted(times)
    assert [event for event in events if isinstance(event, Arrival)] == arrivals
    end = next(event for event in events if isinstance(event, InputEnd))
    assert end.time == (arrivals[-1].time if arrivals else 0)
    assert all(not isinstance(event, Arrival) for event in events[events.index(end) :])
    left = sorted((event.time, event.request_id) for event in events if isinstance(event, Departure))
    assert left == sorted((one.leaves, one.request.request_id) for one in arrivals if one.leaves is not None)
    assert sum(isinstance(event, Switch) for event in events) == len(switches)


def test_nobody_leaves_before_coming() -> None:
    """One that gives up at the moment of its arrival is submitted first."""
    events = _drain(OpenLoop([arrival("r1", 5, leaves=5), arrival("r2", 5)], [Departure(5, "r2")]), [])

    names = [(type(event).__name__, getattr(event, "request_id", None)) for event in events]
    assert names[:3] == [("Arrival", None), ("Arrival", None), ("InputEnd", None)]
    assert sorted(name for _, name in names[3:] if name) == ["r1", "r2"]


def test_arrivals_out_of_order_are_named() -> None:
    """A load that goes back in time has no meaning."""
    source = OpenLoop([arrival("r1", 7), arrival("r2", 6)])

    with pytest.raises(ConfigError, match="arrival of 'r2' at 6 ns comes after one at 7 ns"):
        source.take(10)


def test_arrivals_are_read_as_late_as_possible() -> None:
    """One ahead: a million of them take no room."""
    read: list[int] = []

    def endless() -> object:
        for number in range(1000):
            read.append(number)
            yield arrival(f"r{number}", number)

    source = OpenLoop(endless())  # type: ignore[arg-type]
    for _ in range(3):
        source.take(500)

    assert len(read) == 4
