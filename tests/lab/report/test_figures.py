from pathlib import Path

import pytest

from chairlift.core.config import POLICIES
from chairlift.lab.report.definitions import definitions
from chairlift.lab.report.figures import LATENCIES, figures
from chairlift.lab.report.sources import RunView
from chairlift.lab.report.tables import latency_table, ledger_table, summary_table
from tests.lab.report.making import engine_run, staggered
from tests.lab.runs.making import write_run
from tests.sim.helpers import arrival


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> dict[str, RunView]:
    """The staggered load, streamed and held back."""
    folder = tmp_path_factory.mktemp("runs")
    return {
        policy: RunView(engine_run(folder / policy, policy, staggered(16)), policy)
        for policy in POLICIES
        if policy != "dynamic"
    }


def test_an_engines_figures_are_its_requests(engine: dict[str, RunView]) -> None:
    """Latencies, rate, use of the device."""
    told = figures(engine["continuous"])
    requests = engine["continuous"].requests

    assert (told.seen_by, told.requests, told.answered, told.failed) == ("engine", 16, 16, {})
    assert told.latencies["e2e"].values == sorted((one.released - one.arrival) / 1e9 for one in requests)
    assert told.latencies["itl"].distribution.count == sum(one.output_tokens - 1 for one in requests)
    means = sorted(sum(one.gaps) / len(one.gaps) / 1e9 for one in requests)
    assert told.latencies["tpot"].values == pytest.approx(means)
    assert told.usage is not None
    assert told.usage.useful == 1
    assert told.preemptions == 0


def test_who_was_turned_away_counts_as_not_answered(tmp_path: Path) -> None:
    """The engine has no record of them; the figures have them all the same."""
    run = engine_run(
        tmp_path / "run", "static", [arrival(f"r{n}") for n in range(8)], batch_size=2, max_queued_requests=4
    )
    told = figures(RunView(run, "run"))

    assert (told.requests, told.answered, told.failed) == (8, 4, {"refused": 4})


def test_what_nobody_could_observe_is_said_to_be_so(engine: dict[str, RunView]) -> None:
    """Results held back have no time between tokens; it is no zero, neither in the tables."""
    told = figures(engine["static"])

    assert told.latencies["itl"].percentiles == {}
    assert told.latencies["itl"].distribution.unobservable == 16
    row = dict(zip(summary_table([told]).head, summary_table([told]).rows[0], strict=True))
    assert (row["ITL p50"], row["answered"]) == ("not observable", "16/16")
    rows = {row[0]: row for row in latency_table([told]).rows}
    assert rows["ITL, static"][1:3] == ("0", "not observable")


def test_a_clients_figures_are_its_traces(tmp_path: Path) -> None:
    """What a server keeps to itself is not told."""
    told = figures(RunView(write_run(tmp_path / "run").folder, "run"))

    assert (told.seen_by, told.requests, told.answered) == ("client", 4, 4)
    assert told.latencies["ttft"].values == pytest.approx([0.03] * 4)
    assert (told.usage, told.preemptions, told.ledger, told.ledger_seconds("idle")) == (None, None, None, None)
    row = dict(zip(summary_table([told]).head, summary_table([told]).rows[0], strict=True))
    assert row["device busy"] == row["tokens useful"] == row["preemptions"] == "not told"
    assert ledger_table([told]) is None


def test_a_percentile_needs_values(tmp_path: Path) -> None:
    """With four of them there is a median and a maximum, and no 99th percentile that would be another name for it."""
    told = figures(RunView(write_run(tmp_path / "run").folder, "run"))

    assert list(told.latencies["ttft"].percentiles) == ["p50", "max"]
    assert list(told.latencies["itl"].percentiles) == ["p50", "max"]


def test_the_ledgers_seconds_sum_to_the_wall_clock(engine: dict[str, RunView]) -> None:
    """In the table as in the books."""
    table = ledger_table([figures(view) for view in engine.values()])

    assert table is not None
    for row in table.rows:
        *parts, whole, _ = map(float, row[1:])
        assert sum(parts) == pytest.approx(whole, abs=0.006 * len(parts))


def test_every_figure_shown_is_defined(engine: dict[str, RunView], tmp_path: Path) -> None:
    """By whoever saw it, with its unit."""
    runs = [figures(view) for view in engine.values()]
    told = definitions(runs, ["slots", "ledger", "timelines"])

    names = ["output tokens/s", "device busy", "tokens useful", "preemptions", "slot", "dead rows", "padding", "held"]
    for name in (*LATENCIES.values(), *names, "recoverable", "waiting", "of KV blocks"):
        assert any(known.startswith(name) for known in told), name
    client = figures(RunView(write_run(tmp_path / "run").folder, "run"))
    assert "[s, by the client]" in definitions([client], [])["time to first token (TTFT)"]
    assert "slot" not in definitions([client], [])
