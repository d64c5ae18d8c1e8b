"""The pictures besides the slots, as Vega-Lite: each a specification that holds its own data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Final

from chairlift.lab.report.figures import LATENCIES, RunFigures
from chairlift.lab.report.palette import colour
from chairlift.lab.report.scale import number
from chairlift.lab.report.series import Timeline, cdf
from chairlift.lab.report.slots import LEFT, PLOT
from chairlift.lab.report.vega import (
    LABELLED,
    PLAIN,
    Spec,
    axis_of,
    latency_axis,
    lines_of,
    rows_of,
    spec,
    wide,
)
from chairlift.lab.studies.folder import Table
from chairlift.records.metrics import NOT_OBSERVABLE

CATEGORIES: Final[Mapping[str, str]] = {
    "decode": "decode",
    "prefill": "prefill",
    "recompute": "recomputed",
    "padding": "padding",
    "dead": "dead rows",
    "switching": "switching",
    "host": "host",
    "held": "held",
    "idle": "idle",
}
"""The ledger's categories in the order in which a bar has them, with their names in pictures."""
_LIGHT: Final = frozenset({"padding", "dead", "switching", "held", "idle"})
"""Areas that take dark words."""
_SHAPES: Final[Mapping[str, str]] = {
    "p50": "circle",
    "p90": "triangle-up",
    "p99": "diamond",
    "p99.9": "square",
    "max": "M-0.3,-0.9H0.3V0.9H-0.3Z",
}


def ledger_chart(runs: Sequence[RunFigures]) -> Spec | None:
    """Seconds by category, a bar a run; None where no run has a ledger."""
    rows: list[Spec] = []
    ends: list[Spec] = []
    for run in runs:
        if run.ledger is None:
            continue
        before = 0.0
        for category, name in CATEGORIES.items():
            spent = run.ledger_seconds(category) or 0.0
            if spent:
                rows.append(
                    {"run": run.label, "category": name, "s": spent, "from": before, "to": before + spent,
                     "middle": before + spent / 2, "light": category in _LIGHT}
                )  # fmt: skip
            before += spent
        said = f"recoverable {number(run.ledger['recoverable'] / 1e9)} s"
        ends.append({"run": run.label, "s": before, "words": said})
    if not rows:
        return None
    longest = max(end["s"] for end in ends)
    for row in rows:
        row["words"] = number(row["s"]) if row["s"] >= 0.055 * longest else ""
    present = {row["category"] for row in rows}
    used = {key: name for key, name in CATEGORIES.items() if name in present}
    y = rows_of([end["run"] for end in ends])
    shades = {"field": "category", "scale": {"domain": list(used.values()), "range": [colour(key) for key in used]}}
    legend = {"orient": "top", "title": None, "symbolType": "square", "symbolSize": 170, "symbolStrokeWidth": 0}
    place = {"field": "middle", "type": "quantitative"}
    words = {"y": y, "x": place, "text": {"field": "words"}}
    ink = {"condition": {"test": "datum.light", "value": colour("ink")}, "value": colour("paper")}
    x = {**axis_of("from", "wall clock (s)"), "scale": {"domain": [0, longest * 1.17], "nice": False}}
    labels = {"values": [row for row in rows if row["words"]]}
    return wide(
        {
            "height": {"step": 32},
            "layer": [
                {
                    "data": {"values": rows},
                    "mark": {"type": "bar", "height": 22, "stroke": colour("paper"), "strokeWidth": 0.7},
                    "encoding": {"y": y, "x": x, "x2": {"field": "to"}, "color": {**shades, "legend": legend}},
                },
                {
                    "data": labels,
                    "mark": {"type": "text", "fontSize": 11, "strokeWidth": 5, "strokeJoin": "round"},
                    "encoding": {**words, "stroke": {**shades, "legend": None}},
                },
                {"data": labels, "mark": {"type": "text", "fontSize": 11}, "encoding": {**words, "color": ink}},
                {
                    "data": {"values": ends},
                    "mark": {"type": "text", "align": "left", "dx": 7, "fontSize": 11, "color": colour("faint")},
                    "encoding": {**words, "x": {**place, "field": "s"}},
                },
            ],
        }
    )


def percentile_chart(runs: Sequence[RunFigures]) -> Spec | None:
    """A row a run and a panel a latency: median to maximum as a line, percentiles as marks of different shape."""
    panels: list[Spec] = []
    for key in LATENCIES:
        if (panel := _percentile_panel(key, runs, first=not panels)) is not None:
            panels.append(panel)
    return spec({"vconcat": panels, "spacing": 20}) if panels else None


