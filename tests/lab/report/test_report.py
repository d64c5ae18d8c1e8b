import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from chairlift.core.config import POLICIES
from chairlift.core.errors import ConfigError, RecordError
from chairlift.lab.report.report import Options, Report, write_report
from chairlift.lab.report.sources import open_source
from chairlift.lab.runs.store import RunStore
from chairlift.lab.studies.folder import Column, StudyFolder, StudyRun, Verdict, new_record, table
from tests.lab.report.making import engine_run, staggered
from tests.lab.runs.making import write_run
from tests.lab.runs.test_bench import bench
from tests.sim.helpers import SECOND


class Page(HTMLParser):
    """What a page loads, and whether its elements are closed in order."""

    LOADING = frozenset({"src", "href", "xlink:href", "data", "action", "srcset", "poster"})
    EMPTY = frozenset({"meta", "br", "img", "link", "input", "hr"})

    def __init__(self, text: str) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.scripts = 0
        self.words: list[str] = []
        self.ids: list[str] = []
        self.open: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in self.EMPTY:
            self.open.append(tag)
        self.scripts += tag == "script"
        for name, value in attrs:
            self.loads += [value or ""] if name in self.LOADING else []
            self.ids += [value or ""] if name == "id" else []

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] not in {"style", "script"}:
            self.words.append(data)


def report_of(*runs: Path, out: Path, options: Options | None = None) -> tuple[Report, Page, str]:
    """Write a report, and read its page."""
    report = write_report(open_source([str(run) for run in runs], RunStore(out)), out, options)
    text = report.page.read_text(encoding="utf-8")
    return report, Page(text), text


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> tuple[Report, Page, str]:
    """The three policies on one load."""
    folder = tmp_path_factory.mktemp("three")
    runs = [engine_run(folder / policy, policy, staggered(16)) for policy in POLICIES]
    return report_of(*runs, out=folder / "report")


def test_a_page_loads_nothing(three: tuple[Report, Page, str]) -> None:
    """No script, no address, no style from elsewhere: only names of namespaces look like addresses."""
    _, page, text = three

    assert page.scripts == 0
    assert page.loads == []
    assert page.open == []
    assert "@import" not in text
    assert set(re.findall(r"url\(([^)#]*)", text)) <= {""}
    assert set(re.findall(r"https?://[^\s\"'<]+", text)) <= {
        "http://www.w3.org/2000/svg",
        "http://www.w3.org/1999/xlink",
    }


def test_ids_are_unique_and_patterns_are_there(three: tuple[Report, Page, str]) -> None:
    """Of two pictures on a page neither has the other's patterns."""
    _, page, text = three

    assert len(page.ids) == len(set(page.ids))
    assert set(re.findall(r"url\(#([^)]+)\)", text)) <= set(page.ids)
    assert re.search(r"url\(#slots-p-dead\)", text)


def test_pictures_lie_beside_the_page(three: tuple[Report, Page, str]) -> None:
    """As PNG, each of a size that can be seen."""
    report, _, _ = three

    assert {path.stem for path in report.pictures} >= {"slots", "ledger", "percentiles", "cdf", "queue", "kv"}
    for path in report.pictures:
        head = path.read_bytes()[:24]
        assert head.startswith(b"\x89PNG")
        width, height = int.from_bytes(head[16:20], "big"), int.from_bytes(head[20:24], "big")
        assert width > 1500
        assert height > 200


def test_the_page_says_what_was_run_and_what_came_of_it(three: tuple[Report, Page, str]) -> None:
    """The main sentence with figures, the table, machine and versions, a warning about chance, definitions."""
    report, page, _ = three
    words = " ".join(" ".join(page.words).split())

    assert "16 requests of the load 'staggered', put to each of static, dynamic and continuous." in words
    assert re.search(r"Continuous gave [\d.]+ output tokens/s, [\d.]+ times as many as (static|dynamic)", words)
    for part in ("Main figures", "Slots over time", "Where the time went", "Latencies", "Queue and KV cache",
                 "What was run", "What the figures mean", "machine.processor", "version.numpy", "max_num_seqs",
                 "not observable"):  # fmt: skip
        assert part in words, part
    assert any("may be chance" in one for one in report.cautions)
    assert not report.wrong


def test_the_picture_has_the_steps_tokens(three: tuple[Report, Page, str]) -> None:
    """What the page draws of a whole run, counted from its cells, is what the books say."""
    report, _, text = three

    assert report.slots[0].tokens["continuous"]["decode"] == report.slots[0].tokens["static"]["decode"] > 0
    assert text.count('class="cells"') >= 6


def test_a_part_of_the_run_may_be_asked_for(tmp_path: Path) -> None:
    """It is said which, and a closer look is left out."""
    run = engine_run(tmp_path / "run", "continuous", staggered(12))
    report, page, _ = report_of(run, out=tmp_path / "report", options=Options(SECOND, 2 * SECOND))

    assert [(one.start, one.stop) for one in report.slots] == [(SECOND, 2 * SECOND)]
    assert any("begin from 1.00 to 2.00 s" in words for words in page.words)
    with pytest.raises(ConfigError, match="nothing between them"):
        report_of(run, out=tmp_path / "report", options=Options(2 * SECOND, SECOND))


def test_a_page_depends_on_the_records_alone(tmp_path: Path) -> None:
    """Written again it is the same to the letter, dark pictures or not: those alone differ."""
    run = engine_run(tmp_path / "run", "continuous", staggered(4))
    light, _, page = report_of(run, out=tmp_path / "light")
    dark, _, same = report_of(run, out=tmp_path / "dark", options=Options(theme="dark"))

    assert page == same
    assert light.pictures[0].read_bytes() != dark.pictures[0].read_bytes()


