"""Pictures as SVG and PNG, by vl-convert: everything on this machine, without a browser and without a network."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from chairlift.core.errors import ConfigError
from chairlift.lab.report.palette import PATTERNS, Theme, colour, fill, in_theme, patterns

if TYPE_CHECKING:
    from types import ModuleType

_VEGA_LITE: Final = "5.21"
_SCALE: Final = 2.0
"""Pixels of a PNG for one of the picture's."""


def chart_svg(spec: Mapping[str, Any]) -> str:
    """A Vega-Lite specification drawn, with patterns where kinds have them.

    Raises:
        ConfigError: vl-convert is not installed.
    """
    drawn: str = _converter().vegalite_to_svg(dict(spec), vl_version=_VEGA_LITE)
    for kind in PATTERNS:
        drawn = drawn.replace(f'fill="{colour(kind)}"', f'fill="{fill(kind)}"')
    return re.sub(r"(<svg [^>]*>)", lambda found: found[0] + patterns(), drawn, count=1)


def png(svg: str, theme: Theme) -> bytes:
    """A picture that was drawn in the light theme's colours.

    Raises:
        ConfigError: vl-convert is not installed.
    """
    drawn: bytes = _converter().svg_to_png(in_theme(svg, theme), scale=_SCALE)
    return drawn


def _converter() -> ModuleType:
    try:
        import vl_convert  # noqa: PLC0415 - a large library that only reports need
    except ImportError as error:
        raise ConfigError(
            "pictures are drawn by vl-convert, which is not installed: pip install 'chairlift[lab]'."
        ) from error
    return vl_convert
