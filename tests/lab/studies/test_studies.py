"""Every study from beginning to end on the toy device, and what it must find there."""

from pathlib import Path
from typing import Any

import pytest

from chairlift.core.errors import ConfigError
from chairlift.devices.model import StepTerms
from chairlift.devices.quantities import PER_NANOSECOND
from chairlift.lab.studies.catalogue import CATALOGUE
from chairlift.lab.studies.folder import StudyRecord, Table
from chairlift.lab.studies.myths import bigger_is_better
from chairlift.lab.studies.parameters import _memory_share, judge
from chairlift.lab.studies.study import Study
from chairlift.lab.studies.text import study_lines
from chairlift.lab.subjects import ServerSubject, SimulatedSubject
from chairlift.lab.targets.url import UrlTarget
from tests.devices.helpers import MEMORY
from tests.lab.sim_subject import sim_subject


async def studied(name: str, folder: Path, **settings: Any) -> StudyRecord:
    """A quick study, read back from its folder."""
    study = Study(name, sim_subject(folder, **settings), folder / "study", quick=True)
    await CATALOGUE[name].run(study)
    study.close()
    record = StudyRecord.read(folder / "study")
    assert record.status == "complete"
    assert record.sentences
    assert list(study_lines(record))
    assert all((folder / "study" / run.folder / "manifest.json").is_file() for run in record.runs)
    return record


def named(record: StudyRecord, name: str) -> Table:
    """One of its tables."""
    return next(one for one in record.tables if one.name == name)


async def test_baseline_is_ten_equal_requests(tmp_path: Path) -> None:
    """A prompt of 64 ms and steps of 20 ms: the two figures that all others are compared with."""
    record = await studied("baseline", tmp_path)

    assert named(record, "requests").column("request") == list(range(1, 11))
    assert named(record, "requests").column("ttft") == [pytest.approx(0.064, rel=0.01)] * 10
    assert record.sentences[0].startswith("Alone, a request waits 64")
    assert "20.1 ms for each further one" in record.sentences[0]
    assert record.verdicts == []


async def test_uniform_finds_the_limit_that_holds_output_back(tmp_path: Path) -> None:
    """With one slot eight users get no more than one; the setting is named. Without the limit nothing is."""
    held = await studied("uniform", tmp_path / "held", max_num_seqs=1)
    free = await studied("uniform", tmp_path / "free")

    assert [one.setting for one in held.verdicts] == ["--max-num-seqs"]
    assert free.verdicts == []
    rates = named(free, "concurrency").column("rate")
    assert rates == sorted(rates, key=lambda rate: float(rate or 0))


async def test_uniform_lowers_a_batch_that_its_users_never_fill(tmp_path: Path) -> None:
    """Under static batches of eight, one user would wait for ever."""
    record = await studied("uniform", tmp_path, policy="static", batch_size=8)

    assert [run.settings.get("batch_size") for run in record.runs] == [1, 4, None]


async def test_mixed_shows_who_waits_for_whom(tmp_path: Path) -> None:
    """Under closed batches the short answers end with the long ones, under continuous before them."""
    record = await studied("mixed", tmp_path)
    ends = named(record, "finish")
    by_policy: dict[str, list[float]] = {name: [] for name in ("static", "dynamic", "continuous")}
    for policy, _, end in ends.rows:
        by_policy[str(policy)].append(float(end or 0))

    assert len(set(by_policy["static"])) == 1
    assert by_policy["continuous"][3] < by_policy["continuous"][4] / 2
    assert any("static batching does not fit this load" in text for text in record.sentences)
    assert record.verdicts == []  # it runs under continuous


async def test_mixed_gives_its_verdict_to_whoever_runs_static(tmp_path: Path) -> None:
    """The user's own policy is the one to change."""
    record = await studied("mixed", tmp_path, policy="static")

    assert [(one.setting, one.before, one.after) for one in record.verdicts] == [("--policy", "static", "continuous")]


async def test_burst_finds_a_pool_that_is_short(tmp_path: Path) -> None:
    """Fifty at once on forty blocks: preemptions, and a larger pool to try."""
    record = await studied("burst", tmp_path, num_kv_blocks=40, max_model_len=128)

    assert named(record, "policies").column("waiting")[0] == 42
    assert "--num-kv-blocks" in [one.setting for one in record.verdicts]
    assert sum("150 of 150 answered" in text for text in record.sentences) == 3


async def test_a_burst_that_takes_the_last_of_the_memory_is_told(tmp_path: Path) -> None:
    """A share of 0.99 starts well, and fails at the first large step: the numbers, and the share to try."""
    subject = sim_subject(tmp_path, device={"memory": MEMORY}, gpu_memory_utilization=0.99, num_kv_blocks=None)
    study = Study("burst", subject, tmp_path / "study", quick=True)
    await CATALOGUE["burst"].run(study)
    [found] = study.record.verdicts

    assert (found.setting, found.before, found.after) == ("--gpu-memory-utilization", 0.99, 0.94)
    assert "activations" in found.evidence


