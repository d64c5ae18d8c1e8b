from datetime import UTC, datetime
from pathlib import Path

import pytest

from chairlift.core.errors import ConfigError, RecordError
from chairlift.lab.runs.store import Filter, RunStore, with_unit
from tests.lab.runs.making import LOAD, write_run

NOON = datetime(2026, 5, 1, 12, 0, 0, tzinfo=UTC)


@pytest.fixture
def store(tmp_path: Path) -> RunStore:
    """Two runs of different loads, an engine's records, and what is no run."""
    store = RunStore(tmp_path)
    write_run(store.new("even", NOON))
    write_run(store.new("bursts", NOON), LOAD.replace("even", "bursts"), delay=500, status="running")
    write_run(tmp_path / "engine", source="engine")
    (tmp_path / "notes.txt").write_text("no run")
    return store


def test_a_run_is_named_by_time_and_load(tmp_path: Path) -> None:
    """A name that is taken gets a number; a load without a name leaves the time."""
    store = RunStore(tmp_path / "runs")

    first = store.new("Chat, at *noon*", NOON)
    first.mkdir(parents=True)
    assert first.name == "20260501-120000-chat-at-noon"
    assert store.new("Chat, at *noon*", NOON).name == "20260501-120000-chat-at-noon-2"
    assert store.new("", NOON).name == "20260501-120000"


def test_the_clients_runs_are_listed(store: RunStore, tmp_path: Path) -> None:
    """Also those that were killed; a folder that is not there has none."""
    assert [(run.name, run.complete) for run in store] == [
        ("20260501-120000-bursts", False),
        ("20260501-120000-even", True),
    ]
    assert list(RunStore(tmp_path / "none")) == []


@pytest.mark.parametrize(
    ("expression", "names"),
    [
        ("load=even", ["even"]),
        ("load!=even", ["bursts"]),
        ("target~HOST", ["bursts", "even"]),
        ("status=running", ["bursts"]),
        ("cpus>=2", ["bursts", "even"]),
        ("cpus<2", []),
        ("ttft_from_schedule.p99>0.5", ["bursts"]),
        ("ttft_from_schedule.p99 <= 0.5", ["even"]),
        ("load.load.count=4.0", ["bursts", "even"]),
        ("keep_text=no", ["bursts", "even"]),
        ("goodput=none", ["bursts", "even"]),
    ],
)
def test_filters_ask_for_facts_of_the_manifest(store: RunStore, expression: str, names: list[str]) -> None:
    """By short name, by dotted key or by the end of one; numbers compare as numbers."""
    found = store.matching([Filter.parse(expression)])

    assert [run.name.removeprefix("20260501-120000-") for run in found] == names


def test_every_filter_must_hold(store: RunStore) -> None:
    """Together they narrow."""
    filters = [Filter.parse("load=even"), Filter.parse("status=running")]

    assert store.matching(filters) == []
    assert len(store.matching([])) == 2


@pytest.mark.parametrize("text", ["load", "=even", "cpus>many", ""])
def test_a_filter_that_is_none_is_refused(text: str) -> None:
    """With what would do."""
    with pytest.raises(ConfigError, match="--filter is"):
        Filter.parse(text)


def test_a_key_that_no_run_has_is_refused_with_the_closest(store: RunStore) -> None:
    """A mistyped key would otherwise find nothing and say nothing."""
    with pytest.raises(ConfigError, match="no run has a statu; did you mean status"):
        store.matching([Filter.parse("statu=running")])


def test_a_run_is_found_by_folder_name_beginning_or_as_the_last(store: RunStore, tmp_path: Path) -> None:
    """What fits several, or none, is refused with what there is."""
    even = tmp_path / "20260501-120000-even"

    assert store.find(str(even)).folder == even
    assert store.find(even.name).name == store.find("20260501-120000-e").name == store.find("last").name == even.name
    with pytest.raises(RecordError, match=r"2 runs in .* begin with '2026': 20260501-120000-bursts, .*-even\."):
        store.find("2026")
    with pytest.raises(RecordError, match=r"no one run 'x'.*chairlift runs"):
        store.find("x")
    with pytest.raises(RecordError, match=r"is no run: it has no manifest\.json"):
        store.find(str(tmp_path))


def test_a_damaged_run_hides_no_other(store: RunStore, tmp_path: Path) -> None:
    """The others are listed and found; it is told, and named in the error when it is asked for."""
    (tmp_path / "20260501-110000-hurt").mkdir()
    (tmp_path / "20260501-110000-hurt" / "manifest.json").write_text("{")

    assert len(list(store)) == 2
    assert len(store.unreadable()) == 1
    assert store.find("last").name == "20260501-120000-even"
    with pytest.raises(RecordError, match=r"110000-hurt/manifest\.json is damaged"):
        store.find("20260501-110000-hurt")


def test_a_file_is_no_folder_of_runs(tmp_path: Path) -> None:
    """It is refused, where an absent folder has none."""
    (tmp_path / "runs").write_text("")

    with pytest.raises(RecordError, match="is no folder of runs: Not a directory"):
        list(RunStore(tmp_path / "runs"))


def test_records_of_a_newer_schema_are_refused(tmp_path: Path) -> None:
    """With the way out."""
    with pytest.raises(RecordError, match=r"a client's records of schema 99; .* upgrade it"):
        write_run(tmp_path / "new", client_schema=99)


def test_figures_are_reckoned_from_the_traces(store: RunStore) -> None:
    """A run that was killed has them, too."""
    killed = store.find("20260501-120000-bursts")

    assert killed.summary().answered == 4
    assert len(killed.traces()) == 4


@pytest.mark.parametrize(
    ("key", "value", "shown"),
    [
        ("settings.max_queue_delay", 50_000_000, "50ms"),
        ("settings.limits.idle", 600_000_000_000, "600s"),
        ("settings.max_wait", None, None),
        ("settings.max_num_seqs", 32, 32),
        ("load.requests", 300, 300),
    ],
)
def test_durations_are_shown_with_a_unit(key: str, value: int | None, shown: object) -> None:
    """A manifest has them in nanoseconds, which nobody would guess."""
    assert with_unit(key, value) == shown
