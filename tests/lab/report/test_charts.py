import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from chairlift.core.config import POLICIES
from chairlift.lab.report import charts
from chairlift.lab.report.figures import RunFigures, figures
from chairlift.lab.report.series import Timeline
from chairlift.lab.report.sources import RunView
from chairlift.lab.studies.folder import Cell, Column, table
from tests.lab.report.making import engine_run, staggered
from tests.lab.runs.making import write_run


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[RunFigures]:
    """The staggered load, held back and streamed."""
    folder = tmp_path_factory.mktemp("runs")
    return [
        figures(RunView(engine_run(folder / policy, policy, staggered(16)), policy))
        for policy in POLICIES
        if policy != "dynamic"
    ]


def test_a_bar_has_all_of_the_wall_clock(runs: list[RunFigures]) -> None:
    """Its pieces lie end to end, from zero to the wall clock of the books."""
    spec = charts.ledger_chart(runs)
    assert spec is not None
    for run in runs:
        pieces = [row for row in spec["layer"][0]["data"]["values"] if row["run"] == run.label]
        assert pieces[0]["from"] == 0
        assert all(one["to"] == pytest.approx(other["from"]) for one, other in pairwise(pieces))
        assert run.ledger is not None
        assert pieces[-1]["to"] == pytest.approx(run.ledger["wall"] / 1e9)


def test_what_was_not_observable_is_written_and_not_drawn(runs: list[RunFigures]) -> None:
    """Static has no mark in the panel of the time between tokens, and words instead."""
    spec = charts.percentile_chart(runs)
    assert spec is not None
    between = spec["vconcat"][1]
    marks = between["layer"][1]["data"]["values"]
    assert {mark["run"] for mark in marks} == {"continuous"}
    assert between["layer"][2]["data"]["values"] == [{"run": "static", "words": "not observable"}]


def test_every_axis_has_its_unit(runs: list[RunFigures]) -> None:
    """Seconds or milliseconds, and it says when it is logarithmic."""
    drawn = [charts.ledger_chart(runs), charts.percentile_chart(runs), charts.cdf_chart(runs)]
    titles = [title for spec in drawn for title in titles_of(spec)]
    assert len(titles) >= 8
    assert all(any(unit in title for unit in ("(s", "(ms", "share")) for title in titles)


def test_far_apart_values_have_a_logarithmic_axis(runs: list[RunFigures]) -> None:
    """And it is said; near ones begin at zero."""
    spec = charts.percentile_chart(runs)
    assert spec is not None
    first, *_, last = (panel["layer"][1]["encoding"]["x"] for panel in spec["vconcat"])
    assert (first["scale"]["type"], "logarithmic" in first["title"]) == ("log", True)
    assert last["scale"]["domain"][0] == 0


def test_timelines_share_their_axes() -> None:
    """A panel a run, all to the same height and length; one without points says why."""
    lines = [Timeline(((0.0, 1.0), (2.0, 7.0))), Timeline((), "the server does not say")]
    spec = charts.timeline_chart(["a", "b"], lines, "waiting", 3.0)
    assert spec is not None
    one, other = spec["vconcat"]
    assert one["encoding"]["y"]["scale"] == other["encoding"]["y"]["scale"] == {"domain": [0, 7.0], "nice": False}
    assert one["encoding"]["x"]["scale"]["domain"] == [0, 3.0]
    assert one["encoding"]["y"]["title"] == ["a", "waiting"]
    assert other["data"]["values"][0]["words"] == "the server does not say"
    assert charts.timeline_chart(["b"], lines[1:], "waiting", 3.0) is None


def test_without_records_of_an_engine_there_is_no_ledger(tmp_path: Path) -> None:
    """Nothing is drawn as zero."""
    assert charts.ledger_chart([figures(RunView(write_run(tmp_path / "run").folder, "run"))]) is None


def test_a_studys_table_is_a_chart_where_it_names_axes() -> None:
    """A line for each series, an interval where there is one, and nothing where a cell is not known."""
    columns = [Column("users"), Column("rate", "tokens/s", "output"), Column("policy"), Column("low"), Column("high")]
    rows: list[list[Cell]] = [
        [1, 10.0, "static", 9.0, 11.0],
        [8, 40.0, "static", None, None],
        [8, None, "dynamic", None, None],
    ]
    found = table("t", "A title.", columns, rows, x="users", y="rate", series="policy", low="low", high="high")
    spec = charts.study_chart(found)
    assert spec is not None
    assert spec["data"]["values"] == [
        {"x": 1, "v": 10.0, "run": "static", "low": 9.0, "high": 11.0},
        {"x": 8, "v": 40.0, "run": "static", "low": 40.0, "high": 40.0},
    ]
    assert set(titles_of(spec)) == {"users", "output, tokens/s"}
    assert charts.study_chart(table("t", "A title.", columns, rows)) is None


def titles_of(spec: Any) -> list[str]:
    """Titles of all quantitative axes."""
    found: list[str] = []
    if isinstance(spec, dict):
        if spec.get("type") == "quantitative" and isinstance(spec.get("title"), str):
            found.append(spec["title"])
        for value in spec.values():
            found += titles_of(value)
    elif isinstance(spec, list):
        for value in spec:
            found += titles_of(value)
    json.dumps(spec)  # and it is plain JSON
    return found


def test_a_curve_over_factors_is_steep_on_both_axes_and_its_bend_is_marked() -> None:
    """Output that follows users is a straight line; the second figure has a chart beneath; a cell marks its point."""
    columns = [
        Column("users"),
        Column("rate", "tokens/s", "output"),
        Column("gap", "s", "between tokens"),
        Column("bend"),
    ]
    rows: list[list[Cell]] = [
        [1, 10.0, 0.1, ""],
        [2, 20.0, 0.1, ""],
        [4, 40.0, 0.11, "<- here"],
        [8, 60.0, 0.2, ""],
        [16, 70.0, 0.4, ""],
    ]
    found = table("t", "A title.", columns, rows, x="users", y="rate", below="gap", mark="bend")
    spec = charts.study_chart(found)
    assert spec is not None
    first, second = spec["vconcat"]

    assert first["layer"][0]["encoding"]["y"]["scale"] == {"type": "log"}
    assert second["layer"][0]["encoding"]["y"]["scale"] == {"domainMin": 0}
    assert [row.get("mark") for row in first["data"]["values"]] == [None, None, "bend", None, None]
