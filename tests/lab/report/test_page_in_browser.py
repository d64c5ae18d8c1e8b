from typing import get_args

import pytest

from chairlift.core.config import POLICIES
from chairlift.lab.report.palette import Theme, colour
from chairlift.lab.report.report import Report, write_report
from chairlift.lab.report.sources import open_source
from chairlift.lab.runs.store import RunStore
from tests.lab.report.browser import Look, chromium, look
from tests.lab.report.making import engine_run, staggered

THEMES: tuple[Theme, ...] = get_args(Theme)


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Report:
    """Three policies on one load."""
    chromium()
    folder = tmp_path_factory.mktemp("reports")
    runs = [engine_run(folder / policy, policy, staggered(10)) for policy in POLICIES]
    return write_report(open_source([str(run) for run in runs], RunStore(folder)), folder / "report")


@pytest.fixture(scope="module")
def looks(report: Report, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Look]:
    """The page as two readers see it, and one that is broken in every way, to see that it would be noticed."""
    broken = tmp_path_factory.mktemp("broken") / "page.html"
    broken.write_text(
        '<body style="width:3000px"><script>console.log("hm"); throw new Error("no")</script>'
        '<figure><svg width="0" height="0"></svg></figure><img src="missing.png">',
        encoding="utf-8",
    )
    seen = look(
        [
            (report.page, "light", 1100),
            (report.page, "dark", 1100),
            (report.page, "light", 400),
            (broken, "light", 1100),
        ]
    )
    return dict(zip(("light", "dark", "narrow", "broken"), seen, strict=True))


def test_the_page_needs_nothing_but_itself(looks: dict[str, Look]) -> None:
    """It asks for no other address, neither in the light nor in the dark, and nothing complains."""
    for scheme in ("light", "dark"):
        assert looks[scheme].requests == []
        assert looks[scheme].complaints == []


def test_every_picture_is_seen(looks: dict[str, Look], report: Report) -> None:
    """Each that lies beside the page is in it, with a size, and none makes the page wider than its window."""
    for scheme in ("light", "dark"):
        seen = looks[scheme]
        assert len(seen.pictures) == len(report.pictures) >= 6
        assert all(width > 300 and height > 60 for width, height in seen.pictures)
        assert not seen.wide
        assert len(seen.screenshot) > 20_000


def test_the_page_is_as_dark_as_its_reader_prefers(looks: dict[str, Look]) -> None:
    """Paper, ink and cells change with the preference."""
    for scheme in THEMES:
        assert looks[scheme].background == _rgb(colour("paper", scheme))
        assert looks[scheme].ink == _rgb(colour("ink", scheme))
        assert _rgb(colour("prefill", scheme)) in looks[scheme].cells
    assert looks["light"].screenshot != looks["dark"].screenshot


def test_a_broken_page_is_noticed(looks: dict[str, Look]) -> None:
    """A script's error, its output, a picture without a size, a missing file, too wide a page: each of them shows."""
    broken = looks["broken"]

    assert any("missing.png" in address for address in broken.requests)
    assert any("no" in one for one in broken.complaints)
    assert any("hm" in one for one in broken.complaints)
    assert [max(size) for size in broken.pictures] == [0]
    assert broken.wide


def test_the_page_fits_a_narrow_window(looks: dict[str, Look]) -> None:
    """On a telephone tables and pictures, which stay legible, are scrolled by themselves, and the page is not."""
    assert not looks["narrow"].wide
    assert all(width >= 600 for width, _ in looks["narrow"].pictures)


def _rgb(hexadecimal: str) -> str:
    red, green, blue = (int(hexadecimal[at : at + 2], 16) for at in (1, 3, 5))
    return f"rgb({red}, {green}, {blue})"
