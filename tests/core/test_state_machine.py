"""T13: random loads under all policies and settings; what must hold is checked after every call."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from random import Random

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from chairlift.core.errors import ConfigError, StepFailed
from chairlift.core.journal import Entry, replay
from chairlift.core.plan import RowKind, StepEvents, StepPlan, TokenCounts, Wait
from chairlift.core.reasons import Decision, Reason
from chairlift.core.request import Accepted, FinishReason, Refused, Request
from chairlift.core.scheduler import Scheduler
from chairlift.runners.fake import FakeRunner
from tests.core.helpers import MILLISECOND, blocks_of, solo_tokens
from tests.core.strategies import SEEDS, VOCABULARY, Setup, random_request, random_setup, random_switch


class Held:
    """What the test knows of a request that was accepted."""

    def __init__(self, request: Request, max_tokens: int) -> None:
        self.request = request
        self.expected, self.reason = solo_tokens(request, max_tokens, VOCABULARY)
        self.tokens: list[int] = []
        self.stopped_at: int | None = None
        """Length at which the engine stopped it."""
        self.sampled = 0
        self.high_water = 0
        """Positions computed or found in the cache so far."""
        self.computed_once = 0
        """Prompt positions computed for the first time."""
        self.found = 0
        """Prompt positions found in the cache that it had not computed before."""


class SchedulerMachine(RuleBasedStateMachine):
    """An engine that does everything it may, in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.sound = False
        """Whether the last rule and all checks after it passed: only then does the end say anything."""

    @initialize(setup=SEEDS.map(random_setup), load=st.integers(0, 12), seed=SEEDS)
    def start(self, setup: Setup, load: int, seed: int) -> None:
        self.setup = setup
        self.journal: list[Entry] = []
        self.scheduler = Scheduler(setup.config, setup.capacity, journal=self.journal)
        self.runner = FakeRunner(
            num_blocks=setup.capacity.num_blocks, block_size=setup.capacity.block_size, vocabulary=VOCABULARY
        )
        self.now = 0
        self.plan: StepPlan | None = None
        self.wait: Wait | None = None
        self.named = 0
        self.held: dict[str, Held] = {}
        self.gone: list[str] = []
        self.past: list[list[int]] = []
        """Prompts with their answers, such as the next turn of a chat begins with."""
        self.ends = Counter[FinishReason]()
        self.generated = self.found = 0
        self.cancelled: set[str] = set()
        """Cancelled while a plan is in flight."""
        self.input_ended = False
        self.counts = TokenCounts()
        self.last_reason: dict[str, Reason] = {}
        self.seed = seed
        self.submit(load, seed)

    # what an engine may do

    @rule(count=st.integers(1, 8), seed=SEEDS)
    def submit(self, count: int, seed: int) -> None:
        self.sound = False
        for _ in range(count):
            self.named += 1
            self._submit(f"r{self.named}", seed)

    @precondition(lambda self: self.held or self.gone)
    @rule(data=st.data(), seed=SEEDS)
    def submit_a_known_id(self, data: st.DataObject, seed: int) -> None:
        self.sound = False
        names = sorted(self.held | dict.fromkeys(self.gone))
        self._submit(data.draw(st.sampled_from(names), label="known id"), seed)

    def _submit(self, name: str, seed: int) -> None:
        request = random_request(name, self.setup, self.now, seed, self.past[-5:])
        verdict = self.scheduler.submit(request, self.now)
        if isinstance(verdict, Accepted):
            assert name not in self.held
            self.held[name] = Held(request, verdict.max_tokens)
        else:
            self._check_refusal(request, verdict)

    @precondition(lambda self: self.plan is None)
    @rule()
    def plan_step(self) -> None:
        self.sound = False
        answer = self.scheduler.plan(self.now)
        if isinstance(answer, Wait):
            self._check_wait(answer)
        else:
            self.plan = answer
            self._note_decisions(answer.decisions)
            self._check_plan(answer)

    @precondition(lambda self: self.plan is not None)
    @rule(seed=SEEDS)
    def land(self, seed: int) -> None:
        """The plan in flight happens, or not."""
        self.sound = False
        self._land(Random(seed), trouble=0.5)

    @precondition(lambda self: self.plan is None)
    @rule(count=st.integers(1, 20), seed=SEEDS)
    def run(self, count: int, seed: int) -> None:
        """Several steps, with a little trouble."""
        draw = Random(seed)
        for _ in range(count):
            self.plan_step()
            if self.plan is None:
                return
            self._land(draw, trouble=0.1)
            self.check()

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        self.sound = False
        name = data.draw(st.sampled_from(sorted(self.held)), label="cancelled")
        if self.plan is not None:
            self.cancelled.add(name)
        self._take(self.scheduler.cancel(name, self.now))
        assert self.plan is not None or name not in self.held, "a cancelled request must leave"

    @rule(data=st.data())
    def cancel_a_stranger(self, data: st.DataObject) -> None:
        self.sound = False
        names = [name for name in self.gone if name not in self.held] or ["nobody"]
        self._take(self.scheduler.cancel(data.draw(st.sampled_from(names)), self.now))

    @rule(seed=SEEDS)
    def switch(self, seed: int) -> None:
        self.sound = False
        policy, changes = random_switch(self.setup, seed)
        before = self.scheduler.config, self.scheduler.usage()
        try:
            self._take(self.scheduler.switch_policy(policy, self.now, **changes))
        except ConfigError:
            assert (self.scheduler.config, self.scheduler.usage()) == before

    @precondition(lambda self: self.named > 20)
    @rule()
    def end_input(self) -> None:
        self.sound = False
        self.scheduler.end_input(self.now)
        self.input_ended = True

    @rule(span=st.sampled_from((0, 1, 10 * MILLISECOND, 1000 * MILLISECOND)))
    def pass_time(self, span: int) -> None:
        self.sound = False
        self.now += span
        if self.wait and self.wait.until is not None and span:
            self.now = max(self.now, self.wait.until)

    # what must hold after every call

    @invariant()
    def check(self) -> None:
        scheduler, usage = self.scheduler, self.scheduler.usage()
        scheduler.check_integrity()
        pool = scheduler._state.pool
        assert usage.kv_used + usage.kv_cached + len(pool._free) == usage.kv_blocks == self.setup.capacity.num_blocks
        assert usage.kv_reserved_unused >= 0
        assert scheduler.has_work == bool(self.held)
        assert scheduler.health().ok
        if not scheduler.has_work:
            assert usage.kv_used == 0
            assert (usage.running, usage.waiting, usage.waiting_tokens) == (0, 0, 0)
        report = scheduler.ledger.report(self.now)
        assert sum(report.times.values()) == report.wall
        assert min(report.times.values()) >= 0
        assert report.tokens == self.counts
        self.sound = True

    def teardown(self) -> None:
        """Let everything end, with a little trouble on the way, and live through it again."""
        if not self.sound:
            return
        if self.plan is not None:
            self._land(Random(0), trouble=0.0)
        self.scheduler.end_input(self.now)
        self.input_ended = True
        draw = Random(self.seed)
        for _ in range(200 * (len(self.held) + 1)):
            if not self.held:
                break
            self.plan_step()
            assert self.plan is not None, "with the input at its end nothing is waited for"
            self._land(draw, trouble=0.05)
            self.check()
        assert not self.held, "every request ends"
        counters = self.scheduler.counters
        assert +Counter(counters.finished) == self.ends
        assert counters.accepted == sum(self.ends.values())
        assert counters.output_tokens == self.generated
        assert counters.prefix_hits == self.found
        twin = Scheduler(self.setup.config, self.setup.capacity)
        assert sum(1 for _ in replay(self.journal, twin)) == sum(
            type(entry).__name__ == "Planned" for entry in self.journal
        )
        assert twin.counters == counters
        assert twin.ledger.report(self.now) == self.scheduler.ledger.report(self.now)

    # inside

    def _land(self, draw: Random, *, trouble: float) -> None:
        """The plan in flight happens: wholly, with rows that fail or that the engine stops, or not at all."""
        plan, self.plan = self.plan, None
        assert plan is not None
        what = draw.choice(("fail", "stop", "break", "late")) if draw.random() < trouble else ""
        rows = {draw.randrange(len(plan)) for _ in range(draw.randint(1, 3))}
        if what == "break":
            self.runner.broken_steps.add(plan.step)
            with pytest.raises(StepFailed, match="scripted"):
                self.runner.execute(plan)
            events = self.scheduler.abort(plan, self.now)
        else:
            outcome = self.runner.execute(plan)
            outcome = replace(
                outcome,
                failures=dict.fromkeys(rows if what == "fail" else (), "it went wrong"),
                stops=dict.fromkeys(rows if what == "stop" else (), FinishReason.STOP),
            )
            self.now += outcome.device_time + (MILLISECOND if what == "late" else 0)
            for row in range(len(plan)):
                self._note_row(plan, row, failed=row in outcome.failures, stopped=row in outcome.stops)
            self.counts += plan.token_counts
            events = self.scheduler.commit(plan, outcome, self.now)
        self._take(events)
        assert not self.cancelled & self.held.keys(), "who was cancelled leaves when the step has ended"
        self.cancelled.clear()

    def _note_row(self, plan: StepPlan, row: int, *, failed: bool, stopped: bool) -> None:
        if plan.kinds[row] is RowKind.DEAD or plan.counts[row] == plan.paddings[row]:
            return
        held = self.held[plan.request_ids[row]]
        end = plan.starts[row] + plan.counts[row] - plan.paddings[row]
        prompt = len(held.request.prompt)
        held.computed_once += max(0, min(end, prompt) - max(held.high_water, plan.starts[row]))
        held.high_water = max(held.high_water, end)
        if plan.samples[row] and not failed:
            held.sampled += 1
            if stopped:
                held.stopped_at = held.sampled

    def _take(self, events: StepEvents) -> None:
        for name, token in zip(events.request_ids, events.tokens, strict=True):
            held = self.held[name]
            held.tokens.append(token)
            assert held.tokens == held.expected[: len(held.tokens)], "the tokens of a request that runs alone"
        self._note_decisions(events.decisions)
        assert set(events.preempted) <= self.held.keys() | {one.request_id for one in events.finished}
        for one in events.finished:
            held = self.held.pop(one.request_id)
            self.gone.append(one.request_id)
            self.past.append([*held.request.prompt, *held.tokens])
            self.ends[one.reason] += 1
            self.generated += one.output_tokens
            self.found += held.found
            assert one.output_tokens == held.sampled
            if one.reason is FinishReason.CANCELLED:
                continue
            assert len(held.tokens) == one.output_tokens, "nothing generated is held back for ever"
            if one.reason is FinishReason.ERROR:
                assert one.message == "it went wrong"
                continue
            if held.stopped_at is not None:
                assert (one.reason, one.output_tokens) == (FinishReason.STOP, held.stopped_at)
            else:
                assert (one.reason, held.tokens) == (held.reason, held.expected)
            assert held.computed_once + held.found == len(held.request.prompt)

    def _note_decisions(self, decisions: tuple[Decision, ...]) -> None:
        for decision in decisions:
            name, reason = decision.request_id, decision.reason
            assert self.last_reason.get(name) is not reason, f"{name} is {reason} twice in a row"
            self.last_reason[name] = reason
            if reason in (Reason.ADMITTED, Reason.RESUMED) and name in self.held:
                held, cached = self.held[name], decision.numbers["cached_tokens"]
                more = max(0, min(cached, len(held.request.prompt)) - held.high_water)
                held.found += more
                held.high_water = max(held.high_water, cached)

    def _check_refusal(self, request: Request, verdict: Refused) -> None:
        config, capacity = self.setup.config, self.setup.capacity
        prompt, most = len(request.prompt), request.max_tokens
        length = prompt + (1 if most is None else most)
        true: dict[Reason, Callable[[], bool]] = {
            Reason.DUPLICATE_ID: lambda: request.request_id in self.held,
            Reason.PROMPT_EMPTY: lambda: prompt == 0,
            Reason.INVALID: lambda: most is not None and most < 1,
            Reason.PROMPT_TOO_LONG: lambda: length > config.max_model_len,
            Reason.NEVER_FITS: lambda: blocks_of(length, capacity.block_size) > capacity.num_blocks,
            Reason.QUEUE_FULL: lambda: self.scheduler.usage().waiting > 0,
        }
        assert true[verdict.reason](), verdict
        assert verdict.needed > verdict.limit
        assert verdict.message

    def _check_wait(self, wait: Wait) -> None:
        self.wait = wait
        scheduler, config = self.scheduler, self.scheduler.config
        if not self.held:
            assert wait == Wait(None, Reason.QUEUE_EMPTY)
            return
        assert config.closed, "continuous never waits while somebody could run"
        assert wait.reason is Reason.BATCH_NOT_FULL
        assert scheduler.usage().running == 0
        assert len(self.held) < config.max_rows, "as many wait as a batch takes"
        assert not self.input_ended
        if wait.until is not None:
            assert wait.until > self.now, "a wait that is over already would spin"

    def _check_plan(self, plan: StepPlan) -> None:
        config, size = self.scheduler.config, self.setup.capacity.block_size
        assert 1 <= len(plan) <= config.max_rows
        assert sum(plan.counts) == len(plan.tokens) == plan.token_counts.total <= config.max_num_batched_tokens
        assert self.scheduler.horizon(plan) >= 1
        kinds = Counter(plan.kinds)
        singles = plan.single_token_rows
        assert all(kind in (RowKind.DECODE, RowKind.DEAD) for kind in plan.kinds[:singles])
        assert all(kind in (RowKind.PREFILL, RowKind.RECOMPUTE) for kind in plan.kinds[singles:])
        assert kinds[RowKind.DECODE] + kinds[RowKind.DEAD] == singles
        assert plan.token_counts.dead == kinds[RowKind.DEAD]
        assert plan.token_counts.padding == sum(plan.paddings)
        assert self.scheduler.usage().running > 0, "a step of which nobody has anything"
        live = [row for row, kind in enumerate(plan.kinds) if kind is not RowKind.DEAD]
        names = [plan.request_ids[row] for row in live]
        assert len(set(names)) == len(names)
        holders = Counter(block for one in self.scheduler._batcher.holders() for block in set(one.table))
        known = self.scheduler._state.pool._keys
        fresh = 0
        for row, table in enumerate(plan.tables):
            start, end = plan.starts[row], plan.starts[row] + plan.counts[row]
            assert len(table) >= blocks_of(end, size)
            written = table[start // size : (end - 1) // size + 1]
            if list(table) != [self.setup.capacity.scratch_block]:
                assert all(holders[block] == 1 for block in written), "it writes where another reads"
                assert all(known[block] is None for block in written), "it writes where others may come to read"
            if plan.kinds[row] is not RowKind.DEAD:
                if plan.counts[row] == plan.paddings[row]:
                    continue  # the rest of its padding; it may have ended and left
                held = self.held[plan.request_ids[row]]
                prompt = len(held.request.prompt)
                fresh += max(0, min(end - plan.paddings[row], prompt) - max(held.high_water, start))
        assert plan.token_counts.prefill == fresh
        self._check_salts()

    def _check_salts(self) -> None:
        salts: dict[int, str] = {}
        for one in self.scheduler._batcher.holders():
            for block in one.table:
                assert salts.setdefault(block, one.request.cache_salt) == one.request.cache_salt


class TestT13(SchedulerMachine.TestCase):  # type: ignore[misc,valid-type] # made by hypothesis at run time
    """T13: blocks are conserved, budgets kept, nothing stalls, every request ends with its own tokens, and the journal
    replays, whatever is done in whatever order.
    """

    settings = settings(max_examples=max(400, settings().max_examples), stateful_step_count=40)
