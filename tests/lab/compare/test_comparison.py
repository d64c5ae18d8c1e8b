from pathlib import Path

import pytest

from chairlift.core.errors import ConfigError
from chairlift.lab.compare.comparison import CompareOptions, Comparison, run_comparison
from chairlift.lab.compare.conclusions import choice, differences, suits
from chairlift.lab.compare.lines import comparison_lines, write
from chairlift.lab.compare.rows import rows
from chairlift.lab.loads.files import load_from_pairs
from chairlift.lab.studies.folder import StudyRecord
from chairlift.lab.studies.study import Study
from tests.lab.sim_subject import sim_study
from tests.lab.subject_making import fake_subject

TAIL = "name=tail arrivals=poisson arrivals.rate=20 count=24 prompt=16 output=bimodal output.short=4 output.long=40"
EVEN = "name=even arrivals=burst arrivals.size=16 prompt=16 output=8"


async def compared(
    study: Study, pairs: str, sizes: tuple[int, ...] = (4,), repeats: int = 2, *, widen: bool = False
) -> Comparison:
    """A comparison of a load given as pairs."""
    options = CompareOptions(repeats=repeats, sizes=sizes, widen=widen)
    return await run_comparison(study, load_from_pairs(pairs.split()), options)


async def test_the_policies_take_turns_on_the_same_draws(tmp_path: Path) -> None:
    """One load a round, alike for all; another one each round; every run is in the study; the order is shuffled."""
    study = sim_study("compare", tmp_path)
    found = await compared(study, f"{TAIL} output.ratio=7:1", repeats=3)

    prints = {policy: [run.load["fingerprint"] for run in runs] for policy, runs in found.runs.items()}
    assert prints["static"] == prints["dynamic"] == prints["continuous"]
    assert len(set(prints["static"])) == 3
    labels = [run.label for run in study.record.runs]
    assert sorted(labels) == sorted(f"{policy} {n}" for policy in found.runs for n in (1, 2, 3))
    orders = [tuple(label.split()[0] for label in labels[3 * n : 3 * n + 3]) for n in range(3)]
    assert len(set(orders)) > 1


async def test_a_closed_policy_gets_the_batch_size_that_is_best_for_it(tmp_path: Path) -> None:
    """Searched once, at the first seed; the search is in the record; the best at the edge is gone beyond."""
    study = sim_study("compare", tmp_path)
    found = await compared(study, EVEN, sizes=(2, 4), repeats=1, widen=True)
    write(study, found)

    tried = [run.label for run in study.record.runs if run.label.startswith("search static")]
    assert tried == ["search static 2", "search static 4", "search static 8", "search static 16"]
    assert {one.policy: one.size for one in found.contenders} == {"static": 16, "dynamic": 16, "continuous": 32}
    search = next(one for one in study.record.tables if one.name == "search")
    chosen = [row[1] for row in search.rows if row[-1] == "yes"]
    assert chosen == [16, 16]


async def test_sizes_that_can_never_fill_are_not_tried(tmp_path: Path) -> None:
    """Six users: batches of eight and sixteen would wait for ever, so the largest is six."""
    study = sim_study("compare", tmp_path)
    load = "name=six arrivals=closed arrivals.users=6 count=12 prompt=16 output=4"
    found = await compared(study, load, sizes=(2, 8, 16), repeats=1, widen=True)

    sizes = {int(run.label.split()[-1]) for run in study.record.runs if run.label.startswith("search static")}
    assert sizes == {2, 6}
    assert any("closed loop of 6 users slows down with the target" in text for text in found.unfair)


async def test_an_offline_load_is_sorted_for_static_alone(tmp_path: Path) -> None:
    """By the answer's bound, which its sender knows; it then has no stragglers to speak of, and the note says so."""
    study = sim_study("compare", tmp_path)
    load = "name=file arrivals=burst arrivals.size=16 prompt=16 output=bimodal output.short=4 output.long=40"
    found = await compared(study, f"{load} output.ratio=1:1 output.order=cycle", repeats=1)
    write(study, found)

    static, dynamic = found.runs["static"][0].engine, found.runs["dynamic"][0].engine
    assert static is not None
    assert dynamic is not None
    assert static.tokens["dead"] == 0
    assert dynamic.tokens["dead"] > 0
    assert any("static got its requests sorted" in note for note in study.record.notes)