async def test_sweep_marks_the_bend_and_the_gain_follows_the_variance(tmp_path: Path) -> None:
    """The toy device is flat up to twenty tokens a step: its curve bends there. Equal answers gain nothing."""
    record = await studied("sweep", tmp_path)
    curve, gains = named(record, "concurrency"), named(record, "variance")

    marked = [row[0] for row in curve.rows if row[-1]]
    assert marked == [8]
    assert (curve.x, curve.y, gains.series, gains.low) == ("users", "rate", "over", "low")
    static = [float(row[3] or 0) for row in gains.rows if row[2] == "static"]
    assert static[0] == pytest.approx(1, abs=0.02)
    assert static[-1] > 1.3
    assert any(text.startswith("It bends at 8") for text in record.sentences)


async def test_myths_are_completed_by_the_numbers(tmp_path: Path) -> None:
    """On this device all four are wrong; each sentence has its ratio and its interval."""
    record = await studied("myths", tmp_path)

    assert len(record.sentences) == 4
    assert "no gain" in record.sentences[0]
    assert all("times [" in text for text in record.sentences)
    assert "the tail does" in record.sentences[2]
    assert "hides it" in record.sentences[3]
    assert len(named(record, "myths").rows) == 7


async def test_a_myth_that_the_numbers_bear_out_is_not_called_wrong(tmp_path: Path) -> None:
    """On a device whose steps cost the same whatever is in them, sixty-four at once are simply better."""
    flat = {"step": StepTerms(floor=20_000_000 * PER_NANOSECOND)}
    study = Study("myths", sim_subject(tmp_path, device=flat), tmp_path / "study", quick=True)
    await bigger_is_better(study)

    assert "does not show the myth to be wrong" in study.record.sentences[0]


async def test_parameters_are_judged_by_what_happened(tmp_path: Path) -> None:
    """Each flag has a value that is too low or too high here, by its figures or by its refusal."""
    record = await studied("parameters", tmp_path, max_num_batched_tokens=512)
    rows = [(str(row[0]), str(row[1]), str(row[-2])) for row in named(record, "parameters").rows]

    assert ("--max-num-seqs", "2", "too low") in rows
    assert ("--max-num-batched-tokens", "448", "too high") in rows
    assert ("--max-model-len", "128", "too low") in rows
    assert ("--max-model-len", "1024, reserved whole", "too high") in rows
    assert ("--num-kv-blocks", "256 tokens", "too low") in rows
    refused = next(row for row in named(record, "parameters").rows if row[:2] == ("--max-model-len", "128"))
    assert refused[-3] == 3
    assert "272 tokens" in str(refused[-1])
    partial = named(record, "partial").column("rate")
    assert partial == sorted(partial, key=lambda rate: float(rate or 0))


async def test_the_share_of_memory_is_tried_until_it_fails(tmp_path: Path) -> None:
    """Too low at the start, since the weights do not fit; too high in the middle, at the first large step."""
    study = Study("parameters", SimulatedSubject("sim:h100-sxm/llama-3.1-8b"), tmp_path / "study", quick=True)
    study.at_most(1024)
    low, high = await _memory_share(study)

    assert (judge(low, None), judge(high, None)) == ("too low", "too high")
    assert "of weights" in low.happened
    assert "for activations" in high.happened
    assert "Lower --gpu-memory-utilization" in high.happened


async def test_the_ladder_stops_where_it_bends_and_shortens_the_tail(tmp_path: Path) -> None:
    """One alone, then more until the bend, then a smaller step where long prompts stall the others."""
    record = await studied("ladder", tmp_path, max_num_batched_tokens=1024)

    assert named(record, "climb").column("users") == [1, 2, 4, 8, 16, 32]
    changes = {one.setting: (one.before, one.after) for one in record.verdicts}
    assert changes["--max-num-seqs"] == (32, 8)
    assert float(changes["--max-num-batched-tokens"][1] or 0) < 1024
    tails = named(record, "tail").column("tail")
    assert float(tails[-1] or 0) < float(tails[0] or 0)
    assert [text.split(":")[0] for text in record.sentences[:3]] == ["Rung 1", "Rung 2", "Rung 3"]


async def test_the_ladder_warns_of_both_maxima_at_once(tmp_path: Path) -> None:
    """Thirty-two sequences of a thousand tokens do not fit in 512 blocks."""
    record = await studied("ladder", tmp_path)

    assert any("together ask for 32,768 tokens of KV cache" in note for note in record.notes)


@pytest.mark.parametrize("name", ["myths", "parameters"])
async def test_what_needs_settings_is_refused_on_a_server(name: str, tmp_path: Path) -> None:
    """With the way out, and before anything is sent."""
    subject = ServerSubject("http://host:8000", lambda: UrlTarget("http://host:8000"))
    study = Study(name, subject, tmp_path / "study", quick=True)

    with pytest.raises(ConfigError, match=r"give the model itself as TARGET, or sim:DEVICE/MODEL"):
        await CATALOGUE[name].run(study)
