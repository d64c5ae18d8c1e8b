from pathlib import Path

import pytest

from chairlift.advisor.evaluate.base import problem_of
from chairlift.advisor.evaluate.pool import Pool
from chairlift.advisor.evaluate.targets import Targets
from chairlift.advisor.tune.advice import Tuned, tune
from chairlift.advisor.tune.report import verified_lines
from chairlift.advisor.tune.searching import Budget
from chairlift.advisor.tune.verify import DEFAULTS, verify
from chairlift.core.errors import ConfigError
from chairlift.devices.registry import find_device_model
from chairlift.lab.client.options import Stop
from chairlift.lab.subjects import ServerSubject, SimulatedSubject
from tests.advisor.evaluate.making import rounds

NAME = "l4/smollm2-135m"
LOAD = rounds("arrivals=burst arrivals.size=24 prompt=20 output=10", count=2)


def tuned(targets: Targets | None = None) -> Tuned:
    """Static batching."""
    targets = targets or Targets()
    asked = problem_of(find_device_model(NAME), LOAD, targets, {})
    with Pool(1) as pool:
        return tune(pool, asked, LOAD, targets, "static", Budget(trials=8))


async def test_a_simulated_target_is_predicted_exactly(tmp_path: Path) -> None:
    """Every repeat runs everybody once, each kept in a folder of its own; the winner is better than the defaults."""
    found = tuned()
    told: list[str] = []
    checked = await verify(SimulatedSubject(f"sim:{NAME}"), found, tmp_path, repeats=2, told=told.append)

    assert [one.label for one in checked.candidates][-1] == DEFAULTS
    assert (
        len(told) == 2 * len(checked.candidates) == len({run.folder for one in checked.candidates for run in one.runs})
    )
    for one in checked.candidates:
        assert one.error == pytest.approx(0, abs=1e-6)
        assert len(one.values) == 2
    assert checked.winner.label == "1"
    assert checked.better(found.targets) is True
    text = "\n".join(verified_lines(checked, found.targets))
    assert "Winner: 1" in text


async def test_a_limit_that_is_broken_there_is_told(tmp_path: Path) -> None:
    """Value over limit, and it is not the winner while another keeps it."""
    found = tuned(Targets(e2e_p99=1_000_000))
    checked = await verify(SimulatedSubject(f"sim:{NAME}"), found, tmp_path, repeats=1)

    assert all(one.violation > 1 for one in checked.candidates)
    assert checked.better(found.targets) is None


async def test_a_server_cannot_be_verified_on(tmp_path: Path) -> None:
    """Its settings are its own."""

    def make() -> None:
        raise AssertionError("nothing is to be run")

    with pytest.raises(ConfigError, match="server with settings of its own"):
        await verify(ServerSubject("http://localhost:1", make), tuned(), tmp_path)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="--repeats is 0"):
        await verify(SimulatedSubject(f"sim:{NAME}"), tuned(), tmp_path, repeats=0)


async def test_an_interrupt_ends_it(tmp_path: Path) -> None:
    """What was run is kept."""
    stop = Stop()
    stop.request()
    with pytest.raises(ConfigError, match="interrupted"):
        await verify(SimulatedSubject(f"sim:{NAME}"), tuned(), tmp_path, stop=stop)