def cdf_chart(runs: Sequence[RunFigures]) -> Spec | None:
    """Share of the values up to each value, a line a run and a panel a latency."""
    panels: list[Spec] = []
    for key in ("ttft", "itl", "e2e"):
        rows: list[Spec] = [
            {"run": run.label, "v": value, "share": below}
            for run in runs
            for value, below in cdf(run.latencies[key].values)
        ]
        if not rows:
            continue
        unit, axis = latency_axis(LATENCIES[key], [row["v"] for row in rows], count=5)
        for row in rows:
            row["v"] *= unit
        y = axis_of("share", "share of the values" if not panels else None, format=".0%", minExtent=34, tickCount=5)
        encoding = {"x": axis, "y": {**y, "scale": {"domain": [0, 1]}}, **lines_of([run.label for run in runs])}
        mark = {"type": "line", "interpolate": "step-after", "strokeWidth": 1.8, "clip": True}
        panels.append({"width": 252, "height": 190, "data": {"values": rows}, "mark": mark, "encoding": encoding})
    return spec({"hconcat": panels, "spacing": 18}) if panels else None


def timeline_chart(
    labels: Sequence[str], timelines: Sequence[Timeline], unit: str, length: float, *, share: bool = False
) -> Spec | None:
    """One quantity over time, a panel a run.

    Args:
        labels: of the runs.
        timelines: of the runs; those without points say why.
        unit: what is counted.
        length: seconds of the time axis.
        share: the quantity is a share of something.
    """
    if not any(line.points for line in timelines):
        return None
    peak = max(value for line in timelines for _, value in line.points)
    most = next((one for one in (0.1, 0.25, 0.5) if peak <= one), 1.0) if share else max(1.0, peak)
    panels = []
    for at, (label, line) in enumerate(zip(labels, timelines, strict=True)):
        last = at == len(labels) - 1
        title = "time since the first request was due (s)" if last else None
        x = {**axis_of("t", title, labels=last, ticks=last), "scale": {"domain": [0, length], "nice": False}}
        y = axis_of("value", [label, unit], tickCount=2, **LABELLED, format=".0%" if share else PLAIN)
        panel: Spec = {"width": PLOT, "height": 50}
        encoding = {"x": x, "y": {**y, "scale": {"domain": [0, most], "nice": False}}}
        if line.points:
            points = [{"t": when, "value": value} for when, value in line.points]
            area = {"type": "area", "interpolate": "step-after", "color": colour("band"), "clip": True,
                    "line": {"color": colour("line0"), "strokeWidth": 1.2}}  # fmt: skip
            panel |= {"data": {"values": points}, "mark": area, "encoding": encoding}
        else:
            words = {"type": "text", "align": "left", "fontStyle": "italic", "color": colour("faint"), "fontSize": 11}
            encoding["text"] = {"field": "words"}
            panel |= {"data": {"values": [{"t": 0, "value": most / 2, "words": line.missing}]}, "mark": words,
                      "encoding": encoding}  # fmt: skip
        panels.append(panel)
    return spec({"vconcat": panels, "spacing": 12})


def study_chart(table: Table) -> Spec | None:
    """A study's table as lines with their intervals, and beneath it its second figure; None where it names no x and y,
    or has no numbers in them.
    """
    if table.x is None or table.y is None:
        return None
    panels = [_study_panel(table, table.x, table.y, table.low, table.high)]
    if table.below is not None:
        panels.append(_study_panel(table, table.x, table.below))
    drawn = [panel for panel in panels if panel is not None]
    if not drawn:
        return None
    return spec(drawn[0] if len(drawn) == 1 else {"vconcat": drawn, "spacing": 24})


def _study_rows(table: Table, x: str, y: str, low: str | None, high: str | None) -> list[Spec]:
    names = [column.name for column in table.columns]
    heading = dict(zip(names, table.columns, strict=True))
    rows: list[Spec] = []
    for cells in table.rows:
        row = dict(zip(names, cells, strict=True))
        if isinstance(row[x], int | float) and isinstance(value := row[y], int | float):
            kept: Spec = {
                "x": row[x],
                "v": value,
                "run": str(row[table.series]) if table.series else heading[y].heading,
            }
            for end, name in (("low", low), ("high", high)):
                kept[end] = bound if name and isinstance(bound := row[name], int | float) else value
            if table.mark and row[table.mark]:
                kept["mark"] = heading[table.mark].heading
            rows.append(kept)
    return rows


