from pathlib import Path

import pytest

from chairlift import __version__
from chairlift.core.errors import RecordError
from chairlift.engine.core import EngineCore
from chairlift.engine.loader import LoadedModel
from chairlift.engine.recording import Recording, recorded
from chairlift.engine.sampling import BatchSampler
from chairlift.records.reader import Run
from chairlift.runners.fake import FakeRunner
from tests.engine.tiny import Clock, Inbox, byte_tokenizer, make_core, run, submit


def loaded() -> LoadedModel:
    """A model of which only the name matters here."""
    core = make_core()
    return LoadedModel(
        name="tiny",
        path=Path("tiny.gguf"),
        runner=FakeRunner(),
        sampler=BatchSampler(),
        tokenizer=byte_tokenizer(),
        chat_template=None,
        scheduler=core.config,
        memory="",
    )


def served(policy: str = "static") -> tuple[EngineCore, Inbox]:
    """An engine with two requests in its queue."""
    core, inbox = make_core(clock=Clock(tick=1000), policy=policy, batch_size=2), Inbox()
    for name in ("first", "second"):
        submit(core, name, inbox, max_tokens=4, ignore_eos=True)
    return core, inbox


def test_a_recorded_run_holds_what_happened_and_what_it_ran_with(tmp_path: Path) -> None:
    """Steps, requests and batches are in the folder; the manifest says what it ran with and came to."""
    core, _ = served()
    with recorded(core, loaded(), tmp_path / "run", {"name": "two requests"}):
        run(core)

    kept = Run(tmp_path / "run")
    assert kept.complete
    assert {record.request_id for record in kept.requests()} == {"first", "second"}
    assert sum(step.decode for step in kept.steps()) == 6
    assert [batch.members for batch in kept.batches()] == [2]
    manifest = kept.manifest
    assert (manifest.chairlift, manifest.model["name"], manifest.load) == (
        __version__,
        "tiny",
        {"name": "two requests"},
    )
    assert (manifest.settings["policy"], manifest.settings["kv_reservation"]) == ("static", "full")
    assert manifest.capacity["num_blocks"] == 64
    assert manifest.machine["cpus"] >= 1
    ledger = manifest.results["ledger"]
    assert sum(ledger["times"].values()) == ledger["wall"]
    assert manifest.results["counters"]["finished"] == {"stop": 0, "length": 2, "cancelled": 0, "error": 0}


def test_without_a_folder_nothing_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """recorded(..., None) is an empty `with`."""
    monkeypatch.chdir(tmp_path)
    core, _ = served()
    with recorded(core, loaded(), None):
        run(core)

    assert not list(tmp_path.iterdir())


def test_a_folder_with_another_run_is_refused_before_anything_is_served(tmp_path: Path) -> None:
    """The error names the folder and the way out."""
    core, _ = served()
    Recording(core, loaded(), tmp_path / "run").close()

    with pytest.raises(RecordError, match="holds a run already"):
        Recording(core, loaded(), tmp_path / "run")


def test_after_the_close_the_engine_goes_on_unrecorded(tmp_path: Path) -> None:
    """Closing detaches the writer; closing again does nothing."""
    core, _ = served()
    recording = Recording(core, loaded(), tmp_path / "run")
    core.step()
    recording.close()
    recording.close()
    run(core)

    assert len(Run(tmp_path / "run").steps()) == 1
