from dataclasses import replace

import pytest

from chairlift.core.errors import ConfigError
from chairlift.core.plan import RowKind, StepOutcome, StepPlan
from chairlift.devices.shape import StepShape
from chairlift.engine.sampling import BatchSampler
from chairlift.lab.calibration.measure import BURST, joined, measure
from chairlift.lab.calibration.probes import ProbeLimits, probes
from chairlift.lab.calibration.steps import Probe, Row, StepTimer
from chairlift.runners.simulated import SimulatedRunner
from tests.sim.helpers import device_model, runner

DECODE = Probe("decode", (Row(99),) * 3)
MIXED = Probe("mixed", (Row(99), Row(32, 48)))


class Watched(SimulatedRunner):
    """Keeps the plans."""

    def __init__(self, blocks: int = 64) -> None:
        plain = runner(blocks)
        super().__init__(plain.model, plain.capacity())
        self.plans: list[StepPlan] = []

    def execute(self, plan: StepPlan) -> StepOutcome:
        self.plans.append(plan)
        return super().execute(plan)


def test_a_probe_is_executed_as_the_step_it_describes() -> None:
    """Rows with blocks of their own, decodes first, every row sampled; the time is the device's."""
    watched = Watched()
    time = StepTimer(watched, BatchSampler(), 4).time(MIXED)
    plan = watched.plans[0]

    assert StepShape.of(plan) == MIXED.shape() == StepShape.decode(1, 100).beside(StepShape.prefill(1, 48, start=32))
    assert time == device_model().device_time(MIXED.shape())
    assert plan.kinds == (RowKind.DECODE, RowKind.PREFILL)
    assert [list(table) for table in plan.tables] == [list(range(7)), list(range(7, 12))]
    assert len(plan.tokens) == sum(plan.counts) == plan.token_counts.total


def test_each_probe_is_measured_once_a_round() -> None:
    """One round more goes before, and decodes run in rows; jittered prompts count for the probe they stand for."""
    watched = Watched()
    seen: list[tuple[int, int]] = []
    measured = measure(
        StepTimer(watched, BatchSampler(), 4), [DECODE, MIXED], rounds=7, show=lambda *done: seen.append(done)
    )

    assert [len(sample.times) for sample in measured.samples] == [7, 7]
    assert [sample.shape for sample in measured.samples] == [DECODE.shape(), MIXED.shape()]
    assert len(set(measured.samples[0].times)) == 1
    assert len(set(measured.samples[1].times)) == 7
    assert seen[-1] == (16, 16)
    assert len(watched.plans) == 8 * (BURST + 1)


def test_the_first_decode_of_a_row_does_not_count() -> None:
    """It comes after a step of another shape; of the others the median does."""

    class Settling(Watched):
        def execute(self, plan: StepPlan) -> StepOutcome:
            self.plans.append(plan)
            return StepOutcome([0] * len(plan), (900, 100, 700, 120)[(len(self.plans) - 1) % BURST])

    measured = measure(StepTimer(Settling(), BatchSampler(), 4), [DECODE], rounds=2)
    assert measured.samples[0].times == (120, 120)
    assert measured.settling == (780, 780)


def test_measuring_goes_on_where_it_ended() -> None:
    """Two goes of one and two rounds are three rounds; the round that does not count is made once."""
    watched, again = Watched(), Watched()
    timer = StepTimer(watched, BatchSampler(), 4)
    parts = [measure(timer, [DECODE, MIXED], rounds=1), measure(timer, [DECODE, MIXED], rounds=2, first=1)]
    whole = measure(StepTimer(again, BatchSampler(), 4), [DECODE, MIXED], rounds=3)

    assert joined(parts) == whole
    assert len(watched.plans) == len(again.plans) == 4 * (BURST + 1)


def test_what_the_pool_does_not_hold_is_named() -> None:
    """And refused where it is asked for by itself, or where nothing is left."""
    timer = StepTimer(Watched(12), BatchSampler(), 4)

    assert measure(timer, [DECODE, replace(MIXED, rows=MIXED.rows[:1])], rounds=1).skipped == (DECODE,)
    with pytest.raises(ConfigError, match="need 21 KV blocks; the pool has 12"):
        timer.time(DECODE)
    with pytest.raises(ConfigError, match="holds none"):
        measure(timer, [DECODE])
    with pytest.raises(ConfigError, match="--rounds is 0"):
        measure(timer, [MIXED], rounds=0)


def test_probes_of_a_whole_calibration_fit_their_limits_pool() -> None:
    """A pool for all rows at full length holds every one."""
    limits = ProbeLimits(128, 8, 256)
    timer = StepTimer(Watched(8 * 16), BatchSampler(), 8)

    assert all(timer.fits(probe) for probe in probes(limits))
