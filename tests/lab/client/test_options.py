import pytest

from chairlift.core.errors import ConfigError
from chairlift.lab.client.options import RunOptions, Stop


def test_a_stop_tells_its_listeners_once() -> None:
    """Asking again does nothing."""
    stop, heard = Stop(), list[str]()
    stop.listen(lambda: heard.append("first"))
    stop.listen(lambda: heard.append("second"))
    stop.request()
    stop.request()

    assert heard == ["first", "second"]


def test_who_listens_late_is_told_at_once() -> None:
    """A stop asked for before the run began."""
    stop, heard = Stop(), list[str]()
    stop.request()
    stop.listen(lambda: heard.append("late"))

    assert heard == ["late"]


def test_a_time_limit_of_nothing_is_refused() -> None:
    """A run that ends as it begins measures nothing."""
    with pytest.raises(ConfigError, match="--time-limit is 0 ns; it must be positive, or absent"):
        RunOptions(time_limit=0)
