"""The main picture: slots over time, a panel a run, one above the other on one time axis.

A row is a slot of the batch, and a cell a token where there is room for one. Drawn as SVG by hand, since areas with
patterns are what the charts' library does not have: all cells of a kind in a panel are one path, so that a picture of
tens of thousands of cells stays small.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from textwrap import wrap
from typing import Final

from chairlift.core.request import Nanoseconds
from chairlift.lab.report.cells import RESTING, Cell, Window, cells, clipped, shown
from chairlift.lab.report.grid import TOKEN_KINDS, Grid, total
from chairlift.lab.report.palette import KINDS, colour, fill, patterns
from chairlift.lab.report.scale import number, seconds, ticks

WIDTH: Final = 980
LEFT: Final = 132
RIGHT: Final = 18
PLOT: Final = WIDTH - LEFT - RIGHT
"""Pixels of the time axis."""
FONT: Final = "system-ui, -apple-system, 'Segoe UI', 'Liberation Sans', Arial, sans-serif"
_TOP, _BETWEEN, _BOTTOM = 40, 22, 44
_HEIGHT, _LEAST_HEIGHT = 224, 66
"""Of a panel: at most and at least."""
_MOST_ROW, _LEAST_ROW = 15, 2
_APART: Final = 5
"""Pixels: the height of rows from which on rows and tokens are drawn apart."""
_LABEL: Final = 15
"""Letters of a run's label in a line."""
HOVERED: Final = 600
"""Stays that tell what they are under a pointer; more of them would make the page heavy."""
_LEGEND: Final[Mapping[str, str]] = {**KINDS, RESTING: "slot held, resting", "empty": "empty"}


@dataclass(frozen=True)
class Panel:
    """One run in the picture."""

    label: str
    grid: Grid
    zero: Nanoseconds
    """The moment on the run's clock at which the picture's time is zero."""
    end: Nanoseconds
    """When its last result left."""
    capacity: int | None = None
    """Slots that the policy offers, where it is known."""
    prompts: Mapping[str, str] | None = None
    """What each request is, for a pointer that rests on it."""

    @property
    def rows(self) -> int:
        """Slots that are drawn: all that there are, unless most of them were never taken."""
        used = max(1, self.grid.slots)
        return self.capacity if self.capacity is not None and used <= self.capacity <= 2 * used else used

    @property
    def row_height(self) -> float:
        return min(_MOST_ROW, max(_LEAST_ROW, _HEIGHT / self.rows))

    @property
    def height(self) -> float:
        return max(_LEAST_HEIGHT, self.rows * self.row_height)


@dataclass(frozen=True)
class SlotPicture:
    """A picture and what is in it."""

    svg: str
    start: Nanoseconds
    """Of the part that is shown, since each run's zero."""
    stop: Nanoseconds
    tokens: Mapping[str, Mapping[str, int]]
    """By panel and kind, as drawn; the steps say the same."""
    steps: Mapping[str, int]
    """By panel."""


def slot_picture(panels: Sequence[Panel], start: Nanoseconds, stop: Nanoseconds) -> SlotPicture:
    """Draw the part of the runs from start to stop, in nanoseconds since each run's zero; stop > start."""
    pixel = (stop - start) / PLOT
    scale = _Scale(start, pixel)
    body: list[str] = []
    tokens: dict[str, dict[str, int]] = {}
    steps: dict[str, int] = {}
    kinds: set[str] = set()
    bottom = float(_TOP)
    for panel in panels:
        window = Window(panel.zero + start, panel.zero + stop, pixel, single=panel.row_height >= _APART)
        drawn = list(cells(panel.grid, window))
        kinds |= {cell.kind for cell in drawn}
        tokens[panel.label] = dict(zip(TOKEN_KINDS, total(cell.tokens for cell in drawn), strict=True))
        steps[panel.label] = shown(clipped(panel.grid, window), window).steps
        body += _panel(panel, drawn, scale, bottom, stop)
        bottom += panel.height + _BETWEEN
    bottom -= _BETWEEN
    height = bottom + _BOTTOM
    size = f'viewBox="0 0 {WIDTH} {_short(height)}" width="{WIDTH}" height="{_short(height)}"'
    about = f'font-family="{FONT}" font-size="12" role="img" aria-label="Slots over time"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} {about}>',
        patterns(),
        f'<rect width="{WIDTH}" height="{_short(height)}" fill="{colour("paper")}"/>',
        *_legend([*(kind for kind in _LEGEND if kind in kinds), "empty"]),
        *_axis(scale, start, stop, bottom),
        *body,
        "</svg>",
    ]
    return SlotPicture("".join(parts), start, stop, tokens, steps)


@dataclass(frozen=True, slots=True)
class _Scale:
    """From time since a run's zero to pixels."""

    start: Nanoseconds
    pixel: float

    def x(self, time: float) -> float:
        return LEFT + min(float(PLOT), max(0.0, (time - self.start) / self.pixel))


