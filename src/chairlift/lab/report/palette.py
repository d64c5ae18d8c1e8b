"""Colours that are told apart by their lightness alone, in print, in grey and by every eye.

The five kinds of token have a lightness of their own (CIE L*, 0 to 100): any two differ by at least `LEAST_STEP`. What
is waste also has a pattern: dots for padding, strokes for dead rows, a net for what was paid again. What takes time
besides differs from every other in lightness or in pattern. On a dark page the order is turned round: what is useful
stands out from the page, waste is near it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, Literal

Theme = Literal["light", "dark"]

_COLOUR: Final = re.compile(r"#[0-9a-fA-F]{6}\b")

LEAST_STEP: Final = 9.0
"""Of L*: the least by which two kinds differ."""

KINDS: Final[Mapping[str, str]] = {
    "prefill": "prefill",
    "recompute": "recomputed",
    "decode": "decode",
    "dead": "dead rows",
    "padding": "padding",
}
"""Kinds of token with their names in pictures, from what stands out most to what does least."""

_KIND_COLOURS: Final[Mapping[str, tuple[str, str]]] = {
    "prefill": ("#14305c", "#dcebff"),
    "recompute": ("#6d3485", "#dcbfea"),
    "decode": ("#3b7fc4", "#6ea3da"),
    "dead": ("#dd9483", "#a9685a"),
    "padding": ("#ebcb8f", "#62502a"),
}
_TIME_COLOURS: Final[Mapping[str, tuple[str, str]]] = {
    "switching": ("#a39d8f", "#807a6d"),
    "host": ("#5d6560", "#676e6a"),
    "held": ("#b4bab6", "#545b57"),
    "idle": ("#e4e8e5", "#2d3230"),
}
_ROLE_COLOURS: Final[Mapping[str, tuple[str, str]]] = {
    "paper": ("#ffffff", "#14171a"),
    "empty": ("#f3f5f4", "#1e2225"),
    "resting": ("#dadfdc", "#363c3f"),
    "ink": ("#1b1f22", "#e6e8e9"),
    "faint": ("#5d666b", "#a2abb0"),
    "rule": ("#cfd5d8", "#3b4247"),
    "accent": ("#b3361e", "#ff9a7d"),
    "band": ("#dbe7f3", "#22364a"),
    "line0": ("#1f4e86", "#9cc7f5"),
    "line1": ("#b25c12", "#f0a860"),
    "line2": ("#2f8f6b", "#6fd0aa"),
    "line3": ("#8d5aa8", "#c69be0"),
}
COLOURS: Final[Mapping[str, Mapping[Theme, str]]] = {
    name: {"light": light, "dark": dark}
    for name, (light, dark) in {**_KIND_COLOURS, **_TIME_COLOURS, **_ROLE_COLOURS}.items()
}
"""By name and theme."""
LINES: Final = ("line0", "line1", "line2", "line3")
"""Of several runs in one picture; each also has dashes and a label of its own."""
PATTERNS: Final[Mapping[str, str]] = {
    "dead": '<path d="M-1,1L1,-1M0,6L6,0M5,7L7,5" stroke="{ink}" stroke-width="0.9" stroke-opacity="0.62"/>',
    "padding": '<circle cx="1.5" cy="1.5" r="0.85" fill="{ink}" fill-opacity="0.55"/>'
    '<circle cx="4.5" cy="4.5" r="0.85" fill="{ink}" fill-opacity="0.55"/>',
    "recompute": '<path d="M0,3H6M3,0V6" stroke="{paper}" stroke-width="0.8" stroke-opacity="0.8"/>',
    "switching": '<path d="M0,1.5H6M0,4.5H6" stroke="{ink}" stroke-width="0.6" stroke-opacity="0.6"/>',
    "held": '<path d="M1.5,0V6M4.5,0V6" stroke="{ink}" stroke-width="0.5" stroke-opacity="0.5"/>',
}
"""What is drawn over a kind's colour, in a square of 6; colours by their names."""


def colour(name: str, theme: Theme = "light") -> str:
    """As #rrggbb."""
    return COLOURS[name][theme]


def lightness(hexadecimal: str) -> float:
    """CIE 1976 L* of an sRGB colour, 0 (black) to 100 (white).

    Formulas: IEC 61966-2-1 (sRGB to linear light), CIE 15 (L* from relative luminance, white at Y = 1).
    """
    channels = (int(hexadecimal[at : at + 2], 16) / 255 for at in (1, 3, 5))
    red, green, blue = (one / 12.92 if one <= 0.04045 else ((one + 0.055) / 1.055) ** 2.4 for one in channels)
    luminance = 0.2126 * red + 0.7152 * green + 0.0722 * blue
    return 116 * luminance ** (1 / 3) - 16 if luminance > (6 / 29) ** 3 else luminance * (29 / 3) ** 3


def patterns() -> str:
    """The <defs> of all patterns, in the light theme's colours."""
    drawn = [
        f'<pattern id="p-{name}" width="6" height="6" patternUnits="userSpaceOnUse">'
        f'<rect width="6" height="6" fill="{colour(name)}"/>'
        f"{marks.format(ink=colour('ink'), paper=colour('paper'))}</pattern>"
        for name, marks in PATTERNS.items()
    ]
    return f"<defs>{''.join(drawn)}</defs>"


def fill(kind: str) -> str:
    """What an area of a kind is filled with."""
    return f"url(#p-{kind})" if kind in PATTERNS else colour(kind)


def in_theme(svg: str, theme: Theme) -> str:
    """A picture that was drawn in the light theme's colours in another's."""
    if theme == "light":
        return svg
    return _replaced(svg, {both["light"]: both[theme] for both in COLOURS.values()})


def in_variables(svg: str) -> str:
    """The same, in the variables of `stylesheet()`: the page's theme decides."""
    return _replaced(svg, {both["light"]: f"var(--{name})" for name, both in COLOURS.items()})


def stylesheet() -> str:
    """CSS variables of all colours, by what the reader's system prefers."""
    light, dark = ("".join(f"--{n}:{both[theme]};" for n, both in COLOURS.items()) for theme in ("light", "dark"))
    return f":root{{color-scheme:light dark;{light}}}@media(prefers-color-scheme:dark){{:root{{{dark}}}}}"


def _replaced(svg: str, colours: Mapping[str, str]) -> str:
    return _COLOUR.sub(lambda found: colours.get(found[0].lower(), found[0]), svg)
