import dataclasses

from chairlift.lab.client.rows import KINDS as CLIENT_KINDS
from chairlift.records.metrics import METRICS
from chairlift.records.rows import KINDS, field_names
from scripts import document_records as script


def test_the_page_is_up_to_date() -> None:
    """docs/records.md is what the docstrings say now."""
    assert script.TARGET.read_text(encoding="utf-8") == script.page()


def test_the_page_has_every_field_and_metric() -> None:
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
