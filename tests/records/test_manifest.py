import json
import re
from dataclasses import fields
from pathlib import Path

import pytest

from chairlift.core.errors import RecordError
from chairlift.records.manifest import MANIFEST, Manifest, machine, versions
from chairlift.records.schema import SCHEMA_VERSION
from tests.records.samples import manifest


def test_it_reads_what_it_wrote(tmp_path: Path) -> None:
    """All of it, and nothing else lies in the folder afterwards."""
    written = manifest(model={"name": "m", "layers": 30}, load={"seed": 7}, machine=machine(), versions=versions())

    written.write(tmp_path)

    assert Manifest.read(tmp_path) == written
    assert [path.name for path in tmp_path.iterdir()] == [MANIFEST]


def test_a_folder_without_one_is_no_run(tmp_path: Path) -> None:
    """The message has the folder."""
    with pytest.raises(RecordError, match=f"{re.escape(str(tmp_path))} is no run"):
        Manifest.read(tmp_path)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "it is no JSON"),
        ("{", "it is no JSON"),
        ("[" * 100_000, "it is no JSON"),
        ("[]", "it holds no JSON object"),
        ("7", "it holds no JSON object"),
        ('{"source": "engine"}', "it has no started"),
    ],
)
def test_a_damaged_one_is_named(text: str, why: str, tmp_path: Path) -> None:
    """No JSON, no object, or a field missing; in words of the file, not of the program."""
    (tmp_path / MANIFEST).write_text(text)

    with pytest.raises(RecordError, match=f"{MANIFEST} is damaged: {why}"):
        Manifest.read(tmp_path)


@pytest.mark.parametrize("name", [one.name for one in fields(Manifest)])
@pytest.mark.parametrize("value", [None, True, [1]])
def test_every_field_is_of_its_kind(name: str, value: object, tmp_path: Path) -> None:
    """Whoever reads a manifest may rely on it: a field of another kind is damage, and is named with its value."""
    manifest().write(tmp_path)
    raw = json.loads((tmp_path / MANIFEST).read_text())
    (tmp_path / MANIFEST).write_text(json.dumps({**raw, name: value}))

    if name == "client_schema" and value is None:
        assert Manifest.read(tmp_path).client_schema is None
        return
    with pytest.raises(RecordError, match=re.escape(f"is damaged: {name} is {value!r}; it must be ")):
        Manifest.read(tmp_path)


def test_a_status_that_is_none_is_damage(tmp_path: Path) -> None:
    """There are two."""
    manifest().write(tmp_path)
    raw = json.loads((tmp_path / MANIFEST).read_text())
    (tmp_path / MANIFEST).write_text(json.dumps({**raw, "status": "done"}))

    with pytest.raises(RecordError, match="status is 'done'"):
        Manifest.read(tmp_path)


def test_a_newer_schema_is_refused(tmp_path: Path) -> None:
    """Records whose fields may mean something else are not read on a guess."""
    manifest(schema=SCHEMA_VERSION + 1).write(tmp_path)

    with pytest.raises(RecordError, match="upgrade"):
        Manifest.read(tmp_path)


def test_what_a_newer_writer_adds_is_passed_over(tmp_path: Path) -> None:
    """A new field alone does not make a run unreadable."""
    manifest().write(tmp_path)
    raw = json.loads((tmp_path / MANIFEST).read_text())
    (tmp_path / MANIFEST).write_text(json.dumps({**raw, "weather": "fine"}))

    assert Manifest.read(tmp_path) == manifest()


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    """The system's own words come with it."""
    with pytest.raises(RecordError, match=r"manifest\.json cannot be written"):
        manifest().write(tmp_path / "missing")


def test_the_machine_is_described_from_its_files(tmp_path: Path) -> None:
    """Processor and memory come from /proc; where that is missing, what Python knows."""
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/cpuinfo").write_text("vendor_id\t: x\nmodel name\t: Fast CPU 9000\n")
    (tmp_path / "proc/meminfo").write_text("MemTotal:       1024 kB\nMemFree: 1 kB\n")

    facts = machine(tmp_path)

    assert (facts["processor"], facts["memory"]) == ("Fast CPU 9000", "1024 kB")
    assert facts["cpus"] >= 1
    assert machine(tmp_path / "missing")["memory"] == ""


def test_versions_are_of_what_is_installed() -> None:
    """Packages that are not there are left out."""
    assert set(versions(("numpy", "no-such-package"))) == {"numpy"}
