"""Write docs/records.md from the docstrings of the records, the manifest and the metrics.

python scripts/document_records.py           write it
python scripts/document_records.py --check   exit 1 if it is out of date
"""

from __future__ import annotations

import argparse
import dataclasses
import inspect
import sys
from pathlib import Path

from chairlift.cli.flags import field_docs
from chairlift.lab.client.rows import KINDS as CLIENT_KINDS
from chairlift.lab.studies import folder
from chairlift.records import client, manifest, metrics, schema, writer
from chairlift.records.rows import KINDS

TARGET = Path(__file__).parents[1] / "docs" / "records.md"

INTRODUCTION = """\
# Records of a run

Written by `scripts/document_records.py` from the docstrings in `src/chairlift/records/`; change those, not this page.
Schema version {version}.

A run is a folder:

```text
{layout}
```

Lines and columns hold the same. Read them with `chairlift.records.reader.Run(folder)`: `steps()`, `shares()`,
`requests()`, `decisions()` and `batches()` give records, `table(name)` an Arrow table; a run that was killed is read up
to its last whole line, and `complete` says so. JSON and Parquet are as good to any other reader.

{conventions}
"""

CLIENT = """\
# Records of a client's run

Schema version {version}, in the manifest as `client_schema`. `chairlift bench` keeps them in the run's folder; where
the target was a model in its process, the engine's own records lie beside them in `engine/`. Each kind is NAME.jsonl as
the run goes and NAME.parquet once it is closed. In Parquet a trace's chunks have a table of their own (`chunks`: index
of the trace, time, tokens, source).

{moments}
"""

STUDY = """\
# A study

Schema version {version}, in the file as `schema`. `chairlift study` and `chairlift compare` keep a study as a folder:
{layout}

In JSON, records are objects with these fields; a row is a list of cells in the order of the columns.
"""


def page() -> str:
    """The whole page."""
    layout = _paragraphs(writer)[1]
    conventions = "\n\n".join(_paragraphs(schema)[1:2] + _paragraphs(schema)[3:])
    parts = [INTRODUCTION.format(version=schema.SCHEMA_VERSION, layout=layout, conventions=conventions)]
    parts += [_table(f"{name}: {kind.__name__}", kind) for name, kind in KINDS.items()]
    parts.append(_table(f"{manifest.MANIFEST}: Manifest", manifest.Manifest))
    parts.append(_metrics())
    parts.append(CLIENT.format(version=client.CLIENT_SCHEMA_VERSION, moments="\n\n".join(_paragraphs(client)[1:])))
    parts += [_table(f"{name}: {kind.__name__}", kind) for name, kind in CLIENT_KINDS.items()]
    layout = "\n\n".join(["", f"```text\n{_paragraphs(folder)[1]}\n```", *_paragraphs(folder)[2:]])
    parts.append(STUDY.format(version=folder.STUDY_SCHEMA_VERSION, layout=layout))
    studies = (folder.StudyRecord, folder.StudyRun, folder.Table, folder.Column, folder.Verdict)
    parts += [_table(f"{folder.STUDY}: {kind.__name__}", kind) for kind in studies]
    return "\n".join(parts)


def _paragraphs(module: object) -> list[str]:
    """A module's docstring, block by block."""
    return (inspect.getdoc(module) or "").split("\n\n")


def _table(title: str, kind: type) -> str:
    docs = field_docs(kind)
    lines = [
        f"## {title}",
        "",
        " ".join((kind.__doc__ or "").split()),
        "",
        "| field | type | meaning |",
        "|---|---|---|",
    ]
    for one in dataclasses.fields(kind):
        hint = str(one.type).replace("|", "or")
        lines.append(f"| `{one.name}` | {hint} | {docs[one.name]} |")
    return "\n".join(lines) + "\n"


def _metrics() -> str:
    lines = [
        "## Metrics",
        "",
        " ".join(_paragraphs(metrics)[1].split()),
        "",
        "| metric | unit | clock starts | clock stops | population |",
        "|---|---|---|---|---|",
    ]
    lines += [
        f"| `{one.name}` | {one.unit} | {one.starts} | {one.stops} | {one.population} |" for one in metrics.METRICS
    ]
    rate = metrics.output_tokens_per_second([])
    lines += ["", f"`{rate.name}` ({rate.unit}): {rate.definition}."]
    return "\n".join(lines) + "\n"


def main() -> int:
    """Write or check."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true")
    if not parser.parse_args().check:
        TARGET.write_text(page(), encoding="utf-8")
        return 0
    if TARGET.read_text(encoding="utf-8") != page():
        print(f"{TARGET} is out of date: run python scripts/document_records.py", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