def _study_panel(table: Table, x: str, y: str, low: str | None = None, high: str | None = None) -> Spec | None:
    rows = _study_rows(table, x, y, low, high)
    if not rows:
        return None
    by_name = {column.name: column for column in table.columns}
    xs = [row["x"] for row in rows]
    log = _by_factors(xs)
    scale = {"type": "log", "nice": False} if log else {"nice": True, "zero": False}
    # A curve that rises in step with x is then a straight line, and where it bends is seen.
    steep = log and min(row["low"] for row in rows) > 0 and _far_apart([row["v"] for row in rows])
    ticks = {"values": sorted(set(xs))} if len(set(xs)) <= 12 and all(x == int(x) for x in xs) else {}
    x_axis = {**axis_of("x", by_name[x].heading, format=PLAIN, grid=False, **ticks), "scale": scale}
    y_axis = axis_of("v", by_name[y].heading, tickCount=6, format=PLAIN, minExtent=LEFT - 60)
    series = list(dict.fromkeys(row["run"] for row in rows))
    lines = lines_of(series)
    plain = {**lines["color"], "legend": None}
    encoding = {"x": x_axis, "y": {**y_axis, "scale": {"type": "log"} if steep else {"domainMin": 0}}}
    interval = {"y": {**encoding["y"], "field": "low"}, "y2": {"field": "high"}}
    words = {"type": "text", "align": "left", "dx": 8, "dy": 12, "color": colour("ink"), "fontSize": 12}
    return {
        "width": PLOT,
        "height": 260,
        "data": {"values": rows},
        "layer": [
            {"mark": {"type": "line", "strokeWidth": 1.8}, "encoding": {**encoding, **lines}},
            {
                "transform": [{"filter": "datum.low < datum.high"}],
                "mark": {"type": "rule", "strokeWidth": 1.4},
                "encoding": {**encoding, **interval, "color": plain},
            },
            {
                "mark": {"type": "point", "filled": True, "size": 60, "opacity": 1},
                "encoding": {**encoding, "color": plain},
            },
            {
                "transform": [{"filter": "isValid(datum.mark)"}],
                "mark": words,
                "encoding": {**encoding, "text": {"field": "mark"}},
            },
        ],
    }


def _far_apart(values: Sequence[float]) -> bool:
    return max(values) / min(values) >= 6


def _by_factors(xs: Sequence[float]) -> bool:
    """Whether values grow by factors, such as 1, 2, 4, 8, rather than by steps."""
    ordered = sorted(set(xs))
    if len(ordered) < 3 or ordered[0] <= 0:
        return False
    return all(after / before >= 1.3 for before, after in pairwise(ordered)) and ordered[-1] / ordered[0] >= 6


def _percentile_panel(key: str, runs: Sequence[RunFigures], *, first: bool) -> Spec | None:
    marks: list[Spec] = []
    lines: list[Spec] = []
    words: list[Spec] = []
    for run in runs:
        latency = run.latencies[key]
        if told := latency.percentiles:
            lines.append({"run": run.label, "low": told["p50"], "high": told["max"]})
            marks += [{"run": run.label, "percentile": name, "v": told[name]} for name in _SHAPES if name in told]
        elif latency.distribution.unobservable:
            words.append({"run": run.label, "words": NOT_OBSERVABLE})
    if not marks:
        return None  # the table says why
    unit, axis = latency_axis(LATENCIES[key], [mark["v"] for mark in marks])
    for mark in marks:
        mark["v"] *= unit
    for line in lines:
        line["low"], line["high"] = line["low"] * unit, line["high"] * unit
    legend = {"orient": "top", "title": None, "symbolFillColor": colour("line0"), "symbolSize": 80}
    shape = {"field": "percentile", "scale": {"domain": list(_SHAPES), "range": list(_SHAPES.values())}}
    y = rows_of([run.label for run in runs])
    point = {"type": "point", "size": 75, "fill": colour("line0"), "stroke": colour("paper"), "strokeWidth": 1,
             "opacity": 1}  # fmt: skip
    italic = {"type": "text", "align": "left", "fontStyle": "italic", "fontSize": 11, "color": colour("faint")}
    return {
        "width": PLOT,
        "height": {"step": 22},
        "layer": [
            {
                "data": {"values": lines},
                "mark": {"type": "rule", "color": colour("held"), "strokeWidth": 2},
                "encoding": {"y": y, "x": {**axis, "field": "low"}, "x2": {"field": "high"}},
            },
            {
                "data": {"values": marks},
                "mark": point,
                "encoding": {"y": y, "x": axis, "shape": {**shape, "legend": legend if first else None}},
            },
            {
                "data": {"values": words},
                "mark": {**italic, "x": 6},
                "encoding": {"y": y, "text": {"field": "words"}},
            },
        ],
    }
