import sys
from typing import Any

import pytest

from chairlift.core.errors import ConfigError
from chairlift.lab.report.palette import colour, patterns
from chairlift.lab.report.render import chart_svg, png

BAR: dict[str, Any] = {
    "$schema": "https://vega.github.io/schema/vega-lite/v5.json",
    "data": {"values": [{"x": 1}]},
    "mark": {"type": "bar", "color": colour("dead")},
    "encoding": {"x": {"field": "x", "type": "quantitative"}},
}


def test_kinds_have_their_patterns_in_charts_too() -> None:
    """A bar in a kind's colour is filled with its pattern, which the picture brings along."""
    svg = chart_svg(BAR)

    assert 'fill="url(#p-dead)"' in svg
    assert patterns() in svg


def test_a_png_is_in_its_theme() -> None:
    """The same picture, light and dark."""
    square = f'<rect width="8" height="8" fill="{colour("paper")}"/>'
    svg = f'<svg xmlns="http://www.w3.org/2000/svg" width="8" height="8">{square}</svg>'

    light, dark = png(svg, "light"), png(svg, "dark")

    assert light[:4] == dark[:4] == b"\x89PNG"
    assert light != dark


def test_without_the_library_the_way_out_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is an extra."""
    monkeypatch.setitem(sys.modules, "vl_convert", None)

    with pytest.raises(ConfigError, match=r"pip install 'chairlift\[lab\]'"):
        chart_svg(BAR)
