from itertools import combinations
from typing import get_args

import pytest

from chairlift.lab.report.charts import CATEGORIES
from chairlift.lab.report.palette import (
    COLOURS,
    KINDS,
    LEAST_STEP,
    PATTERNS,
    Theme,
    colour,
    fill,
    in_theme,
    in_variables,
    lightness,
    patterns,
    stylesheet,
)

THEMES: tuple[Theme, ...] = get_args(Theme)


def test_lightness_is_the_standards() -> None:
    """Black 0, white 100, and mid grey at its tabulated 53.6."""
    assert lightness("#000000") == 0
    assert lightness("#ffffff") == pytest.approx(100)
    assert lightness("#808080") == pytest.approx(53.585, abs=0.01)


@pytest.mark.parametrize("theme", THEMES)
def test_kinds_are_told_apart_in_grey(theme: Theme) -> None:
    """Any two kinds of token, and each of them and an empty slot, differ in lightness by the stated step."""
    tones = [lightness(colour(kind, theme)) for kind in (*KINDS, "empty")]

    assert min(abs(one - other) for one, other in combinations(tones, 2)) >= LEAST_STEP


@pytest.mark.parametrize("theme", THEMES)
def test_categories_of_time_are_told_apart_in_grey(theme: Theme) -> None:
    """Any two, whichever lie side by side: by lightness, or one by a pattern that the other has not."""
    for one, other in combinations(CATEGORIES, 2):
        apart = abs(lightness(colour(one, theme)) - lightness(colour(other, theme))) >= LEAST_STEP
        assert apart or PATTERNS.get(one) != PATTERNS.get(other), (one, other)


@pytest.mark.parametrize("theme", THEMES)
def test_words_are_readable(theme: Theme) -> None:
    """Ink and faint ink stand out from the paper by 45 of L* or more."""
    paper = lightness(colour("paper", theme))

    assert all(abs(lightness(colour(name, theme)) - paper) >= 45 for name in ("ink", "faint", "accent"))


def test_waste_has_a_pattern() -> None:
    """Dead rows, padding and recomputed tokens are filled with one, useful tokens with a plain colour."""
    assert {kind for kind in KINDS if fill(kind).startswith("url(")} == {"dead", "padding", "recompute"}
    assert all(f'id="p-{name}"' in patterns() for name in PATTERNS)


def test_a_picture_changes_its_theme() -> None:
    """Every colour of the light theme becomes the dark one's, or the page's variable; no two are mixed up."""
    drawn = "".join(f'<path id="{name}" fill="{both["light"]}"/>' for name, both in COLOURS.items())

    assert in_theme(drawn, "light") == drawn
    for name, both in COLOURS.items():
        assert f'id="{name}" fill="{both["dark"]}"' in in_theme(drawn, "dark")
        assert f'id="{name}" fill="var(--{name})"' in in_variables(drawn)
        assert stylesheet().count(f"--{name}:") == 2
