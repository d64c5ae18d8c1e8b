"""Everything that docs/loads.md shows is done here."""

import re
import shutil
from dataclasses import fields, is_dataclass
from itertools import islice
from pathlib import Path
from typing import Any, get_args

import pytest

from chairlift.lab.loads.arrivals import Arrivals
from chairlift.lab.loads.describe import describe
from chairlift.lab.loads.files import load_from_pairs, read_load, read_table
from chairlift.lab.loads.lengths import Lengths
from chairlift.lab.loads.load import Load, RequestClass
from chairlift.lab.loads.schedule import Schedule
from chairlift.lab.loads.traces.formats import FORMATS
from tests.lab.loads.making import FIXTURES

TEXT = (Path(__file__).parents[3] / "docs" / "loads.md").read_text(encoding="utf-8")
BLOCKS: list[tuple[str, str]] = re.findall(r"^```(\w+)\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
NAMED = {first: content for _, content in BLOCKS if (first := content.partition("\n")[0]).startswith("# ")}


def blocks(language: str) -> list[str]:
    """Contents of all blocks in a language."""
    return [content for found, content in BLOCKS if found == language]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the files that the page shows, and excerpts of the traces that it names; the current one."""
    for name in ("AzureLLMInferenceTrace_conv.csv", "mooncake_conversation_trace.jsonl"):
        shutil.copy(FIXTURES / name, tmp_path / name)
    for title, content in NAMED.items():
        (tmp_path / title.removeprefix("# ")).write_text(content, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("name", [title.removeprefix("# ") for title in NAMED if title.endswith(".toml")])
def test_every_file_on_the_page_is_a_load(folder: Path, name: str) -> None:
    """It is read, described, and has requests; written down again it is the same."""
    load = read_load(folder / name)
    schedule = Schedule(load, count_tokens=lambda text: len(text.split()))

    assert list(islice(schedule, 5))
    assert describe(schedule).table()
    assert read_table(load.to_table()) == load


def test_every_block_of_toml_and_data_has_a_name() -> None:
    """So that none is left out of these tests."""
    assert len(NAMED) == len([language for language, _ in BLOCKS if language in {"toml", "csv", "jsonl"}])


@pytest.mark.parametrize("number", range(len(blocks("pairs"))))
def test_every_line_of_pairs_is_a_load(number: int) -> None:
    """It is read, and has requests."""
    schedule = Schedule(load_from_pairs(blocks("pairs")[number].split()))

    assert list(islice(schedule, 5))
    assert describe(schedule).table()


def test_the_first_pairs_say_what_the_first_file_says(folder: Path) -> None:
    """The page calls them the same load."""
    by_file, by_pairs = read_load(folder / "chat.toml"), load_from_pairs(blocks("pairs")[0].split())

    assert by_file.to_table() | {"name": ""} == by_pairs.to_table() | {"name": ""}


def test_the_description_shown_is_the_first_files(folder: Path) -> None:
    """To the character."""
    assert blocks("output") == [describe(Schedule(read_load(folder / "chat.toml"))).table() + "\n"]


@pytest.mark.parametrize("number", range(len(blocks("python"))))
def test_the_python_on_the_page_runs(folder: Path, number: int, capsys: pytest.CaptureFixture[str]) -> None:
    """With its own assertions."""
    exec(compile(blocks("python")[number], "docs/loads.md", "exec"), {})

    if number == 0:
        assert "arrivals.rate: 4 -> 8" in capsys.readouterr().out


def test_every_key_kind_and_format_is_on_the_page() -> None:
    """Nothing that can be written is left unsaid."""
    kinds: list[Any] = [*get_args(Arrivals), *get_args(Lengths)]
    said = {word for code in re.findall(r"`([^`\n]+)`", TEXT) for word in re.findall(r"[\w-]+", code)}
    said |= {word for _, content in BLOCKS for word in re.findall(r"[\w-]+", content)}

    for kind in kinds:
        assert kind.KIND in said
        assert {field.name for field in fields(kind)} <= said
    for table in (Load, RequestClass):
        assert is_dataclass(table)
        assert {field.name for field in fields(table) if field.compare} <= said
    assert set(FORMATS) <= said
