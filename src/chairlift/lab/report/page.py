"""The page around the pictures: plain HTML, with its style and its pictures in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files

from chairlift.lab.report.palette import stylesheet
from chairlift.lab.report.tables import NOT_TOLD, Table
from chairlift.lab.studies.folder import Verdict
from chairlift.records.metrics import NOT_OBSERVABLE


@dataclass(frozen=True)
class Block:
    """A picture or a table, with a heading or without."""

    heading: str = ""
    words: str = ""
    """Under the heading."""
    name: str = ""
    svg: str = ""
    caption: str = ""
    table: Table | None = None


@dataclass(frozen=True)
class Section:
    """Words, then what was found, then pictures and tables."""

    title: str
    text: Sequence[str] = ()
    blocks: Sequence[Block] = ()
    verdicts: Sequence[Verdict] = field(default=())


def page(
    *,
    title: str,
    kicker: str,
    lead: Sequence[str],
    cautions: Sequence[str],
    sections: Sequence[Section],
    definitions: Mapping[str, str],
) -> str:
    """All of it as one document. Words are escaped; pictures are put in as they are."""
    from jinja2 import Environment, StrictUndefined  # noqa: PLC0415 - slow to load, and needed at the end only

    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    template = environment.from_string(files(__package__).joinpath("page.html.j2").read_text(encoding="utf-8"))
    return template.render(
        title=title,
        kicker=kicker,
        lead=lead,
        cautions=cautions,
        sections=[section for section in sections if section.text or section.blocks or section.verdicts],
        definitions=definitions,
        variables=stylesheet(),
        unseen={NOT_TOLD, NOT_OBSERVABLE, "none"},
    )