def _panel(panel: Panel, drawn: Sequence[Cell], scale: _Scale, top: float, stop: Nanoseconds) -> Iterator[str]:
    """Background, cells, label, and the line at the end."""
    rows, row = panel.rows, panel.row_height
    gap = 1.0 if row >= _APART else 0.0
    end = scale.x(panel.end - panel.zero)
    begin = scale.x(0)
    width = max(0.0, end - begin)
    yield "".join(
        f'<rect x="{_short(begin)}" y="{_short(top + at * row)}" width="{_short(width)}" '
        f'height="{_short(row - gap)}" fill="{colour("empty")}"/>'
        for at in range(rows)
    )
    paths: dict[str, list[str]] = {}
    for cell in drawn:
        left, right = scale.x(cell.start - panel.zero), scale.x(cell.stop - panel.zero)
        wide = right - left
        wide = wide - 0.5 if wide >= 2 else max(wide, 0.5)
        y = top + cell.slot * row
        paths.setdefault(cell.kind, []).append(
            f"M{_short(left)},{_short(y)}h{_short(wide)}v{_short(row - gap)}h-{_short(wide)}z"
        )
    for kind, pieces in sorted(paths.items()):
        filled = colour(kind) if kind == RESTING else fill(kind)
        yield f'<path class="cells" data-kind="{kind}" fill="{filled}" d="{"".join(pieces)}"/>'
    if panel.end - panel.zero <= stop:
        x, high = _short(end + 0.5), _short(rows * row + 5)
        yield f'<path d="M{x},{_short(top - 3)}v{high}" stroke="{colour("ink")}" fill="none"/>'
    yield from _label(panel, top)
    yield from _hovers(panel, scale, top)


def _label(panel: Panel, top: float) -> Iterator[str]:
    taken, rows = panel.grid.slots, panel.rows
    lines = [f"{rows} slot{'s' * (rows != 1)}", f"done at {seconds(panel.end - panel.zero)}"]
    if panel.capacity is not None and panel.capacity != rows:
        lines[0] = f"{taken} of {panel.capacity} slots used"
    y = top + 12
    for name in wrap(panel.label, _LABEL, max_lines=2, placeholder=" …"):
        yield (
            f'<text x="{LEFT - 12}" y="{_short(y)}" text-anchor="end" font-weight="600" font-size="12.5" '
            f'fill="{colour("ink")}">{escape(name)}</text>'
        )
        y += 15
    for line in lines:
        yield (
            f'<text x="{LEFT - 12}" y="{_short(y)}" text-anchor="end" font-size="11" '
            f'fill="{colour("faint")}">{escape(line)}</text>'
        )
        y += 14


def _hovers(panel: Panel, scale: _Scale, top: float) -> Iterator[str]:
    """What each stay is, for a pointer that rests on it."""
    row, grid = panel.row_height, panel.grid
    stays = [
        (stay, scale.x(grid.starts[stay.first] - panel.zero), scale.x(grid.ends[stay.end - 1] - panel.zero))
        for stay in grid.stays
    ]
    visible = [one for one in stays if one[2] > one[1]]
    if len(visible) > HOVERED:
        return
    told = panel.prompts or {}
    for stay, left, right in visible:
        y, words = top + stay.slot * row, told.get(stay.request_id, "")
        title = escape(f"{stay.request_id}{': ' if words else ''}{words}")
        yield (
            f'<rect x="{_short(left)}" y="{_short(y)}" width="{_short(right - left)}" height="{_short(row)}" '
            f'fill-opacity="0"><title>{title}</title></rect>'
        )


def _legend(kinds: Iterable[str]) -> Iterator[str]:
    x = float(LEFT)
    for kind in kinds:
        name = _LEGEND[kind]
        filled = colour(kind) if kind in {RESTING, "empty"} else fill(kind)
        outline = f' stroke="{colour("rule")}"' if kind in {RESTING, "empty"} else ""
        yield f'<rect x="{_short(x)}" y="8" width="20" height="12" fill="{filled}"{outline}/>'
        yield f'<text x="{_short(x + 26)}" y="18" fill="{colour("ink")}">{name}</text>'
        x += 26 + 6.2 * len(name) + 20


def _axis(scale: _Scale, start: Nanoseconds, stop: Nanoseconds, bottom: float) -> Iterator[str]:
    """The time axis, with lines through all panels."""
    unit, name = (1e9, "s") if stop - start >= 2_000_000_000 else (1e6, "ms")
    for value in ticks(start / unit, stop / unit, 11):
        x = _short(scale.x(value * unit))
        yield f'<path d="M{x},{_TOP - 4}V{_short(bottom + 4)}" stroke="{colour("rule")}" stroke-width="0.6"/>'
        yield (
            f'<text x="{x}" y="{_short(bottom + 18)}" text-anchor="middle" font-size="11" '
            f'fill="{colour("faint")}">{value:,.10g}</text>'
        )
    yield (
        f'<text x="{LEFT + PLOT / 2}" y="{_short(bottom + 36)}" text-anchor="middle" fill="{colour("ink")}">'
        f"time since the first request was due ({name})</text>"
    )


def _short(value: float) -> str:
    """A coordinate in as few characters as do."""
    return f"{value:.2f}".rstrip("0").rstrip(".")


def caption(picture: SlotPicture, length: Nanoseconds) -> str:
    """What part is shown, in words."""
    if picture.start <= 0 and picture.stop >= length:
        return "The whole run is shown."
    begin, end = number(picture.start / 1e9), number(picture.stop / 1e9)
    return (
        f"Shown are the steps that begin from {begin} to {end} s, of {seconds(length)}; --from and --to choose others."
    )
