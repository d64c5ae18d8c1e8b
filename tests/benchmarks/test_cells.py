import pytest

from benchmarks._cells import CELLS, COMMON, FIGURES, Compared, aim, compare, figures
from chairlift.core.config import SchedulerConfig
from chairlift.devices.registry import find_device_model
from chairlift.lab.loads.describe import describe
from chairlift.lab.loads.files import load_from_pairs
from chairlift.lab.loads.schedule import Schedule
from chairlift.lab.simulation import simulate_load
from chairlift.records.client_summary import summarize


def test_there_are_twelve_cells_and_every_policy_is_in_them() -> None:
    """Settings go together, and the longest request of every load fits."""
    assert len({cell.name for cell in CELLS}) == 12
    for cell in CELLS:
        settings = {**COMMON, **cell.settings}
        del settings["num_kv_blocks"]
        config = SchedulerConfig(**settings)
        assert cell.name.startswith(config.policy)
        if cell.load:
            assert describe(Schedule(load_from_pairs(cell.load.split()))).longest <= config.max_model_len
    assert sum(not cell.load for cell in CELLS) == 1


def test_the_error_is_of_the_mean_and_the_spread_of_the_ratios() -> None:
    """Half the range; inside the repeats lies what some of them are above and some below."""
    one = Compared(real=(1.0, 2.0, 4.0), simulated=(1.1, 1.9, 4.4))

    assert one.error == pytest.approx(7.4 / 7 - 1)
    assert one.ratios == pytest.approx((1.1, 0.95, 1.1))
    assert one.spread == pytest.approx(0.075)
    assert one.within_repeats
    assert not Compared((1.0, 2.0), (1.1, 2.2)).within_repeats


@pytest.mark.parametrize(
    ("real", "simulated", "met"),
    [((1.0, 1.0), (1.04, 1.04), True), ((1.0, 1.0), (1.06, 1.06), False), ((0.9, 1.3), (1.2, 1.2), True)],
)
def test_an_aim_is_met_by_the_error_or_by_the_repeats(
    real: tuple[float, ...],
    simulated: tuple[float, ...],
    met: bool,  # noqa: FBT001 - the expectation
) -> None:
    """Five per cent, or within what repeats differ by."""
    assert Compared(real, simulated).met(aim("E2E p50")) is met


def test_99th_percentiles_have_a_wider_aim() -> None:
    """Ten per cent; the others five."""
    assert {name: aim(name) for name in FIGURES if aim(name) == 0.10}.keys() == {"TTFT p99", "TBT p99", "E2E p99"}


def test_what_nobody_could_observe_in_a_repeat_is_not_compared() -> None:
    """The rest is."""
    full = dict.fromkeys(FIGURES, 2.0)
    found = compare([full, {**full, "TBT p50": None}], [full, full])

    assert set(FIGURES) - set(found) == {"TBT p50"}
    assert found["tokens/s"].error == 0


def test_figures_are_those_of_a_summary() -> None:
    """By the names that the page uses."""
    load = load_from_pairs(["arrivals=poisson", "arrivals.rate=20", "prompt=60", "output=20", "count=12"])
    run = simulate_load(Schedule(load), find_device_model("h100-sxm/llama-3.1-8b"), SchedulerConfig())
    summary = summarize(run.traces)
    found = figures(summary)

    assert tuple(found) == FIGURES
    assert found["tokens/s"] == summary.rates[0].value
    assert found["TTFT p99"] == summary.distributions[0].percentiles[99]
