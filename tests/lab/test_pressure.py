from collections.abc import Iterator
from pathlib import Path

import pytest

from chairlift.lab.pressure import Pressure, of_samples, of_steps
from chairlift.lab.studies.verdicts import _no_rise_of_a_server
from chairlift.records.client import ServerSample
from tests.lab.sim_subject import sim_study


def samples() -> Iterator[ServerSample]:
    """A server that had preempted nine times before the run, and twice in it; one sample failed."""
    yield ServerSample(0, 0, running=0, waiting=0, kv_usage=0.0, preemptions=9)
    yield ServerSample(1, 0, running=7, waiting=30, kv_usage=0.95, preemptions=10)
    yield ServerSample(2, 0, error="timed out")
    yield ServerSample(3, 0, running=8, waiting=3, kv_usage=0.4, preemptions=11)


def test_a_servers_samples_tell_the_highest() -> None:
    """Counters from the first sample on; and that it was sampled."""
    found = of_samples(list(samples()))

    assert found == Pressure(running=8, waiting=30, kv_share=0.95, preemptions=2, sampled=True)
    assert str(found).endswith("(as sampled)")


def test_what_a_server_does_not_say_is_not_made_up() -> None:
    """Nothing, or a part."""
    assert of_samples([]) == Pressure(None, None, None, None, sampled=True)
    assert str(of_samples([])).startswith("the target does not say")
    assert str(of_samples([ServerSample(0, 0, waiting=2)])) == "up to 2 waited (as sampled)"


async def test_an_engines_steps_tell_it_exactly(tmp_path: Path) -> None:
    """Every step has queue, batch and pool."""
    load = "name=eight arrivals=burst arrivals.size=8 prompt=40 output=8"
    run = await sim_study("t", tmp_path).run("run", load, {"max_num_seqs": 2, "num_kv_blocks": 64})

    assert run.pressure.running == 2
    assert run.pressure.waiting == 6
    assert run.pressure.kv_share == 2 * 3 / 64
    assert (run.pressure.preemptions, run.pressure.sampled) == (0, False)
    assert of_steps([]).kv_share is None


@pytest.mark.parametrize(
    ("pressure", "said"),
    [
        (Pressure(8, 3, 0.95, 0, sampled=True), "KV cache is full"),
        (Pressure(8, 3, 0.2, 0, sampled=True), "lets too few run at once"),
        (Pressure(None, None, None, None, sampled=True), "its own metrics"),
    ],
)
def test_a_servers_limits_are_told_apart(pressure: Pressure, said: str) -> None:
    """Full memory, a limit on sequences, or nothing that it says."""
    [found] = _no_rise_of_a_server(pressure, "seen")

    assert said in found.verdict
    assert found.setting is None
