from typing import Any

from chairlift.records.client_metrics import CLIENT_METRICS
from chairlift.records.client_summary import definitions
from chairlift.records.metrics import METRICS, Metric
from chairlift.records.tools import DEFINITIONS
from scripts import document_metrics as script


def test_the_page_is_up_to_date() -> None:
    """docs/metrics.md is what the definitions say now."""
    assert script.TARGET.read_text(encoding="utf-8") == script.page()


def test_the_page_has_every_definition() -> None:
    """Ours, the engine's and the other tools', each tool with its source."""
    page = script.page()

    tools = DEFINITIONS.values()
    metrics: list[Metric[Any]] = [*CLIENT_METRICS, *METRICS, *(one for tool in tools for one in tool.metrics)]
    for metric in metrics:
        assert f"| `{metric.name}` | {metric.unit} | {metric.starts} | {metric.stops} |" in page
    assert all(f"`{name}`" in page for name in definitions())
    assert all(tool.source in page for tool in tools)
