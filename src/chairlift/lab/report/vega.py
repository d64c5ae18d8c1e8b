"""Parts of Vega-Lite specifications that the charts share: axes, lines, and how it all looks.

Colours are the light theme's; the pictures' other themes and the patterns are put in afterwards, in the SVG. Wide
pictures have their plots where the slot picture has its own, so that times lie under times.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from chairlift.lab.report.palette import LINES, colour
from chairlift.lab.report.scale import log_ticks
from chairlift.lab.report.slots import FONT, LEFT, PLOT, RIGHT

Spec = dict[str, Any]

SCHEMA: Final = "https://vega.github.io/schema/vega-lite/v5.json"
PLAIN: Final = ",.6~r"
"""Numbers of an axis, without exponents."""
LOG_FROM: Final = 50.0
"""Largest over smallest value from which on an axis is logarithmic."""
_DASHES: Final = ([1, 0], [6, 3], [2, 2], [8, 3, 2, 3])
_PADDING: Final = 8

LABELLED: Final[Spec] = {
    "titleAngle": 0,
    "titleAlign": "right",
    "titleBaseline": "top",
    "titleX": -48,
    "titleY": 2,
    "minExtent": LEFT - _PADDING,
    "maxExtent": LEFT - _PADDING,
}
"""Of an axis whose title stands beside it, as the labels of runs do."""


def lines_of(labels: Sequence[str]) -> Spec:
    """Colour and dashes of each line."""
    colours = [colour(LINES[at % len(LINES)]) for at in range(len(labels))]
    dashes = [_DASHES[at % len(_DASHES)] for at in range(len(labels))]
    legend = (
        None
        if len(labels) < 2
        else {"orient": "top", "title": None, "symbolSize": 500, "symbolStrokeWidth": 2, "symbolType": "stroke"}
    )
    domain = list(labels)
    return {
        "color": {"field": "run", "scale": {"domain": domain, "range": colours}, "legend": legend},
        "strokeDash": {"field": "run", "scale": {"domain": domain, "range": dashes}, "legend": legend},
    }


def rows_of(labels: Sequence[str]) -> Spec:
    """An axis of runs, labelled as the slot picture's panels are."""
    axis = {"labelColor": colour("ink"), "labelFontSize": 12, "labelLimit": LEFT - 24, "labelPadding": 12,
            "grid": False, "domain": False, "ticks": False, "minExtent": LEFT - _PADDING,
            "maxExtent": LEFT - _PADDING}  # fmt: skip
    names = list(labels)
    return {"field": "run", "type": "nominal", "sort": names, "title": None, "scale": {"domain": names}, "axis": axis}


def axis_of(field: str, title: str | list[str] | None, **axis: Any) -> Spec:
    """Of a quantity; what is given beside field and title are properties of Vega-Lite's axis."""
    return {"field": field, "type": "quantitative", "title": title, "axis": {"tickCount": 9, **axis}}


def latency_axis(name: str, values: Sequence[float], count: int = 9) -> tuple[float, Spec]:
    """What seconds are multiplied by, and the axis: linear from zero, or logarithmic where values lie far apart."""
    least, most = min(values), max(values)
    unit, word = (1.0, "s") if most >= 1 else (1e3, "ms")
    if least > 0 and most / least >= LOG_FROM:
        low, high = least * unit * 0.8, most * unit * 1.1
        axis = axis_of("v", f"{name} ({word}, logarithmic)", values=log_ticks(low, high, count), format=PLAIN)
        return unit, {**axis, "scale": {"type": "log", "domain": [low, high], "nice": False}}
    axis = axis_of("v", f"{name} ({word})", tickCount=count, format=PLAIN)
    return unit, {**axis, "scale": {"domain": [0, (most * 1.04 or 1) * unit], "nice": False}}


def wide(content: Spec) -> Spec:
    """As wide as the slot picture."""
    return spec({"width": PLOT, **content})


def spec(content: Spec) -> Spec:
    """With what all pictures have in common."""
    rule, faint, ink = colour("rule"), colour("faint"), colour("ink")
    axis = {"domainColor": rule, "tickColor": rule, "gridColor": rule, "gridOpacity": 0.6, "gridWidth": 0.6,
            "labelColor": faint, "titleColor": ink, "titleFontWeight": "normal", "labelFontSize": 11,
            "titleFontSize": 12, "titlePadding": 8, "labelFlush": False}  # fmt: skip
    config = {
        "font": FONT,
        "aria": False,
        "view": {"stroke": None},
        "axis": axis,
        "legend": {"labelColor": ink, "labelFontSize": 12, "symbolStrokeColor": ink, "columnPadding": 18},
    }
    padding = {"left": _PADDING, "right": RIGHT, "top": 6, "bottom": 6}
    return {"$schema": SCHEMA, "background": colour("paper"), "padding": padding, "config": config, **content}
