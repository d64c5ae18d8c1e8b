import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from chairlift.core.errors import ReplayError, StepFailed
from chairlift.core.journal import Committed, Entry, Planned, fingerprint, replay
from chairlift.core.plan import StepPlan, Wait
from chairlift.core.reasons import Reason
from chairlift.core.scheduler import Scheduler
from chairlift.runners.fake import FakeRunner
from tests.core.helpers import make_scheduler, request, submit
from tests.core.strategies import VOCABULARY, random_request, random_setup


def recorded_life(seed: int) -> list[Entry]:
    """A journal with every kind of entry in it."""
    setup, draw = random_setup(seed, policy="continuous", target_itl=None), Random(seed)
    journal: list[Entry] = []
    scheduler = Scheduler(setup.config, setup.capacity, journal=journal)
    capacity = setup.capacity
    runner = FakeRunner(num_blocks=capacity.num_blocks, block_size=capacity.block_size, vocabulary=VOCABULARY)
    now = 0
    for number in range(40):
        scheduler.submit(random_request(f"r{number}", setup, now, draw.randrange(1 << 32)), now)
        if number == 20:
            scheduler.switch_policy("dynamic", now, kv_reservation=None, padding=None, release=None)
        if number % 7 == 3:
            scheduler.cancel(f"r{number - 1}", now)
        if number == 35:
            scheduler.end_input(now)
        if number % 9 == 5:
            runner.broken_steps.add(scheduler._state.step)
        plan = scheduler.plan(now)
        if isinstance(plan, StepPlan):
            try:
                outcome = runner.execute(plan)
            except StepFailed:
                scheduler.abort(plan, now)
                continue
            now += outcome.device_time
            scheduler.commit(plan, outcome, now)
    return journal


def replayed_life(seed: int) -> list[int]:
    """Fingerprints of a replay of recorded_life(seed)."""
    setup = random_setup(seed, policy="continuous", target_itl=None)
    return [fingerprint(plan) for plan in replay(recorded_life(seed), Scheduler(setup.config, setup.capacity))]


SEEDS = (2, 3, 5)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_replay_makes_the_same_plans(seed: int) -> None:
    """Every call in order on a new scheduler: each plan has the fingerprint that was recorded."""
    journal = recorded_life(seed)
    assert {type(entry).__name__ for entry in journal} == {
        "Submitted", "Planned", "Committed", "Aborted", "Cancelled", "Switched", "InputEnded",
    }  # fmt: skip
    recorded = [entry.fingerprint for entry in journal if isinstance(entry, Planned)]

    assert replayed_life(seed) == recorded
    assert len(set(recorded)) > 10


def test_fingerprints_are_equal_in_every_process() -> None:
    """A journal replays on another day: nothing in a fingerprint depends on the process's hash seed."""
    script = "from tests.core.test_journal import SEEDS, replayed_life; print([replayed_life(seed) for seed in SEEDS])"
    root = Path(__file__).parents[2]
    answers = set()
    for hash_seed in ("1", "2"):
        environment = os.environ | {"PYTHONHASHSEED": hash_seed}
        done = subprocess.run(
            [sys.executable, "-c", script], cwd=root, env=environment, capture_output=True, text=True, check=True
        )
        answers.add(done.stdout)
    assert answers == {f"{[replayed_life(seed) for seed in SEEDS]}\n"}


def _journal() -> list[Entry]:
    journal: list[Entry] = []
    scheduler = make_scheduler(journal=journal)
    submit(scheduler, request(max_tokens=3))
    runner, now = FakeRunner(), 0
    while scheduler.has_work:
        plan = scheduler.plan(now)
        assert isinstance(plan, StepPlan)
        now += 10**9
        scheduler.commit(plan, runner.execute(plan), now)
    return journal


def test_another_outcome_leads_elsewhere_and_is_found() -> None:
    """A journal in which one token was changed does not replay: the next plan computes another token."""
    journal = _journal()
    first = next(i for i, entry in enumerate(journal) if isinstance(entry, Committed))
    entry = journal[first]
    assert isinstance(entry, Committed)
    journal[first] = replace(entry, outcome=replace(entry.outcome, tokens=[1]))

    with pytest.raises(ReplayError, match=f"entry {first + 1}: the plan at .* ns is not the one"):
        list(replay(journal, make_scheduler()))


def test_other_settings_lead_elsewhere_and_are_found() -> None:
    """A replay under another policy is no replay."""
    with pytest.raises(ReplayError):
        list(replay(_journal(), make_scheduler(policy="static", batch_size=8)))


def test_entries_in_an_order_that_cannot_have_happened_are_found() -> None:
    """A commit needs a plan in flight."""
    journal = [entry for entry in _journal() if not isinstance(entry, Planned)]
    with pytest.raises(ReplayError, match="entry 1 ends a plan, but none is in flight"):
        list(replay(journal, make_scheduler()))


def test_fingerprints_tell_plans_apart() -> None:
    """Another token, position, table, row, decision or waiting time is another fingerprint."""
    scheduler = make_scheduler()
    submit(scheduler, request("a", prompt=4), request("b", prompt=5))
    plan = scheduler.plan(0)
    assert isinstance(plan, StepPlan)
    others: list[StepPlan | Wait] = [
        replace(plan, step=1),
        replace(plan, request_ids=("a", "c")),
        replace(plan, starts=(0, 1)),
        replace(plan, counts=(5, 4)),
        replace(plan, paddings=(0, 1)),
        replace(plan, samples=(True, False)),
        replace(plan, kinds=(plan.kinds[0], type(plan.kinds[0]).RECOMPUTE)),
        replace(plan, tokens=(9, *plan.tokens[1:])),
        replace(plan, tables=(plan.tables[1], plan.tables[0])),
        replace(plan, decisions=plan.decisions[1:]),
        replace(plan, decisions=(replace(plan.decisions[0], reason=Reason.FAILED), *plan.decisions[1:])),
        replace(plan, decisions=(*plan.decisions[:-1], replace(plan.decisions[-1], numbers={"other": 3}))),
        Wait(None, Reason.QUEUE_EMPTY),
        Wait(5, Reason.BATCH_NOT_FULL),
        Wait(6, Reason.BATCH_NOT_FULL),
    ]
    codes = [fingerprint(plan), *map(fingerprint, others)]
    assert len(set(codes)) == len(codes)
    assert fingerprint(replace(plan, now=77)) == codes[0], "when it was made is in the journal already"


def test_a_scheduler_without_a_journal_records_nothing() -> None:
    """It grows without bound, so it is there only when asked for."""
    scheduler = make_scheduler()
    submit(scheduler, request())
    assert scheduler._journal is None
