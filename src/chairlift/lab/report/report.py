"""A report: one page that needs nothing but itself, and its pictures beside it as PNG."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from chairlift.core.errors import RecordError
from chairlift.core.request import Nanoseconds
from chairlift.lab.report import charts
from chairlift.lab.report.definitions import definitions
from chairlift.lab.report.figures import RunFigures, figures
from chairlift.lab.report.findings import cautions, key_of, lead, listed, sentence, wrong
from chairlift.lab.report.groups import MOST_PANELS, group_name, policies, representatives, short_labels
from chairlift.lab.report.page import Block, Section, page
from chairlift.lab.report.palette import Theme, in_variables
from chairlift.lab.report.render import chart_svg, png
from chairlift.lab.report.series import kv_use, queue
from chairlift.lab.report.slots import Panel, SlotPicture, caption, slot_picture
from chairlift.lab.report.sources import RunView, Source
from chairlift.lab.report.tables import latency_table, ledger_table, study_table, summary_table, what_was_run
from chairlift.lab.report.window import chosen, closer

PAGE = "report.html"
_MOST_GROUPS = 3
"""Loads with pictures of their own."""


_SLOTS = (
    "A row is a slot of the batch, a cell a token where there is room for one. Plain areas are what somebody asked "
    "for; patterned ones were computed for nothing, and blank ones stood empty."
)


@dataclass(frozen=True)
class Options:
    """How a report is made."""

    start: Nanoseconds | None = None
    """Of the slot pictures' window, since each run's first request was due; None: see `window.chosen`."""
    stop: Nanoseconds | None = None
    theme: Theme = "light"
    """Of the PNGs; the page follows its reader's."""


@dataclass(frozen=True)
class Report:
    """What was written."""

    page: Path
    pictures: tuple[Path, ...]
    lead: tuple[str, ...]
    cautions: tuple[str, ...]
    wrong: bool
    """Whether something is wrong with the runs."""
    slots: tuple[SlotPicture, ...]


def write_report(source: Source, folder: Path, options: Options | None = None) -> Report:
    """Write report.html and the pictures into a folder, over those of an earlier report.

    Raises:
        ConfigError: the window is empty, or vl-convert is not installed.
        RecordError: records are damaged, there are no runs, or the folder cannot be written.
    """
    options = options or Options()
    if not source.runs:
        raise RecordError(f"{source.name} has no run that can be read: {'; '.join(source.missing) or 'there is none'}.")
    told = {key_of(view): figures(view) for view in source.runs}
    draft = _Draft(source, told, options)
    sections = list(draft.sections())
    words = tuple(draft.lead())
    doubts = tuple(cautions(source, told))
    everything = list(told.values())
    meaning = definitions(everything, draft.kinds)
    if source.study is not None:
        meaning |= source.study.definitions
    written = page(
        title=draft.title, kicker=draft.kicker, lead=words, cautions=doubts, sections=sections, definitions=meaning
    )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _forget(folder)
        (folder / PAGE).write_text(written, encoding="utf-8")
        paths = []
        for name, svg in draft.pictures.items():
            paths.append(folder / f"{name}.png")
            paths[-1].write_bytes(png(svg, options.theme))
    except OSError as error:
        raise RecordError(
            f"the report cannot be written to {folder}: {error}; name another folder with --out."
        ) from error
    return Report(folder / PAGE, tuple(paths), words, doubts, wrong(source), tuple(draft.slots))


def _forget(folder: Path) -> None:
    """Remove the pictures of an earlier report: those that its page shows, and nothing else."""
    page_of_before = folder / PAGE
    if page_of_before.exists():
        shown = re.findall(r'<figure id="([\w-]+)">', page_of_before.read_text(encoding="utf-8", errors="replace"))
        for name in shown:
            (folder / f"{name}.png").unlink(missing_ok=True)


