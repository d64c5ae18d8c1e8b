from collections.abc import Callable
from random import Random

import pytest
from hypothesis import given, settings

from chairlift.core.errors import ReplayError, RequestRefused
from chairlift.core.journal import Committed, Entry, Planned, Submitted
from chairlift.core.plan import StepOutcome, StepPlan
from chairlift.engine.core import EngineCore
from chairlift.engine.params import SamplingParams
from chairlift.runners.fake import FakeRunner
from chairlift.sim.journal import simulate_journal
from tests.core.strategies import SEEDS, Setup, random_request, random_setup
from tests.engine.tiny import Clock, Inbox, byte_tokenizer
from tests.sim.helpers import Witness, spelled_out


class BusyRunner(FakeRunner):
    """Something comes while it works."""

    def __init__(self, setup: Setup, meanwhile: Callable[[], None], clock: Clock) -> None:
        capacity = setup.capacity
        super().__init__(num_blocks=capacity.num_blocks, block_size=capacity.block_size, vocabulary=128)
        self._meanwhile = meanwhile
        self._clock = clock

    def execute(self, plan: StepPlan) -> StepOutcome:
        outcome = super().execute(plan)
        self._meanwhile()
        self._clock.time += outcome.device_time
        return outcome


class RecordedEngine:
    """An engine on a FakeRunner through a random life: arrivals, clients that leave, switches, rows that fail, steps
    that fail, stop strings; and time passes at every look at the clock.
    """

    def __init__(self, seed: int) -> None:
        self.setup = random_setup(seed)
        self.journal: list[Entry] = []
        self.witness = Witness()
        self._draw = Random(seed)
        self._named = 0
        self._clock = Clock(tick=self._draw.choice((0, 1, 1000)))
        self._runner = BusyRunner(self.setup, self._something, self._clock)
        self._inbox = Inbox()
        self.core = EngineCore(
            self.setup.config,
            self._runner,
            byte_tokenizer(),
            clock=self._clock,
            observers=[self.witness],
            journal=self.journal,
        )

    def live(self) -> None:
        for _ in range(self._draw.randrange(5, 40)):
            self._something()
            if self._draw.random() < 0.1:
                self._runner.broken_steps.add(self._draw.randrange(50))
            wait = self.core.step()
            if wait is not None:
                self._clock.time += self._draw.choice((0, 10**6, 10**8))
        self.core.end_input()
        for _ in range(3000):
            if not self.core.has_work:
                return
            self.core.step()
        raise AssertionError("not done")

    def _something(self) -> None:
        draw = self._draw
        if self._named < 25 and draw.random() < 0.4:
            self._submit()
        if draw.random() < 0.05 and self._named:
            self.core.cancel(f"r{draw.randint(1, self._named)}")
        if draw.random() < 0.05 and self._named:
            self._runner.failing[f"r{draw.randint(1, self._named)}"] = "it went wrong"

    def _submit(self) -> None:
        self._named += 1
        request = random_request(f"r{self._named}", self.setup, self._clock.time, self._draw.randrange(1 << 32))
        params = SamplingParams(
            max_tokens=max(1, request.max_tokens or 1),
            temperature=0,
            ignore_eos=True,
            stop_token_ids=request.stop_ids,
            stop=self._draw.choice(((), (), ("a",), ("the",), ("1", "e"))),
        )
        try:
            self.core.submit(
                [1 + token % 120 for token in request.prompt],
                params,
                request_id=request.request_id,
                sink=self._inbox,
                priority=request.priority,
                arrival=request.arrival,
            )
        except RequestRefused:
            return


@settings(max_examples=max(60, settings().max_examples // 2))
@given(seed=SEEDS)
def test_the_engines_journal_gives_the_same_plans_in_the_same_order(seed: int) -> None:
    """In the simulator's own loop, with the recorded times: each plan is the recorded one, and so is each record."""
    engine = RecordedEngine(seed)
    engine.live()
    replayed: list[Entry] = []
    witness = Witness()

    result = simulate_journal(
        engine.journal, engine.setup.config, engine.setup.capacity, observers=[witness], journal=replayed
    )

    plans = [entry for entry in engine.journal if isinstance(entry, Planned)]
    again = [entry for entry in replayed if isinstance(entry, Planned)]
    assert again[: len(plans)] == plans
    assert len(again) <= len(plans) + 1, "one look more, to see that nothing is left"
    assert spelled_out(witness.records) == spelled_out(engine.witness.records)
    stats = engine.core.stats()
    assert result.counters == stats.counters
    for name in ("device", "tokens", "slots", "steps", "recoverable"):
        assert getattr(result.ledger, name) == getattr(stats.ledger, name)


def test_the_recorded_lives_do_everything() -> None:
    """The property above is not met by engines that idle."""
    engines = [RecordedEngine(seed) for seed in range(60)]
    for engine in engines:
        engine.live()

    reasons = [record.finish_reason for engine in engines for record in engine.witness.requests.values()]
    assert set(reasons) == {"stop", "length", "cancelled", "error"}
    entries = {type(entry).__name__ for engine in engines for entry in engine.journal}
    assert entries >= {"Submitted", "Planned", "Committed", "Aborted", "Cancelled", "InputEnded"}


def _recorded() -> RecordedEngine:
    engine = RecordedEngine(5)
    engine.live()
    return engine


def test_a_journal_that_does_not_lead_there_is_refused() -> None:
    """A request taken out, or a step whose end is missing."""
    engine = _recorded()
    config, capacity = engine.setup.config, engine.setup.capacity
    first = next(entry for entry in engine.journal if isinstance(entry, Submitted))
    with pytest.raises(ReplayError, match="is not the one that was recorded"):
        simulate_journal([entry for entry in engine.journal if entry is not first], config, capacity)

    last = max(i for i, entry in enumerate(engine.journal) if isinstance(entry, Committed))
    with pytest.raises(ReplayError, match="plans a step, and nothing came of it"):
        simulate_journal(engine.journal[:last], config, capacity)


def test_an_empty_journal_is_an_idle_engine() -> None:
    """Nothing happened."""
    engine = _recorded()
    assert simulate_journal([], engine.setup.config, engine.setup.capacity).steps == 0
