import pytest
from hypothesis import given
from hypothesis import strategies as st

from chairlift.records.gaps import GapRun, Gaps, fitting

_runs = st.builds(
    GapRun,
    st.integers(1, 9),
    st.integers(0, 10**9),
    st.integers(-(10**20), 10**20),
    st.integers(-(10**14), 10**14),
    st.integers(1, 10**13),
)


def _spelled(run: GapRun) -> list[int]:
    return [run.base + (run.start + k * run.step) // run.divisor for k in range(run.gaps)]


@given(st.lists(_runs, max_size=5))
def test_gaps_are_those_of_their_runs(runs: list[GapRun]) -> None:
    """One after the other, by index from both ends, and in slices."""
    gaps, expected = Gaps(runs), [gap for run in runs for gap in _spelled(run)]

    assert list(gaps) == expected
    assert len(gaps) == len(expected)
    assert bool(gaps) == bool(expected)
    assert [gaps[i] for i in range(-len(expected), len(expected))] == expected * 2
    assert gaps[1:9:2] == expected[1:9:2]
    with pytest.raises(IndexError):
        gaps[len(expected)]


@given(_runs, st.data())
def test_what_is_left_of_a_run_goes_on_where_it_was_cut(run: GapRun, data: st.DataObject) -> None:
    """after(n) has the gaps behind the first n."""
    cut = data.draw(st.integers(0, run.gaps))

    assert _spelled(run.after(cut)) == _spelled(run)[cut:]


@given(_runs, st.integers(1, 10**6))
def test_runs_are_brought_into_64_bits(run: GapRun, gaps: int) -> None:
    """The same gaps in one run or several, whose numbers a column can hold."""
    parts = list(fitting(run._replace(gaps=min(gaps, 40))))

    assert [gap for part in parts for gap in _spelled(part)] == _spelled(run._replace(gaps=min(gaps, 40)))
    if abs(run.start // run.divisor) < 2**62:
        assert all(abs(number) < 2**63 for part in parts for number in part)


def test_a_million_gaps_of_a_real_device_are_one_run() -> None:
    """10 ms that grow by half a microsecond a step, in femtoseconds."""
    run = GapRun(10**6, 1000, 10**13, 552 * 10**6, 10**6)

    assert list(fitting(run)) == [run._replace(base=1000 + 10**7, start=0)]
