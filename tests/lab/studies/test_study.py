from pathlib import Path

import pytest

from chairlift.core.errors import ConfigError
from chairlift.lab.client.options import Stop
from chairlift.lab.loads.files import load_from_pairs
from chairlift.lab.studies.folder import StudyRecord
from chairlift.lab.studies.study import Interrupted, Study, policy_settings, take_turns
from chairlift.records.manifest import Manifest
from tests.lab.sim_subject import sim_study, sim_subject
from tests.lab.subject_making import fake_subject

FOUR = "name=four arrivals=burst arrivals.size=4 prompt=16 output=4"
USERS = "name=two arrivals=closed arrivals.users=2 prompt=16 output=4 count=4"


async def test_a_run_is_kept_beneath_the_study_and_listed_in_it(tmp_path: Path) -> None:
    """With its label, its policy and what was changed for it; the file is whole after every run."""
    study = sim_study("t", tmp_path)
    measured = await study.run("the first", FOUR, {"policy": "dynamic"})
    record = StudyRecord.read(tmp_path / "study")

    assert (record.status, record.quick) == ("running", True)
    assert [(one.folder, one.label, one.policy, one.settings) for one in record.runs] == [
        ("01-the-first", "the first", "dynamic", {"policy": "dynamic"})
    ]
    assert Manifest.read(tmp_path / "study" / "01-the-first").status == "complete"
    study.close()
    assert StudyRecord.read(tmp_path / "study").status == "complete"
    assert "ttft_from_schedule" in study.record.definitions
    assert measured.answered == 4


async def test_a_static_batch_that_never_fills_is_refused_before_it_hangs(tmp_path: Path) -> None:
    """Two users and batches of eight: three ways out are named, and each of them works."""
    study = sim_study("t", tmp_path, policy="static", batch_size=8)
    with pytest.raises(ConfigError, match=r"2 users never fills a static batch of 8.*--batch-size to 2.*--max-wait"):
        await study.run("stuck", USERS)

    assert (await study.run("small", USERS, {"batch_size": 2})).answered == 4
    assert (await study.run("patient", USERS, {"max_wait": 1_000_000})).answered == 4
    assert (await study.run("more", USERS.replace("users=2", "users=8"))).answered == 4


async def test_an_interrupted_study_keeps_what_it_has(tmp_path: Path) -> None:
    """The run that was cut is there, and says that it was."""
    stop = Stop()
    stop.request()
    study = Study("t", fake_subject(), tmp_path / "study", stop=stop)
    with pytest.raises(Interrupted):
        await study.run("cut", FOUR)
    study.close(complete=False)

    record = StudyRecord.read(tmp_path / "study")
    assert (record.status, len(record.runs)) == ("running", 1)


async def test_failures_are_noted_where_everybody_reads_them(tmp_path: Path) -> None:
    """Who did not answer did not have to compute."""
    study = sim_study("t", tmp_path)
    await study.run("crowded", FOUR, {"max_num_seqs": 1, "max_queued_requests": 1})

    assert any("crowded: " in note and "of 4 requests failed" in note for note in study.record.notes)


async def test_turns_are_taken_on_the_same_draws(tmp_path: Path) -> None:
    """Each round is a pair on one load, the next round draws anew, and the order turns round."""
    study = sim_study("t", tmp_path)
    load = load_from_pairs(
        ["arrivals=burst", "arrivals.size=6", "prompt=16", "output=uniform", "output.min=2", "output.max=40"]
    )
    settings = {name: policy_settings(name, 2) for name in ("static", "continuous")}
    runs = await take_turns(study, load, settings, 2)

    prints = {name: [run.load["fingerprint"] for run in several] for name, several in runs.items()}
    assert prints["static"] == prints["continuous"]
    assert len(set(prints["static"])) == 2
    labels = [one.label for one in study.record.runs]
    assert labels == ["static, round 1", "continuous, round 1", "continuous, round 2", "static, round 2"]


def test_a_policys_size_has_its_own_name() -> None:
    """And there are three policies."""
    assert policy_settings("static", 4) == {"policy": "static", "batch_size": 4}
    assert policy_settings("dynamic", 4) == {"policy": "dynamic", "max_batch_size": 4}
    assert policy_settings("continuous", 4) == {"policy": "continuous", "max_num_seqs": 4}
    with pytest.raises(ConfigError, match="must be one of static, dynamic, continuous"):
        policy_settings("inflight")


async def test_a_model_is_warmed_up_once(tmp_path: Path) -> None:
    """Before the first run, in a folder that no table counts; a simulation has nothing to warm."""
    study = Study("t", fake_subject(), tmp_path / "study")
    await study.run("one", FOUR)
    await study.run("two", FOUR)
    simulated = sim_study("t", tmp_path / "sim")
    await simulated.run("one", FOUR)

    assert sorted(path.name for path in (tmp_path / "study").glob("0*")) == ["00-warm-up", "01-one", "02-two"]
    assert [run.label for run in study.record.runs] == ["one", "two"]
    assert not (tmp_path / "sim" / "study" / "00-warm-up").exists()


async def test_a_subjects_settings_are_under_the_runs(tmp_path: Path) -> None:
    """A study's own settings come between."""
    study = Study("t", sim_subject(tmp_path, policy="static"), tmp_path / "study", settings={"batch_size": 2})
    run = await study.run("one", FOUR, {"batch_size": 4})

    config = study.config(run)
    assert config is not None
    assert (config.policy, config.batch_size, study.own_policy()) == ("static", 4, "static")
