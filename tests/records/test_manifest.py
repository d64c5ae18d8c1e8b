import json
import re
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


@pytest.mark.parametrize("text", ["{", "[]", '{"source": "engine"}', "7"])
def test_a_damaged_one_is_named(text: str, tmp_path: Path) -> None:
    """No JSON, no object, or a field missing."""
    (tmp_path / MANIFEST).write_text(text)

    with pytest.raises(RecordError, match="cannot be read"):
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