async def test_continuous_is_what_a_tail_needs(tmp_path: Path) -> None:
    """More output and shorter waits, outside the noise."""
    found = await compared(sim_study("compare", tmp_path), f"{TAIL} output.ratio=7:1", repeats=3)
    by_name = {(one.figure, one.above, one.below): one for one in differences(found)}
    wait = by_name["time to first token, p50", "continuous", "static"].ratio

    assert wait is not None
    assert wait.finding == "lower"
    assert "better" in str(by_name["time to first token, p50", "continuous", "static"])
    assert choice(found).startswith("continuous is what this load needs")
    assert suits(found)["continuous"].startswith("suits this load")


async def test_static_is_enough_where_nothing_is_to_be_gained(tmp_path: Path) -> None:
    """Equal answers at once: as much output, with fewer settings; and the load is said to hide what there is."""
    found = await compared(sim_study("compare", tmp_path, max_num_seqs=16), EVEN, sizes=(16,))

    assert choice(found).startswith("static is enough for this load")
    assert any("a load of one length hides what scheduling gains" in text for text in found.unfair)
    rate = next(one for one in differences(found) if one.above == "continuous" and one.below == "static")
    assert rate.ratio is not None
    assert rate.ratio.middle == pytest.approx(1, abs=0.05)


async def test_every_cell_is_filled_from_measurements(tmp_path: Path) -> None:
    """All groups are there; where results leave together the time between tokens is not observable, never a zero."""
    found = await compared(sim_study("compare", tmp_path), f"{TAIL} output.ratio=7:1")
    made = {(row.group, row.title): row for row in rows(found)}

    assert {group for group, _ in made} == {
        "granularity", "throughput", "latency", "tail", "memory", "complexity", "waste",
    }  # fmt: skip
    assert made["tail", "time between tokens, p99"].cells[:2] == ("not observable", "not observable")
    assert made["granularity", "who runs is decided anew every"].cells[2] == "1"
    blocks = made["memory", "predicted before: blocks of a batch"].cells
    assert [len(set(cell.split(" / "))) for cell in blocks[:2]] == [1, 1]  # reservations are exact
    assert made["complexity", "settings to choose"].cells == ("2", "3", "7")
    assert all(cell for row in made.values() for cell in row.cells)


async def test_the_study_holds_tables_sentences_and_notes(tmp_path: Path) -> None:
    """And is read back from its folder; the lines for people have the same."""
    study = sim_study("compare", tmp_path)
    found = await compared(study, f"{TAIL} output.ratio=7:1", repeats=1)
    write(study, found)
    study.close()
    record = StudyRecord.read(tmp_path / "study")
    lines = "\n".join(comparison_lines(study, found))

    assert [one.name for one in record.tables] == ["comparison", "rounds", "differences"]
    assert record.sentences[0] == choice(found)
    assert "one round: whether that is more than noise is not known" in " ".join(lines.split())
    assert "batches of 4" in lines
    assert "output" in lines


async def test_a_rate_that_nobody_is_challenged_by_is_pointed_out(tmp_path: Path) -> None:
    """All policies keep up and idle: throughput is the arrivals'."""
    load = "name=calm arrivals=constant arrivals.rate=0.5 count=8 prompt=16 output=4"
    found = await compared(sim_study("compare", tmp_path), load, sizes=(1,), repeats=1)

    assert any("it is the arrivals' rate, not a limit of any policy" in text for text in found.unfair)


async def test_scheduler_time_is_measured_on_a_model(tmp_path: Path) -> None:
    """Microseconds of a step, from the run's own calls made again."""
    study = Study("compare", fake_subject(), tmp_path / "study")
    found = await compared(study, "name=x arrivals=burst arrivals.size=8 prompt=16 output=8", repeats=1)
    row = next(row for row in rows(found) if row.title.startswith("scheduler"))

    assert all(float(cell) > 0 for cell in row.cells)


@pytest.mark.parametrize(("options", "said"), [({"repeats": 0}, "--repeats is 0"), ({"sizes": (0,)}, "--sizes")])
def test_options_that_cannot_be_are_refused(options: dict[str, object], said: str) -> None:
    """With their flags."""
    with pytest.raises(ConfigError, match=said):
        CompareOptions(**options)  # type: ignore[arg-type]


async def test_a_choice_on_one_round_says_that_it_is_none(tmp_path: Path) -> None:
    """And one whose difference is inside the noise says so, with the interval."""
    once = await compared(sim_study("compare", tmp_path / "once"), f"{TAIL} output.ratio=7:1", repeats=1)
    even = await compared(sim_study("compare", tmp_path / "even", max_num_seqs=16), EVEN, sizes=(16,), repeats=2)

    assert choice(once).endswith("One round cannot tell that from noise: repeat it (--repeats).")
    assert "is inside the noise: 1.0" in choice(even)
