import re
from itertools import pairwise
from pathlib import Path

import pytest

from chairlift.core.config import POLICIES
from chairlift.lab.report.grid import TOKEN_KINDS
from chairlift.lab.report.slots import HOVERED, LEFT, PLOT, Panel, caption, slot_picture
from chairlift.lab.report.sources import RunView
from tests.lab.report.making import engine_run, staggered
from tests.sim.helpers import SECOND, arrival, runner


@pytest.fixture(scope="module")
def views(tmp_path_factory: pytest.TempPathFactory) -> dict[str, RunView]:
    """The staggered load under each policy."""
    folder = tmp_path_factory.mktemp("runs")
    return {policy: RunView(engine_run(folder / policy, policy), policy) for policy in POLICIES}


def panel(view: RunView, capacity: int | None = 8) -> Panel:
    """Of a run that has a grid."""
    assert view.grid is not None
    return Panel(view.label, view.grid, view.zero, view.zero + view.length, capacity)


def test_the_policies_stand_above_each_other_on_one_axis(views: dict[str, RunView]) -> None:
    """Equal times lie under each other; what was computed for nothing is under the closed policies alone."""
    panels = [panel(view) for view in views.values()]
    picture = slot_picture(panels, 0, 14 * SECOND)

    for view in views.values():
        told = picture.tokens[view.label]
        assert told == {kind: sum(getattr(step, kind) for step in view.steps) for kind in TOKEN_KINDS}
        assert picture.steps[view.label] == len(view.steps)
    assert (
        picture.tokens["continuous"]["dead"] == 0 < picture.tokens["dynamic"]["dead"] < picture.tokens["static"]["dead"]
    )
    tops = [float(found) for found in re.findall(r'y="([\d.]+)" text-anchor="end" font-weight', picture.svg)]
    assert all(after - before > 100 for before, after in pairwise(tops))


def test_cells_lie_in_the_plot(views: dict[str, RunView]) -> None:
    """Between the axis' ends, in whatever window."""
    for start, stop in ((0, 14 * SECOND), (3 * SECOND, 4 * SECOND)):
        svg = slot_picture([panel(views["dynamic"])], start, stop).svg
        boxes = re.findall(r"M([\d.]+),[\d.]+h([\d.]+)v", " ".join(re.findall(r'class="cells"[^>]+', svg)))
        assert boxes
        assert all(float(x) >= LEFT and float(x) + float(wide) <= LEFT + PLOT + 0.6 for x, wide in boxes)


def test_useful_tokens_are_plain_and_waste_is_patterned(views: dict[str, RunView]) -> None:
    """So that nobody needs colours to tell them apart."""
    svg = slot_picture([panel(views["static"])], 0, 14 * SECOND).svg
    filled = dict(re.findall(r'data-kind="(\w+)" fill="([^"]+)"', svg))

    assert {kind for kind, how in filled.items() if how.startswith("url(")} == {"dead", "padding"}
    assert {kind for kind, how in filled.items() if how.startswith("#")} == {"prefill", "decode"}


def test_slots_that_nobody_ever_took_are_drawn_or_told(views: dict[str, RunView]) -> None:
    """Of eight, all are drawn where half of them or more were taken; of 256 it says how many were."""
    continuous = panel(views["continuous"])

    assert continuous.rows == 8
    assert (
        f"{continuous.grid.slots} of 256 slots used" in slot_picture([panel(views["continuous"], 256)], 0, SECOND).svg
    )


def test_a_stay_says_what_it_is(views: dict[str, RunView]) -> None:
    """Under a pointer, as long as they are not too many."""
    told = {"request-0": "prompt 24 <tokens>"}
    base = panel(views["continuous"])
    svg = slot_picture([Panel("a", base.grid, base.zero, base.end, 8, told)], 0, 14 * SECOND).svg

    assert "<title>request-0: prompt 24 &lt;tokens&gt;</title>" in svg
    assert svg.count("<title>") == 24


def test_a_long_run_is_a_small_picture(tmp_path: Path) -> None:
    """Six hundred requests, drawn whole: no more than a cell a pixel and slot, and no words for each."""
    run = engine_run(tmp_path / "long", "continuous", staggered(HOVERED + 1, gap=SECOND // 10), jump=True)
    view = RunView(run, "long")
    picture = slot_picture([panel(view)], 0, view.length)

    assert sum(picture.tokens["long"].values()) == sum(
        step.prefill + step.decode + step.recompute + step.padding + step.dead for step in view.steps
    )
    assert "<title>" not in picture.svg
    assert len(picture.svg) < 300_000


def test_low_rows_have_no_single_tokens(tmp_path: Path) -> None:
    """A hundred slots are drawn as stretches, however close one looks."""
    crowd = [arrival(f"r{n}", tokens=8, answer=40) for n in range(100)]
    run = engine_run(tmp_path / "wide", "continuous", crowd, runner(num_blocks=1024), max_num_seqs=100)
    view = RunView(run, "wide")
    start = view.steps[1].planned
    svg = slot_picture([panel(view, 100)], start, start + view.length // 10).svg

    assert 90 < len(re.findall(r"M[\d.]+,[\d.]+h", "".join(re.findall(r'class="cells"[^>]+', svg)))) < 250


def test_the_caption_says_what_is_shown(views: dict[str, RunView]) -> None:
    """All of it, or from where to where."""
    only = [panel(views["continuous"])]
    length = views["continuous"].length

    assert caption(slot_picture(only, 0, length), length) == "The whole run is shown."
    assert "from 2.00 to 3.00 s, of 8.44 s" in caption(slot_picture(only, 2 * SECOND, 3 * SECOND), length)
