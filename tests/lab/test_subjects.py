from pathlib import Path

import pytest

from chairlift.core.errors import ConfigError
from chairlift.lab.loads.files import load_from_pairs
from chairlift.lab.loads.schedule import Schedule
from chairlift.lab.subjects import ModelSubject, ServerSubject, Settings
from chairlift.lab.targets.url import UrlTarget
from chairlift.records.manifest import Manifest
from chairlift.records.reader import Run
from tests.lab.subject_making import Loader, fake_subject

SIX = Schedule(load_from_pairs(["name=six", "arrivals=burst", "arrivals.size=6", "prompt=40", "output=5"]))


async def test_a_model_is_loaded_once_and_runs_each_time_anew(tmp_path: Path) -> None:
    """Whatever the policy and its sizes: the pool is empty at first, and no prompt is found in a cache."""
    loader = Loader()
    subject = fake_subject(loader)
    several: list[Settings] = [
        {"policy": "static", "batch_size": 4},
        {"policy": "dynamic"},
        {"policy": "continuous", "max_num_seqs": 2},
    ]
    subject.prepare(several)
    results = [await subject.run(SIX, one, tmp_path / str(i)) for i, one in enumerate(several)]

    assert len(loader.loads) == 1
    assert [result.summary.answered for result in results] == [6, 6, 6]
    engines = [Run(tmp_path / str(i) / "engine") for i in range(3)]
    assert [engine.manifest.settings["policy"] for engine in engines] == ["static", "dynamic", "continuous"]
    assert all(record.cached_tokens == 0 for engine in engines for record in engine.requests())
    assert not loader.runners[0].closed
    subject.close()
    assert loader.runners[0].closed


async def test_unfilled_batches_leave_in_every_run(tmp_path: Path) -> None:
    """The end of one run's input is not the next one's: six in batches of four wait for it twice."""
    subject = fake_subject(policy="static", batch_size=4)
    for name in ("one", "two"):
        await subject.run(SIX, {}, tmp_path / name)

    reasons = [[batch.reason for batch in Run(tmp_path / name / "engine").batches()] for name in ("one", "two")]
    assert reasons == [["batch_full", "end_of_input"]] * 2


async def test_a_small_pool_is_a_part_of_the_large_one(tmp_path: Path) -> None:
    """Fewer blocks need no other runner; more do."""
    loader = Loader(num_blocks=256)
    subject = fake_subject(loader)
    for i, blocks in enumerate((None, 40, 300)):
        await subject.run(SIX, {} if blocks is None else {"num_kv_blocks": blocks}, tmp_path / str(i))

    pools = [Run(tmp_path / str(i) / "engine").manifest.capacity["num_blocks"] for i in range(3)]
    assert pools == [256, 40, 300]
    assert len(loader.loads) == 2


@pytest.mark.parametrize("larger", [{"max_num_batched_tokens": 1024}, {"max_num_seqs": 64}, {"max_model_len": 600}])
async def test_a_larger_step_is_made_room_for(larger: dict[str, int], tmp_path: Path) -> None:
    """Once for all when it is announced; otherwise the model is loaded again, for the largest so far."""
    loader = Loader()
    subject = fake_subject(loader)
    subject.prepare([{}, larger])
    await subject.run(SIX, larger, tmp_path / "announced")
    assert len(loader.loads) == 1

    unannounced = Loader()
    subject = fake_subject(unannounced)
    await subject.run(SIX, {}, tmp_path / "one")
    await subject.run(SIX, larger, tmp_path / "two")
    await subject.run(SIX, {}, tmp_path / "three")
    assert len(unannounced.loads) == 2
    assert unannounced.runners[0].closed


async def test_what_the_scheduler_took_is_in_the_record(tmp_path: Path) -> None:
    """Of the same steps as were made."""
    result = await fake_subject().run(SIX, {}, tmp_path / "run")

    told = Manifest.read(tmp_path / "run").results["scheduler"]
    assert told["steps"] == sum(step.repeats for step in Run(tmp_path / "run" / "engine").steps())
    assert told["plan_and_commit_ns"] > 0
    assert result.entry.manifest.results["scheduler"] == told


async def test_a_runs_settings_replace_the_subjects_under_any_name(tmp_path: Path) -> None:
    """max_seq_len is max_model_len."""
    subject = fake_subject()
    await subject.run(SIX, {"max_seq_len": 128}, tmp_path / "run")

    assert Manifest.read(tmp_path / "run" / "engine").settings["max_model_len"] == 128


def test_a_length_that_nobody_asked_for_is_fitted_to_the_model() -> None:
    """2,048 is a default, and the model was made for 100."""
    subject = ModelSubject("fake", load=Loader(longest_context=100))
    subject.prepare([{}])

    assert subject.config({}).max_model_len == 100


async def test_a_length_that_the_model_was_not_made_for_is_refused(tmp_path: Path) -> None:
    """With both numbers, also where the model is loaded already."""
    subject = ModelSubject("fake", load=Loader(longest_context=100))
    subject.prepare([{}])

    with pytest.raises(ConfigError, match="--max-model-len is 512; the model was made for 100"):
        await subject.run(SIX, {"max_model_len": 512}, tmp_path / "run")


async def test_a_server_is_run_but_not_changed() -> None:
    """The refusal says how else the question can be answered."""
    subject = ServerSubject("http://host:8000", lambda: UrlTarget("http://host:8000"))
    subject.config({})
    said = r"cannot be changed: http://host:8000 is a server.*chairlift diff"
    with pytest.raises(ConfigError, match=said):
        subject.config({"policy": "static"})
    with pytest.raises(ConfigError, match=said):
        subject.prepare([{}, {"batch_size": 2}])
    with pytest.raises(ConfigError, match="--max-num-seqs cannot be changed"):
        await subject.run(SIX, {"max_num_seqs": 4}, Path("nowhere"))