class _Draft:
    """A report in the making: collects the pictures as its sections are made."""

    def __init__(self, source: Source, told: Mapping[str, RunFigures], options: Options) -> None:
        self.source = source
        self.told = told
        self.options = options
        self.pictures: dict[str, str] = {}
        self.slots: list[SlotPicture] = []
        self.kinds: set[str] = set()
        groups = source.groups()
        if source.study is not None:
            # Runs of one load beside each other are what a study compares; the rest is in its tables.
            # Those first that computed the most for nothing: there is something to see.
            groups = sorted(groups, key=lambda group: (-policies(group), self._useful(group)))
            # Rounds of one load are called alike: the first of them stands for all.
            named = {group_name(group): group for group in reversed(groups) if policies(group) == policies(groups[0])}
            groups = [group for group in groups if group in named.values()]
        self.groups = groups[:_MOST_GROUPS]

    @property
    def title(self) -> str:
        if self.source.study is not None:
            target = self.source.study.target
            return f"Study: {self.source.study.name}, {target if ':' in target else Path(target).name}"
        names = list(dict.fromkeys(view.load_name for view in self.source.runs))
        if len(self.source.runs) == 1:
            run = self.source.runs[0]
            return f"{names[0]}, {run.label}" if run.label != run.folder.name else f"Run {run.label}"
        return f"{', '.join(names[:3])} under {listed([view.label for view in self._first_labels()])}"

    @property
    def kicker(self) -> str:
        first = self.source.runs[0].manifest
        model = first.target.get("model") or first.model.get("name") or ""
        machine = "simulated" if first.target.get("virtual_time") else first.machine.get("processor")
        parts = [str(model), str(machine or ""), first.started[:10]]
        return " · ".join(part for part in parts if part)

    def lead(self) -> Iterator[str]:
        if self.source.study is not None:
            yield from map(sentence, self.source.study.sentences)
            return
        for group in self.groups:
            yield lead(group, self._figures(group))

    def sections(self) -> Iterator[Section]:
        study = self.source.study
        if study is not None:
            yield from self._study()
        for at, group in enumerate(self.groups):
            several = len(self.groups) > 1
            name = f"-{at + 1}" if several else ""
            about = f": {group_name(group)}" if several else ""
            if study is None:
                yield Section(f"Main figures{about}", blocks=[Block(table=summary_table(self._figures(group)))])
            drawn = representatives(group)
            yield from self._slots(drawn, name, about)
            yield from self._ledger(drawn, name, about)
            if study is None or at == 0:
                yield from self._latencies(drawn, name, about)
                yield from self._timelines(drawn, name, about)
        yield self._ran()

    # parts

    def _study(self) -> Iterator[Section]:
        study = self.source.study
        if study is None:
            return
        if study.verdicts:
            yield Section("Verdicts", verdicts=study.verdicts)
        blocks = []
        for table in study.tables:
            first, _, rest = table.title.partition(". ")
            numbers = Block(heading=first.removesuffix("."), words=rest, table=study_table(table))
            if (spec := charts.study_chart(table)) is not None:
                drawn = self._block(f"table-{table.name}", spec, "")
                blocks.append(replace(drawn, heading=numbers.heading, words=rest))
                numbers = replace(numbers, heading="", words="")
            blocks.append(numbers)
        if blocks:
            yield Section("What was measured", blocks=blocks)
        every = [self.told[key_of(view)] for view in self.source.runs]
        yield Section("All runs", blocks=[Block(table=summary_table(every))])

    def _slots(self, views: Sequence[RunView], name: str, about: str) -> Iterator[Section]:
        seen = [view for view in views if view.grid is not None]
        if not seen:
            return
        panels = [_panel(view, label) for view, label in zip(seen, short_labels(seen), strict=True)]
        length = max(view.length for view in seen)
        pairs = [(panel.grid, panel.zero) for panel in panels]
        start, stop = chosen(pairs, length, self.options.start, self.options.stop)
        picture = slot_picture(panels, start, stop)
        blocks = [self._drawn(f"slots{name}", picture, caption(picture, length))]
        if self.options.start is None and self.options.stop is None and (near := closer(pairs, (start, stop))):
            near_picture = slot_picture(panels, *near)
            blocks.append(self._drawn(f"slots-close{name}", near_picture, f"Closer. {caption(near_picture, length)}"))
        yield Section(f"Slots over time{about}", text=[_SLOTS], blocks=blocks)

    def _ledger(self, views: Sequence[RunView], name: str, about: str) -> Iterator[Section]:
        told = [replace(one, label=label) for one, label in zip(self._figures(views), short_labels(views), strict=True)]
        spec, table = charts.ledger_chart(told), ledger_table(told)
        if spec is not None and table is not None:
            self.kinds.add("ledger")
            blocks = [self._block(f"ledger{name}", spec, ""), Block(table=table)]
            yield Section(f"Where the time went{about}", blocks=blocks)

    def _latencies(self, views: Sequence[RunView], name: str, about: str) -> Iterator[Section]:
        told = [replace(one, label=label) for one, label in zip(self._figures(views), short_labels(views), strict=True)]
        blocks = []
        if (spec := charts.percentile_chart(told)) is not None:
            blocks.append(self._block(f"percentiles{name}", spec, "The line goes from the median to the maximum."))
        if (spec := charts.cdf_chart(told)) is not None:
            blocks.append(self._block(f"cdf{name}", spec, "Share of the values that are no larger."))
        blocks.append(Block(table=latency_table(told)))
        seen = "client" if told[0].seen_by == "client" else "engine"
        yield Section(f"Latencies{about}", text=[f"As the {seen} saw them."], blocks=blocks)

    def _timelines(self, views: Sequence[RunView], name: str, about: str) -> Iterator[Section]:
        labels = short_labels(views)
        queues, pools = [queue(view) for view in views], [kv_use(view) for view in views]
        times = [at for line in (*queues, *pools) for at, _ in line.points]
        length = max([*times, *(view.length / 1e9 for view in views)], default=0.0)
        blocks = []
        for word, lines, unit, share in (("queue", queues, "waiting", False), ("kv", pools, "of KV blocks", True)):
            if (spec := charts.timeline_chart(labels, lines, unit, length, share=share)) is not None:
                blocks.append(self._block(f"{word}{name}", spec, ""))
        silent = sorted({line.missing for line in (*queues, *pools) if line.missing})
        if blocks:
            self.kinds.add("timelines")
        yield Section(f"Queue and KV cache{about}", text=[f"Not observable: {one}." for one in silent], blocks=blocks)

    def _ran(self) -> Section:
        views = self.source.runs[:MOST_PANELS]
        blocks = [Block(table=table) for table in what_was_run(views)]
        text = []
        if len(self.source.runs) > len(views):
            text = [f"Of the first {len(views)} of {len(self.source.runs)} runs."]
        return Section("What was run", text=text, blocks=blocks)

    # pictures

    def _drawn(self, name: str, picture: SlotPicture, words: str) -> Block:
        self.slots.append(picture)
        self.kinds.add("slots")
        self.pictures[name] = picture.svg
        return Block(name=name, svg=in_variables(_own_ids(picture.svg, name)), caption=words)

    def _block(self, name: str, spec: Mapping[str, Any], words: str) -> Block:
        svg = chart_svg(spec)
        self.pictures[name] = svg
        return Block(name=name, svg=in_variables(_own_ids(svg, name)), caption=words)

    def _figures(self, views: Sequence[RunView]) -> list[RunFigures]:
        return [self.told[key_of(view)] for view in views]

    def _useful(self, views: Sequence[RunView]) -> float:
        """The least share of useful tokens among runs."""
        used = [
            one.usage.useful for one in self._figures(views) if one.usage is not None and one.usage.useful is not None
        ]
        return min(used, default=1.0)

    def _first_labels(self) -> Sequence[RunView]:
        return self.groups[0][:MOST_PANELS]


def _panel(view: RunView, label: str) -> Panel:
    grid = view.grid
    if grid is None:
        raise RecordError(f"{view.folder} has no records of its slots.")
    settings = view.engine.manifest.settings if view.engine is not None else {}
    name = {"static": "batch_size", "dynamic": "max_batch_size"}.get(view.policy or "", "max_num_seqs")
    told = {
        one.request_id: f"prompt {one.prompt_tokens:,}, output {one.output_tokens:,} tokens, {one.finish_reason}"
        for one in view.requests
    }
    return Panel(label, grid, view.zero, view.zero + view.length, settings.get(name), told)


def _own_ids(svg: str, name: str) -> str:
    """Pictures of one page must not share ids; nor may these depend on what was drawn before."""
    numbers: dict[str, str] = {}
    for found in re.findall(r'id="(p-\w+|clip\d+)"', svg):
        numbers.setdefault(found, found if found.startswith("p-") else f"clip{len(numbers)}")
    return re.sub(r'(id="|url\(#)(p-\w+|clip\d+)', lambda found: f"{found[1]}{name}-{numbers[found[2]]}", svg)
