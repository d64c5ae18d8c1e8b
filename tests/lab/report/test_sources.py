from pathlib import Path

import pytest

from chairlift.core.config import POLICIES
from chairlift.core.errors import RecordError
from chairlift.lab.report.groups import group_name, representatives, short_labels
from chairlift.lab.report.sources import RunView, open_source
from chairlift.lab.runs.store import RunStore
from chairlift.lab.studies.folder import StudyFolder, StudyRun, new_record
from tests.lab.report.making import engine_run, staggered
from tests.lab.runs.making import write_run

FEW = staggered(3)


def test_runs_are_called_by_their_policies(tmp_path: Path) -> None:
    """In the policies' order, where that tells them apart."""
    runs = [engine_run(tmp_path / policy, policy, FEW) for policy in reversed(POLICIES)]
    source = open_source([str(run) for run in runs], RunStore(tmp_path))

    assert [view.label for view in source.runs] == ["static", "dynamic", "continuous"]
    assert len(source.groups()) == 1


def test_runs_of_one_policy_are_called_by_their_folders(tmp_path: Path) -> None:
    """As they were given."""
    runs = [engine_run(tmp_path / name, "continuous", FEW) for name in ("b", "a")]

    assert [view.label for view in open_source([str(run) for run in runs], RunStore(tmp_path)).runs] == ["b", "a"]


def test_runs_of_different_loads_are_apart(tmp_path: Path) -> None:
    """Each load is a group."""
    runs = [engine_run(tmp_path / name, "static", FEW, load=name, batch_size=3) for name in ("one", "other")]
    source = open_source([str(run) for run in runs], RunStore(tmp_path))

    assert [[view.load_name for view in group] for group in source.groups()] == [["one"], ["other"]]


def test_a_run_is_found_by_name_in_the_store(tmp_path: Path) -> None:
    """As `chairlift diff` finds it."""
    write_run(tmp_path / "20260101-even")

    (view,) = open_source(["2026"], RunStore(tmp_path)).runs
    assert view.load_name == "even"
    assert (view.policy, view.engine, view.grid, view.ledger) == (None, None, None, None)
    with pytest.raises(RecordError, match="there is no one run 'nobody'"):
        open_source(["nobody"], RunStore(tmp_path))


def test_a_study_has_its_own_labels(tmp_path: Path) -> None:
    """A run that is gone is told, and two of one label are told apart."""
    record = new_record("mixed", "fake", quick=True)
    study = StudyFolder(tmp_path / "study", record)
    for name in ("first", "second"):
        engine_run(study.folder / name, "static", FEW, batch_size=3)
        record.runs.append(StudyRun(name, "round", "static", {"batch_size": 3}))
    record.runs.append(StudyRun("third", "gone", None, {}))
    study.save()
    source = open_source([str(study.folder)], RunStore(tmp_path))

    assert [view.label for view in source.runs] == ["round", "round (2)"]
    assert source.missing[0].startswith("gone: ")
    assert source.study is not None
    with pytest.raises(RecordError, match="give it alone"):
        open_source([str(study.folder), str(study.folder / "first")], RunStore(tmp_path))


def test_a_broken_off_run_is_incomplete(tmp_path: Path) -> None:
    """Its manifest still says that it runs, or that it was stopped."""
    whole, cut = write_run(tmp_path / "whole"), write_run(tmp_path / "cut", status="running")

    assert RunView(whole.folder).complete
    assert not RunView(cut.folder).complete


def test_of_many_runs_the_last_under_each_policy_is_shown(tmp_path: Path) -> None:
    """In the policies' order."""
    folder = engine_run(tmp_path / "run", "static", FEW, batch_size=3)
    rounds = [RunView(folder, f"{policy} {n}", policy) for n in range(3) for policy in ("continuous", "static")]

    assert [view.label for view in representatives([*rounds, *rounds[:2]])] == ["static 0", "continuous 0"]
    assert [view.label for view in representatives(rounds[:2])] == ["static 0", "continuous 0"]


@pytest.mark.parametrize(
    ("labels", "name", "short"),
    [
        (["1:5, static", "1:5, dynamic"], "1:5", ["static", "dynamic"]),
        (["static", "dynamic"], "staggered", ["static", "dynamic"]),
        (["static 1", "static 2"], "static", ["1", "2"]),
        (["even", "even, more"], "staggered", ["even", "even, more"]),
        (["alone"], "staggered", ["alone"]),
    ],
)
def test_a_group_is_called_by_what_its_labels_begin_with(
    tmp_path: Path, labels: list[str], name: str, short: list[str]
) -> None:
    """And its runs by the rest, none of them by nothing."""
    folder = engine_run(tmp_path / "run", "continuous", FEW)
    group = [RunView(folder, label) for label in labels]

    assert group_name(group) == name
    assert short_labels(group) == short
