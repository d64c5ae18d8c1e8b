"""Write docs/metrics.md from the definitions of the metrics.

python scripts/document_metrics.py           write it
python scripts/document_metrics.py --check   exit 1 if it is out of date
"""

from __future__ import annotations

import argparse
import inspect
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from chairlift.records import client_metrics, tools
from chairlift.records.client_metrics import CLIENT_METRICS
from chairlift.records.client_summary import definitions
from chairlift.records.metrics import METRICS, Metric
from chairlift.records.usage import USAGE_DEFINITIONS

TARGET = Path(__file__).parents[1] / "docs" / "metrics.md"

INTRODUCTION = """\
# Metrics

Written by `scripts/document_metrics.py` from the definitions in `src/chairlift/records/`; change those, not this page.
`chairlift bench`, `chairlift runs` and `chairlift diff` print the same words with `--definitions`, and every run keeps
them in its manifest beside its figures.

Percentiles are p50, p90, p95, p99 and p99.9, beside mean and maximum, interpolated linearly between ranks. Failures are
counted by class beside the figures. A trace that cannot be (moments out of order, a first token in no time, negative
counts, more tokens in chunks than the target says it generated) is refused and named, and a rate of nothing is none,
not zero.
"""


def page() -> str:
    """The whole page."""
    words = "\n\n".join(" ".join(part.split()) for part in _paragraphs(client_metrics)[1:2])
    head, *items = _paragraphs(client_metrics)[2].splitlines()
    unseen = "\n".join([f"{head}:", "", *(item.removeprefix("    ") for item in items)])
    parts = [INTRODUCTION, "## What a client measures\n", _table(CLIENT_METRICS), f"{words}\n\n{unseen}\n"]
    parts += ["## Counts, goodput, steady state\n", _words()]
    parts += ["## What the engine measures of itself\n", _table(METRICS)]
    parts.append("\n".join(f"- `{name}`: {words}" for name, words in USAGE_DEFINITIONS.items()) + "\n")
    parts += ["## The same run in other tools' words\n", " ".join(_paragraphs(tools)[1].split()) + "\n"]
    for tool in tools.DEFINITIONS.values():
        parts += [f"### `--as {tool.name}`\n", _table(tool.metrics)]
        parts.append(f"`{tool.output_rate}` (tokens/s): {tool.rate_definition}.\n\nSource: {tool.source}.\n")
    return "\n".join(parts)


def _paragraphs(module: object) -> list[str]:
    """A module's docstring, block by block."""
    return (inspect.getdoc(module) or "").split("\n\n")


def _table(metrics: Iterable[Metric[Any]]) -> str:
    lines = ["| metric | unit | clock starts | clock stops | population |", "|---|---|---|---|---|"]
    lines += [f"| `{one.name}` | {one.unit} | {one.starts} | {one.stops} | {one.population} |" for one in metrics]
    return "\n".join(lines) + "\n"


def _words() -> str:
    """What is no metric of requests, one paragraph each."""
    own = {one.name for one in CLIENT_METRICS}
    told = {name: words for name, words in definitions().items() if name not in own}
    return "\n".join(f"- `{name}`: {words.rstrip('.')}." for name, words in told.items()) + "\n"


def main() -> int:
    """Write or check."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true")
    if not parser.parse_args().check:
        TARGET.write_text(page(), encoding="utf-8")
        return 0
    if TARGET.read_text(encoding="utf-8") != page():
        print(f"{TARGET} is out of date: run python scripts/document_metrics.py", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
