import json
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chairlift.core.errors import RecordError
from chairlift.lab.studies.folder import (
    STUDY,
    Column,
    StudyFolder,
    StudyRecord,
    StudyRun,
    Table,
    Verdict,
    new_record,
    table,
)

COLUMNS = (Column("users"), Column("rate", "tokens/s", "output"))


def study(folder: Path) -> StudyFolder:
    """A study with one of everything."""
    store = StudyFolder(folder, new_record("sweep", "sim:toy", quick=True))
    store.record.runs.append(StudyRun("01-two-users", "2 users", "continuous", {"max_num_seqs": 2}))
    store.record.tables.append(table("curve", "A curve.", COLUMNS, [(1, 40.0), (2, None)], x="users", y="rate"))
    store.record.sentences.append("It rises.")
    store.record.verdicts.append(Verdict("Too few.", "2 of 8", "--max-num-seqs", 2, 8))
    store.record.notes.append("One round.")
    store.record.definitions["rate"] = "output over time"
    return store


def test_a_study_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    """Runs, tables, sentences, verdicts, notes, definitions."""
    store = study(tmp_path / "new" / "study")
    store.save()

    assert StudyRecord.read(store.folder) == store.record
    assert store.record.tables[0].column("rate") == [40.0, None]


def test_the_file_has_the_words_that_its_page_promises(tmp_path: Path) -> None:
    """Plain JSON; a verdict's values are called from and to."""
    store = study(tmp_path)
    store.save()
    told = json.loads((tmp_path / STUDY).read_text())

    assert told["schema"] == 1
    assert {"name", "target", "started", "runs", "tables", "sentences", "verdicts", "definitions"} <= told.keys()
    assert told["verdicts"] == [
        {"verdict": "Too few.", "evidence": "2 of 8", "setting": "--max-num-seqs", "from": 2, "to": 8}
    ]
    assert told["tables"][0]["columns"][1] == {"name": "rate", "unit": "tokens/s", "label": "output"}
    assert told["tables"][0]["rows"] == [[1, 40.0], [2, None]]
    assert told["tables"][0]["series"] is None


def test_a_study_is_not_written_over(tmp_path: Path) -> None:
    """The way out is another folder."""
    study(tmp_path)

    with pytest.raises(RecordError, match="holds a study already: name another folder with --out"):
        study(tmp_path)


def test_folders_of_runs_are_numbered_and_named_after_their_labels(tmp_path: Path) -> None:
    """In the order in which they ran."""
    assert study(tmp_path).next_run("dynamic, batches of 4").name == "02-dynamic--batches-of-4"


@pytest.mark.parametrize(
    "content", ["", "{}", '{"schema": 1, "nonsense": 2, "verdicts": [], "runs": [], "tables": []}']
)
def test_what_is_no_study_is_said_to_be_none(content: str, tmp_path: Path) -> None:
    """Damaged, or not there."""
    with pytest.raises(RecordError, match=r"is no study: it has no study\.json"):
        StudyRecord.read(tmp_path)
    (tmp_path / STUDY).write_text(content)
    with pytest.raises(RecordError, match="cannot be read"):
        StudyRecord.read(tmp_path)


def test_a_newer_schema_is_refused(tmp_path: Path) -> None:
    """With both numbers."""
    (tmp_path / STUDY).write_text('{"schema": 9}')

    with pytest.raises(RecordError, match="is of schema 9; this version of Chairlift reads up to 1"):
        StudyRecord.read(tmp_path)


def test_a_table_that_does_not_fit_its_columns_is_a_mistake() -> None:
    """A row too short, or a chart of a column that is not there."""
    with pytest.raises(ValueError, match="1 cells for 2 columns"):
        table("t", "T.", COLUMNS, [(1,)])
    with pytest.raises(ValueError, match="y is 'speed'; there are users, rate"):
        table("t", "T.", COLUMNS, [], y="speed")


cells = (
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text()
)
tables = st.builds(
    lambda rows: table("t", "T.", COLUMNS, rows, x="users"), st.lists(st.tuples(cells, cells), max_size=4)
)
verdicts = st.builds(Verdict, st.text(), st.text(), st.none() | st.text(), cells, cells)


@given(st.lists(tables, max_size=2), st.lists(verdicts, max_size=3), st.lists(st.text(), max_size=3))
def test_whatever_is_found_survives_the_file(many: list[Table], found: list[Verdict], said: list[str]) -> None:
    """Any words, any numbers, and nothing where nothing is known."""
    record = new_record("t", "m", quick=False)
    record.tables, record.verdicts, record.sentences = many, found, said
    with TemporaryDirectory() as folder:
        StudyFolder(Path(folder), record)

        assert StudyRecord.read(Path(folder)) == record
