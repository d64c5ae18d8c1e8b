import json
from pathlib import Path

import pytest

from chairlift.core.errors import RecordError
from chairlift.lab.loads.compare import Difference, LoadRecord, diff, fingerprint
from tests.lab.loads.making import FIXTURES, LENGTHS, schedule

BASE = f"arrivals=poisson arrivals.rate=4 count=60 {LENGTHS}"


def record(pairs: str, folder: Path = FIXTURES) -> LoadRecord:
    """Of a load in pairs."""
    return LoadRecord.of(schedule(pairs, folder))


def test_a_fingerprint_is_what_it_always_was() -> None:
    """Of a load with most kinds of draws, on any machine and under any version of Python and numpy."""
    mixed = (
        "arrivals=gamma arrivals.rate=4 arrivals.cv=2 count=200 seed=9 prompt=lognormal prompt.median=300 "
        "prompt.sigma=0.7 output=exponential output.mean=100 output.cap=400 sessions.turns=3 "
        "sessions.think=exponential sessions.think.mean=2s prefix.tokens=30 prefix.groups=9 prefix.skew=1"
    )

    assert fingerprint(schedule(mixed))[:16] == "0680b4c328439dd5"


@pytest.mark.parametrize(
    "change",
    [
        "seed=1",
        "nonce=3",
        "time_scale=2",
        "warmup_requests=1",
        "max_tokens=21",
        "priority=1",
        "deadline=1s",
        "ignore_eos=false",
        "prefix.tokens=1",
        "sessions.turns=2",
        "classes.a.share=1",
        "duration=5s",
    ],
)
def test_whatever_changes_what_is_asked_changes_the_fingerprint(change: str) -> None:
    """Each of these settings alone; a name does not."""
    before = record(BASE)

    assert not diff(before, record(f"{BASE} {change}")).same
    assert diff(before, record(f"{BASE} name=other")).same


def test_different_words_for_the_same_requests_are_the_same_load() -> None:
    """A gamma process of CV 1 is Poisson."""
    gamma = BASE.replace("arrivals=poisson", "arrivals=gamma arrivals.cv=1")

    compared = diff(record(BASE), record(gamma))

    assert compared.same
    assert str(compared) == "the loads are the same"


def test_a_difference_is_told_by_its_keys_and_by_what_it_does() -> None:
    """Changed, absent before, absent after; then how the numbers moved."""
    compared = diff(record(f"{BASE} deadline=1s"), record(f"{BASE} prefix.tokens=50".replace("rate=4", "rate=8")))

    assert not compared.same
    assert compared.settings == (
        Difference("arrivals.rate", 4.0, 8.0),
        Difference("deadline", "1s", None),
        Difference("prefix.tokens", None, 50),
    )
    assert {difference.what for difference in compared.measured} >= {"rate", "prompt.mean", "shared_tokens"}
    assert "  arrivals.rate: 4 -> 8\n  deadline: 1s -> absent\n  prefix.tokens: absent -> 50\n" in str(compared)


def test_a_changed_file_is_a_cause_of_its_own(tmp_path: Path) -> None:
    """The load's keys are the same, and it is not."""
    (tmp_path / "x").write_text("time_s,prompt_tokens,output_tokens\n0,5,5\n1,5,5\n")
    before = record("arrivals=trace arrivals.file=x", tmp_path)
    (tmp_path / "x").write_text("time_s,prompt_tokens,output_tokens\n0,5,5\n1,6,5\n")
    compared = diff(before, record("arrivals=trace arrivals.file=x", tmp_path))

    assert (compared.same, compared.settings) == (False, ())
    assert [cause.what for cause in compared.causes] == ["x"]


def test_loads_without_an_end_differ_by_their_duration() -> None:
    """Their requests are the same; how many of them are asked for is not."""
    closed = f"arrivals=closed arrivals.users=2 {LENGTHS}"

    assert not diff(record(f"{closed} duration=1m"), record(f"{closed} duration=2m")).same
    assert diff(record(f"{closed} duration=1m"), record(f"{closed} duration=60s")).same


def test_a_record_survives_a_manifest() -> None:
    """Through JSON and back, it compares as before; a record with a part missing says which."""
    before = record(f"{BASE} classes.a.share=1 sessions.think=uniform sessions.think.min=1s sessions.think.max=2s")

    after = LoadRecord.from_json(json.loads(json.dumps(before.to_json())))

    assert after == before
    assert diff(before, after).same
    with pytest.raises(RecordError, match="the record of a load has no 'fingerprint'"):
        LoadRecord.from_json({"load": {}})
