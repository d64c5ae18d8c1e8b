import dataclasses
import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from chairlift.lab.client.rows import KINDS as CLIENT_KINDS
from chairlift.records.metrics import METRICS
from chairlift.records.rows import KINDS, field_names

SCRIPT = Path(__file__).parents[2] / "scripts" / "document_records.py"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    """The script as a module."""
    spec = importlib.util.spec_from_file_location("document_records", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_is_up_to_date(script: ModuleType) -> None:
    """docs/records.md is what the docstrings say now."""
    assert script.TARGET.read_text(encoding="utf-8") == script.page()


def test_the_page_has_every_field_and_metric(script: ModuleType) -> None:
    """Each is there with words of its own."""
    page = script.page()

    for kind in KINDS.values():
        for name in field_names(kind):
            row = next(line for line in page.splitlines() if line.startswith(f"| `{name}` "))
            assert len(row.split(" | ")[2]) > 5, name
    for client_kind in CLIENT_KINDS.values():
        assert all(f"| `{field.name}` | " in page for field in dataclasses.fields(client_kind))
    for metric in METRICS:
        assert f"| `{metric.name}` |" in page
