from collections.abc import Sequence
from itertools import pairwise
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from chairlift.core.reasons import Reason
from chairlift.lab.report.cells import Cell, Window, cells, clipped, shown
from chairlift.lab.report.grid import NOTHING, Grid, grid, total
from chairlift.runners.simulated import SimulatedRunner
from chairlift.sim.events import OpenLoop
from chairlift.sim.loop import Simulation
from tests.core.strategies import SEEDS, random_setup
from tests.sim.helpers import SECOND, Witness, arrival, random_arrivals, random_model, random_others, run, runner


def grid_of(witness: Witness) -> Grid:
    """Of records that were witnessed."""
    found = grid(witness.steps, witness.shares, witness.decisions)
    assert found is not None
    return found


def random_grid(of_setup: int, seed: int) -> tuple[Grid, Witness]:
    """Of a random load under random settings on a random device."""
    setup, draw = random_setup(of_setup), Random(seed)
    span = 10 ** draw.randint(5, 10)
    witness = Witness()
    device = SimulatedRunner(random_model(draw), setup.capacity)
    source = OpenLoop(random_arrivals(draw, setup, span), random_others(draw, setup, span))
    Simulation(setup.config, device, source, observers=[witness], jump=draw.random() < 0.7).run()
    found = grid(witness.steps, witness.shares, witness.decisions)
    return found or Grid((), 0, (), (), (), (0,)), witness


@settings(max_examples=60)
@given(SEEDS, SEEDS, st.floats(0, 1), st.floats(0, 1), st.floats(0.2, 3000))
def test_the_picture_has_exactly_the_steps_tokens(
    of_setup: int, seed: int, one: float, other: float, pixels: float
) -> None:
    """At any scale and in any window: the cells' tokens by kind are the shown steps' own counts."""
    found, _ = random_grid(of_setup, seed)
    if not found.steps:
        return
    begin, length = found.starts[0], found.ends[-1] - found.starts[0]
    start, stop = sorted((begin + int(one * length), begin + int(other * length)))
    for window in (Window(start, stop, max(1.0, length / pixels)), Window(begin, found.ends[-1], length / pixels)):
        part = shown(clipped(found, window), window)
        drawn = list(cells(found, window))

        assert total(cell.tokens for cell in drawn) == part.tokens
        assert apart(drawn)
        assert all(cell.start >= window.start for cell in drawn)


@settings(max_examples=60)
@given(SEEDS, SEEDS, st.lists(st.floats(0, 1), max_size=3))
def test_windows_side_by_side_have_every_step_once(of_setup: int, seed: int, cuts: list[float]) -> None:
    """Runs of equal steps that reach over an edge are divided: nothing is lost and nothing is seen twice."""
    found, witness = random_grid(of_setup, seed)
    if not found.steps:
        return
    begin, length = found.starts[0], found.ends[-1] - found.starts[0]
    edges = [begin, *sorted(begin + int(cut * length) for cut in cuts), found.ends[-1] + 1]
    windows = [Window(start, stop, length / 500) for start, stop in pairwise(edges)]
    drawn = total(cell.tokens for window in windows for cell in cells(found, window))

    assert drawn == total(
        (step.prefill, step.decode, step.recompute, step.padding, step.dead) for step in witness.steps
    )
    assert sum(shown(clipped(found, window), window).steps for window in windows) == found.repeats[-1]


@settings(max_examples=60)
@given(SEEDS, SEEDS)
def test_nobody_shares_a_slot_and_no_more_are_taken_than_run(of_setup: int, seed: int) -> None:
    """In each step at most one stay has a slot; those with a share are the step's rows."""
    found, witness = random_grid(of_setup, seed)
    for at, step in enumerate(found.steps):
        here = [stay for stay in found.stays if stay.first <= at < stay.end]
        shares = [s.share for stay in here for s in stay.stretches if s.first <= at < s.end]
        assert len({stay.slot for stay in here}) == len(here) == len(shares)
        assert sum(share != NOTHING for share in shares) == step.rows
    if not any(decision.reason == Reason.WAITING_FOR_SWITCH for decision in witness.decisions):
        assert found.slots <= 6


def test_a_preempted_request_gives_its_slot_up() -> None:
    """And has another stay when it comes again, which begins with what is paid again."""
    arrivals = [arrival("a", tokens=30, answer=40), arrival("b", 1, tokens=30, answer=40)]
    _, witness = run(arrivals, runner(num_blocks=6, block_size=16), policy="continuous", enable_prefix_caching=False)
    found = grid_of(witness)

    first, second = (stay for stay in found.stays if stay.request_id == "b")

    assert witness.requests["b"].preemptions == 1
    assert first.end < second.first
    assert second.stretches[0].share[2] > 0


def test_a_chunked_prompt_that_waits_for_the_budget_keeps_its_slot() -> None:
    """Between two of its chunks it rests, and nobody else gets the slot."""
    arrivals = [arrival("a", tokens=8, answer=30), arrival("b", SECOND // 100, tokens=40, answer=2)]
    _, witness = run(
        arrivals, policy="continuous", max_num_batched_tokens=16, prefill_interval=3, enable_chunked_prefill=True,
        max_num_seqs=2,
    )  # fmt: skip
    found = grid_of(witness)

    (stay,) = (stay for stay in found.stays if stay.request_id == "b")

    assert NOTHING in [stretch.share for stretch in stay.stretches]
    assert stay.stretches[0].share[0] > 0


def test_a_closed_batchs_members_keep_their_slots_to_its_end() -> None:
    """Dead rows included: all stays of a batch end together."""
    arrivals = [arrival(f"r{n}", tokens=4 + n, answer=3 + 5 * n) for n in range(3)]
    _, witness = run(arrivals, policy="static", batch_size=3)
    found = grid_of(witness)

    assert [stay.slot for stay in found.stays] == [0, 1, 2]
    assert {stay.end for stay in found.stays} == {len(found.steps)}
    assert [stay.stretches[0].share[3] for stay in found.stays] == [2, 1, 0]


def test_an_id_that_is_used_again_is_another_request() -> None:
    """It does not rest from the first one's end to the second one's beginning."""
    arrivals = [arrival("a", answer=2), arrival("b", answer=90), arrival("a", SECOND, answer=2)]
    _, witness = run(arrivals, policy="continuous")

    assert [stay.request_id for stay in grid_of(witness).stays].count("a") == 2


def test_where_there_is_room_a_cell_is_a_token() -> None:
    """A prompt of eight and its padding of two are ten cells, and each decode is one."""
    arrivals = [arrival("a", tokens=8, answer=3), arrival("b", tokens=10, answer=3)]
    _, witness = run(arrivals, policy="static", batch_size=2)
    found = grid_of(witness)

    drawn = [cell for cell in cells(found, Window(0, found.ends[-1], 1000.0)) if cell.slot == 0]

    assert [cell.kind for cell in drawn] == ["prefill"] * 8 + ["padding"] * 2 + ["decode"] * 2
    assert {sum(cell.tokens) for cell in drawn} == {1}


def apart(drawn: Sequence[Cell]) -> bool:
    """Whether no two cells of a slot overlap, rounding aside."""
    ends: dict[int, float] = {}
    for cell in drawn:
        if cell.start < ends.get(cell.slot, 0) - 1e-3 or cell.stop < cell.start:
            return False
        ends[cell.slot] = cell.stop
    return True
