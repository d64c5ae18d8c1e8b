"""The simulator and the engine's own core, side by side."""

from dataclasses import replace
from random import Random

from hypothesis import given, settings

from chairlift.core.journal import Entry, Planned
from chairlift.runners.simulated import SimulatedRunner
from chairlift.sim.events import OpenLoop
from chairlift.sim.journal import simulate_journal
from chairlift.sim.loop import simulate
from tests.core.strategies import SEEDS, random_setup
from tests.sim.helpers import Witness, random_arrivals, random_model, random_others, spelled_out
from tests.sim.twin import EngineTwin


@settings(max_examples=max(60, settings().max_examples // 2))
@given(of_setup=SEEDS, seed=SEEDS)
def test_the_engine_on_the_same_device_writes_the_same_records(of_setup: int, seed: int) -> None:
    """Record for record and in the same order, stepping: what the lab does with an engine's run it can do with a
    simulation's.
    """
    setup, draw = random_setup(of_setup), Random(seed)
    device = SimulatedRunner(random_model(draw), setup.capacity)
    span = 10 ** draw.randint(5, 10)
    arrivals = [replace(one, output_tokens=None) for one in random_arrivals(draw, setup, span)]
    others = random_others(draw, setup, span)
    twin = EngineTwin(setup.config, device, OpenLoop(arrivals, others))
    twin.run()
    witness = Witness()

    simulate(setup.config, device, OpenLoop(arrivals, others), observers=[witness], jump=False)

    assert spelled_out(witness.records) == spelled_out(twin.witness.records)

    replayed: list[Entry] = []
    again = Witness()
    simulate_journal(
        twin.journal, setup.config, setup.capacity, shape=device.shape(), observers=[again], journal=replayed
    )
    plans = [entry for entry in twin.journal if isinstance(entry, Planned)]
    assert [entry for entry in replayed if isinstance(entry, Planned)][: len(plans)] == plans
    assert spelled_out(again.records) == spelled_out(twin.witness.records)
