from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chairlift.lab.report.series import MOST_POINTS, cdf, kv_use, queue, thinned
from chairlift.lab.report.sources import RunView
from chairlift.records.client import ServerSample
from tests.lab.report.making import engine_run, staggered
from tests.lab.runs.making import write_run
from tests.records.traces import MS
from tests.sim.helpers import arrival, runner

points = st.lists(st.tuples(st.floats(0, 1e5), st.floats(0, 1e6)), max_size=1500).map(sorted)


@given(points, st.integers(5, 50))
def test_thinning_keeps_the_peak_and_both_ends(found: list[tuple[float, float]], most: int) -> None:
    """In no more points than asked for (and one)."""
    kept = thinned(found, most)

    assert len(kept) <= most + 1
    assert kept == sorted(kept, key=lambda point: point[0])
    if found:
        assert kept[-1][1] == dict(found)[found[-1][0]]


@given(st.lists(st.floats(0, 1e6), max_size=1000).map(sorted))
def test_a_cdf_goes_from_nothing_to_all(values: list[float]) -> None:
    """Ascending, at each value the share of values up to it."""
    drawn = cdf(values)

    assert drawn[:1] == [(value, 0.0) for value in values[:1]]
    assert drawn[-1:] == [(value, 1.0) for value in values[-1:]]
    assert len(drawn) <= MOST_POINTS + 1
    assert [share for _, share in drawn] == sorted(share for _, share in drawn)


def test_the_queue_is_who_is_due_and_not_admitted(tmp_path: Path) -> None:
    """Under static the first eight wait together, and never more than came."""
    view = RunView(engine_run(tmp_path / "run", "static", staggered(8)))
    line = queue(view)

    assert [value for _, value in line.points] == [1, 2, 3, 4, 5, 6, 7, 0, 0]  # the eighth starts the batch at once
    assert line.points[0][0] == 0
    assert line.points[-1][0] == pytest.approx(view.length / 1e9)


def test_who_is_preempted_waits_again(tmp_path: Path) -> None:
    """Until it is resumed; at the end nobody waits."""
    arrivals = [arrival("a", tokens=30, answer=40), arrival("b", 1, tokens=30, answer=40)]
    view = RunView(
        engine_run(tmp_path / "run", "continuous", arrivals, runner(num_blocks=6), enable_prefix_caching=False)
    )
    values = [value for _, value in queue(view).points]

    assert sum(request.preemptions for request in view.requests) == 1
    assert values == [0, 1, 0, 1, 0, 0]  # the first is admitted at once


def test_kv_use_is_the_steps(tmp_path: Path) -> None:
    """Never more than the largest that a step reports; nothing at the end."""
    view = RunView(engine_run(tmp_path / "run", "continuous", staggered(8)))
    line = kv_use(view)

    assert max(value for _, value in line.points) == max(step.kv_most / step.kv_total for step in view.steps)
    assert line.points[-1][1] == 0


def test_a_servers_own_samples_are_its_queue_and_kv_use(tmp_path: Path) -> None:
    """From when the first request was due; a sample that says nothing is passed over."""
    told = [(1100, 3.0, 0.25), (2100, None, 0.5), (3100, 0.0, None)]
    samples = [ServerSample(at * MS, MS, waiting=waiting, kv_usage=used) for at, waiting, used in told]
    view = RunView(write_run(tmp_path / "run", samples=samples).folder)

    assert queue(view).points == ((1.1, 3.0), (3.1, 0.0))
    assert kv_use(view).points == ((1.1, 0.25), (2.1, 0.5))
    assert queue(view).missing == kv_use(view).missing == ""


def test_what_a_server_does_not_say_is_not_drawn(tmp_path: Path) -> None:
    """There is a reason in its place."""
    view = RunView(write_run(tmp_path / "run").folder)

    assert queue(view).points == kv_use(view).points == ()
    assert "does not say" in queue(view).missing
    assert "KV cache" in kv_use(view).missing