def test_a_servers_run_has_what_a_client_saw(tmp_path: Path) -> None:
    """No slots and no ledger, and the page says what the server kept to itself."""
    run = write_run(tmp_path / "run").folder
    report, page, _ = report_of(run, out=tmp_path / "report")
    words = " ".join(page.words)

    assert {path.stem for path in report.pictures} == {"percentiles", "cdf"}
    assert "As the client saw them." in words
    assert "the server does not say how many wait" in words
    assert "not told" in words


async def test_a_models_run_has_what_client_and_engine_saw(tmp_path: Path) -> None:
    """The engine's records lie beside the client's: slots and ledger from those, latencies from these."""
    await bench(tmp_path / "run").run()
    report, page, _ = report_of(tmp_path / "run", out=tmp_path / "report")
    words = " ".join(page.words)

    assert {"slots", "ledger", "percentiles", "cdf", "queue", "kv"} <= {path.stem for path in report.pictures}
    assert report.slots[0].tokens["continuous"]["prefill"] == 6 * 40
    assert report.slots[0].tokens["continuous"]["decode"] == 6 * 4
    assert "As the client saw them." in words
    assert "six, continuous" in words


def test_runs_of_different_loads_have_pictures_of_their_own(tmp_path: Path) -> None:
    """And that is wrong enough to be said, on top and by the exit code."""
    runs = [engine_run(tmp_path / name, "continuous", staggered(4), load=name) for name in ("one", "other")]
    report, page, _ = report_of(*runs, out=tmp_path / "report")

    assert report.wrong
    assert "different loads" in report.cautions[0]
    assert {"slots-1", "slots-2"} <= set(page.ids)


def test_what_is_wrong_with_a_run_is_said(tmp_path: Path) -> None:
    """A client that was the bottleneck, a run that was not stationary, one that was broken off."""
    results = {"summary": {"steady": {"stationary": False}, "requests": {"errors": {"timeout": 1}, "refused": 2}},
               "client": {"bottleneck": True, "reasons": ["send_lag_p99"]}, "stopped": True}  # fmt: skip
    report, _, _ = report_of(write_run(tmp_path / "run", results=results).folder, out=tmp_path / "report")
    told = " ".join(report.cautions)

    assert report.wrong
    for words in ("did not come to its end", "2 traces cannot be", "bottleneck (send_lag_p99)", "not stationary"):
        assert words in told


def test_a_study_is_shown_with_its_findings(tmp_path: Path) -> None:
    """Sentences, verdicts with their settings, tables as charts, definitions, notes."""
    record = new_record("mixed", "fake <model>", quick=True)
    study = StudyFolder(tmp_path / "study", record)
    for policy in POLICIES[:2]:
        engine_run(study.folder / policy, policy, staggered(8))
        record.runs.append(StudyRun(policy, f"1:5, {policy}", policy, {}))
    columns = [Column("users"), Column("rate", "tokens/s", "output")]
    record.tables.append(table("curve", "The curve. In words.", columns, [[1, 10.0], [4, 30.0]], x="users", y="rate"))
    record.sentences.append("more users gave more.")
    record.verdicts.append(Verdict("Batches leave small.", "2.1 of 8 rows.", "--max-queue-delay", "0 s", "50 ms"))
    record.notes.append("one run each.")
    record.definitions["bend"] = "Where more users give no more."
    record.status = "complete"
    study.save()
    report, page, _ = report_of(study.folder, out=tmp_path / "report")
    words = " ".join(" ".join(page.words).split())

    assert report.lead == ("More users gave more.",)
    assert report.cautions[0] == "One run each."
    change = "Change --max-queue-delay from 0 s to 50 ms"
    parts = ["Study: mixed, fake <model>", "Batches leave small.", "2.1 of 8 rows.", change, "The curve", "In words."]
    for part in (*parts, "bend", "Slots over time", "All runs"):
        assert part in words, part
    assert "table-curve" in page.ids
    assert not report.wrong


def test_a_report_without_runs_is_refused(tmp_path: Path) -> None:
    """With what became of them."""
    record = new_record("mixed", "fake", quick=True)
    record.runs.append(StudyRun("gone", "a run", None, {}))
    study = StudyFolder(tmp_path / "study", record)
    study.save()

    with pytest.raises(RecordError, match=r"no run that can be read: a run: .*gone is no run"):
        report_of(study.folder, out=tmp_path / "report")


def test_a_folder_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    """With the way out."""
    run = engine_run(tmp_path / "run", "continuous", staggered(2))
    (tmp_path / "file").write_text("in the way")

    with pytest.raises(RecordError, match="name another folder with --out"):
        report_of(run, out=tmp_path / "file" / "report")


def test_an_earlier_reports_pictures_are_replaced(tmp_path: Path) -> None:
    """Those that the page had; other files are left alone."""
    run = engine_run(tmp_path / "run", "continuous", staggered(24))
    out = tmp_path / "report"
    before, _, _ = report_of(run, out=out)
    (out / "mine.png").write_bytes(b"")
    after, _, _ = report_of(run, out=out, options=Options(SECOND, 2 * SECOND))

    assert {path.stem for path in before.pictures} - {path.stem for path in after.pictures} == {"slots-close"}
    assert {path.name for path in out.iterdir()} == {path.name for path in (*after.pictures, after.page)} | {"mine.png"}


def test_a_page_of_a_long_run_stays_small(tmp_path: Path) -> None:
    """Under five megabytes, asked for as a whole."""
    run = engine_run(tmp_path / "long", "continuous", staggered(500, gap=SECOND // 10), jump=True)
    report, _, text = report_of(run, out=tmp_path / "report", options=Options(stop=900 * SECOND))

    assert sum(report.slots[0].steps.values()) > 1000
    assert len(text) < 2_000_000
