from collections import Counter
from collections.abc import Iterable, Sequence
from random import Random

import pytest
from hypothesis import given, settings

from chairlift.core.config import POLICIES, PolicyName
from chairlift.records.schema import ShareRecord, StepRecord
from chairlift.runners.fake import FakeRunner
from chairlift.runners.simulated import SimulatedRunner
from chairlift.sim.events import OpenLoop
from chairlift.sim.loop import Simulation
from tests.core.strategies import SEEDS, random_setup
from tests.engine.tiny import Inbox, Witness, make_core, run, submit
from tests.sim.helpers import Witness as SimulationWitness
from tests.sim.helpers import random_arrivals, random_model, random_others

KINDS = ("prefill", "decode", "recompute", "padding", "dead")


def summed(steps: Iterable[StepRecord], shares: Sequence[ShareRecord]) -> list[tuple[Counter[str], int]]:
    """For each record of a step: tokens by kind over all requests' shares, and how many have one."""
    waiting = list(reversed(shares))
    held: dict[str, ShareRecord] = {}
    sums = []
    for step in steps:
        while waiting and waiting[-1].step <= step.step:
            share = waiting.pop()
            held[share.request_id] = share
        tokens = {kind: step.repeats * sum(getattr(one, kind) for one in held.values()) for kind in KINDS}
        rows = sum(any(getattr(one, kind) for kind in KINDS) for one in held.values())
        sums.append((Counter(tokens), rows))
    assert not waiting
    return sums


def counted(steps: Iterable[StepRecord]) -> list[tuple[Counter[str], int]]:
    """The same by the steps' own records."""
    return [(Counter({kind: getattr(step, kind) for kind in KINDS}), step.rows) for step in steps]


@settings(max_examples=80)
@given(SEEDS, SEEDS)
def test_shares_sum_to_the_steps_counts(of_setup: int, seed: int) -> None:
    """Whatever the policy and settings, with chunks, preemptions, clients that leave, live switches and jumps."""
    setup, draw = random_setup(of_setup), Random(seed)
    span = 10 ** draw.randint(5, 10)
    witness = SimulationWitness()
    device = SimulatedRunner(random_model(draw), setup.capacity)
    source = OpenLoop(random_arrivals(draw, setup, span), random_others(draw, setup, span))
    Simulation(setup.config, device, source, observers=[witness], jump=draw.random() < 0.7).run()

    assert summed(witness.steps, witness.shares) == counted(witness.steps)


@pytest.mark.parametrize("policy", POLICIES)
def test_the_engine_tells_shares_as_often_as_they_change(policy: PolicyName) -> None:
    """Three records for a request that is computed in one piece: its prompt, its decodes, its end."""
    witness = Witness()
    core = make_core(policy=policy, batch_size=2, max_batch_size=2, observers=[witness])
    for name, tokens in (("a", 40), ("b", 40)):
        submit(core, name, Inbox(), prompt="x" * 9, max_tokens=tokens)
    core.end_input()
    run(core)
    submit(core, "c", Inbox(), prompt="y", max_tokens=2)
    run(core)

    of_a = [one for one in witness.shares if one.request_id == "a"]
    assert summed(witness.steps, witness.shares) == counted(witness.steps)
    assert [(one.step, one.prefill, one.decode) for one in of_a] == [(0, 9, 0), (1, 0, 1), (40, 0, 0)]


def test_who_comes_later_is_told_all_shares() -> None:
    """And those who have been there are told nothing wrong."""
    early, late = Witness(), Witness()
    core = make_core(FakeRunner(vocabulary=128), observers=[early], max_num_seqs=4)
    for n in range(4):
        submit(core, f"r{n}", Inbox(), prompt="x" * (n + 1), max_tokens=4 * n + 2)
    for _ in range(5):
        core.step()
    seen = len(early.steps)
    core.attach(late)
    run(core)

    assert summed(early.steps, early.shares) == counted(early.steps)
    assert summed(late.steps, late.shares) == counted(late.steps) == counted(early.steps[seen:])


def test_a_dead_row_is_its_members_share() -> None:
    """A closed batch's member that has ended computes a dead token a step until the batch ends."""
    witness = Witness()
    core = make_core(policy="static", batch_size=2, observers=[witness])
    submit(core, "short", Inbox(), prompt="x", max_tokens=2)
    submit(core, "long", Inbox(), prompt="yyy", max_tokens=6)
    core.end_input()
    run(core)

    of_short = [one for one in witness.shares if one.request_id == "short"]
    assert [(one.step, one.prefill, one.padding, one.decode, one.dead) for one in of_short] == [
        (0, 1, 2, 0, 0),
        (1, 0, 0, 1, 0),
        (2, 0, 0, 0, 1),
    ]
