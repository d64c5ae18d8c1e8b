import logging
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chairlift.core.blocks import BlockPool
from chairlift.core.config import POLICIES, PolicyName
from chairlift.core.errors import ConfigError, ContractError, EngineClosed, EngineUnhealthy, RequestRefused
from chairlift.core.plan import StepOutcome, StepPlan
from chairlift.core.reasons import Reason
from chairlift.core.request import FinishReason
from chairlift.engine.core import EngineCore
from chairlift.engine.faults import MAX_ATTEMPTS
from chairlift.engine.sampling import BatchSampler
from chairlift.runners.fake import FakeRunner
from tests.engine.tiny import Clock, Inbox, LogitsRunner, ScriptedRunner, Witness, make_core, run, submit

LENGTH, STOP = FinishReason.LENGTH, FinishReason.STOP


class BrokenRunner(FakeRunner):
    """Breaks down for good in its third step."""

    def execute(self, plan: StepPlan) -> StepOutcome:
        if plan.step == 2:
            raise RuntimeError("the device fell off the bus")
        return super().execute(plan)


def broken_for(runner: FakeRunner, attempts: int, step: int) -> None:
    """Let a step fail so many times in a row."""
    original = runner.execute
    left = [attempts]

    def execute(plan: StepPlan) -> StepOutcome:
        if plan.step == step and left[0]:
            left[0] -= 1
            runner.broken_steps.add(step)
        return original(plan)

    runner.execute = execute  # type: ignore[method-assign]


# answers


@pytest.mark.parametrize("policy", POLICIES)
def test_everyone_is_answered(policy: PolicyName) -> None:
    """Twelve requests of different lengths end by length with as many tokens as they asked for."""
    core, inbox = make_core(policy=policy, batch_size=4), Inbox()
    for n in range(12):
        submit(core, f"request {n}", inbox, max_tokens=n + 1)
    core.end_input()

    run(core)

    assert inbox.reasons() == {f"request {n}": LENGTH for n in range(12)}
    assert [len(tokens) for tokens in inbox.tokens().values()] == [
        inbox.answer(name).output_tokens for name in inbox.tokens()
    ]
    assert {name: len(tokens) for name, tokens in inbox.tokens().items()} == {f"request {n}": n + 1 for n in range(12)}


def test_the_last_piece_alone_has_a_finish_reason() -> None:
    """A streamed answer comes token by token, and its end is told once."""
    core, inbox = make_core(), Inbox()
    submit(core, "a", inbox, max_tokens=4)

    run(core)

    assert [delta.finish_reason for delta in inbox.deltas] == [None, None, None, LENGTH]
    assert [delta.output_tokens for delta in inbox.deltas] == [1, 2, 3, 4]
    assert {delta.prompt_tokens for delta in inbox.deltas} == {1}


def test_the_models_own_end_stops_the_answer() -> None:
    """The end token is in the ids and not in the text."""
    core, inbox = make_core(ScriptedRunner({"a": b"hello"})), Inbox()
    submit(core, "a", inbox, max_tokens=50)

    run(core)

    answer = inbox.answer("a")
    assert (answer.text, answer.finish_reason, answer.stop_reason) == ("hello", STOP, 256)
    assert answer.token_ids == (*b"hello", 256)


def test_the_models_own_end_can_be_ignored() -> None:
    """With ignore_eos the answer goes on to max_tokens."""
    core, inbox = make_core(ScriptedRunner({"a": b"hi"})), Inbox()
    submit(core, "a", inbox, max_tokens=5, ignore_eos=True)

    run(core)

    assert inbox.answer("a").token_ids == (*b"hi", 256, 256, 256)
    assert inbox.answer("a").finish_reason is LENGTH


@pytest.mark.parametrize("policy", POLICIES)
def test_a_stop_string_ends_a_request_in_the_scheduler(policy: PolicyName) -> None:
    """No token is computed for it after the stop string, and it does not count as cut by length."""
    witness, runner = Witness(), ScriptedRunner({"a": b"one.two", "b": b"012345"})
    core, inbox = make_core(runner, policy=policy, observers=[witness]), Inbox()
    submit(core, "a", inbox, max_tokens=50, stop=".")
    submit(core, "b", inbox, max_tokens=6)
    core.end_input()

    run(core)

    assert (inbox.answer("a").text, inbox.answer("a").finish_reason) == ("one", STOP)
    assert inbox.answer("b").text == "012345"
    assert witness.requests["a"].output_tokens == 4
    assert core.stats().counters.finished[STOP] == 1


def test_a_stop_string_at_the_last_token_is_a_stop() -> None:
    """Where max_tokens and a stop string meet in one token, the stop string is the reason."""
    core, inbox = make_core(ScriptedRunner({"a": b"ab."})), Inbox()
    submit(core, "a", inbox, max_tokens=3, stop=".")

    run(core)

    assert (inbox.answer("a").finish_reason, inbox.answer("a").stop_reason) == (STOP, ".")


def test_cached_prompt_tokens_are_told() -> None:
    """A second request with the same long prompt says how much of it was found."""
    core, inbox = make_core(FakeRunner(vocabulary=128, block_size=4)), Inbox()
    for name in ("first", "second"):
        submit(core, name, inbox, prompt="the same prompt for both", max_tokens=2)
        run(core)

    assert (inbox.answer("first").cached_tokens, inbox.answer("second").cached_tokens) == (0, 20)


# the same answers, whatever runs


KINDS: list[dict[str, Any]] = [{"temperature": 0}, {"seed": 5}, {"seed": 7, "top_k": 20}, {"seed": 5, "top_p": 0.9}]


def answers(policy: PolicyName, *, num_blocks: int = 64, **settings: Any) -> tuple[dict[str, tuple[int, ...]], int]:
    """The tokens of ten requests of all kinds under one way of running them, and how many preemptions it took."""
    sampler = BatchSampler()
    runner = LogitsRunner(sampler, num_blocks=num_blocks, block_size=4)
    core, inbox = make_core(runner, sampler=sampler, policy=policy, max_model_len=64, **settings), Inbox()
    for n in range(10):
        prompt = "shared beginning " * (n % 2) + "x" * n + "y"
        submit(core, f"r{n}", inbox, prompt=prompt, max_tokens=5 + 3 * n % 17, ignore_eos=True, **KINDS[n % 4])
    core.end_input()
    run(core)
    return dict(sorted(inbox.tokens().items())), core.stats().counters.preemptions


ALONE, _ = answers("continuous", max_num_seqs=1)


@settings(max_examples=40)
@given(
    policy=st.sampled_from(POLICIES),
    num_blocks=st.integers(16, 64),
    rows=st.integers(1, 10),
    budget=st.integers(10, 60),
    caching=st.booleans(),
)
def test_an_answer_does_not_depend_on_how_it_was_run(
    policy: PolicyName,
    num_blocks: int,
    rows: int,
    budget: int,
    caching: bool,  # noqa: FBT001
) -> None:
    """Greedy and seeded tokens are the same under every policy, batch size, chunking, sharing and preemption."""
    together, _ = answers(
        policy,
        num_blocks=num_blocks,
        batch_size=rows,
        max_batch_size=rows,
        max_num_seqs=rows,
        max_num_batched_tokens=budget,
        enable_prefix_caching=caching,
        watermark=0.0,
    )

    assert together == ALONE


def test_preemption_does_not_show_in_an_answer() -> None:
    """A pool too small for all preempts, pays again, and gives the same tokens."""
    preempted, preemptions = answers("continuous", num_blocks=16, watermark=0.0)

    assert preemptions > 0
    assert preempted == ALONE


# leaving early


@pytest.mark.parametrize("policy", POLICIES)
def test_a_cancelled_request_frees_its_blocks_within_one_step(policy: PolicyName) -> None:
    """T10: queued or running, the next step finds the blocks free, and the counters add up."""
    core, inbox = make_core(policy=policy, batch_size=2, max_num_seqs=2, max_batch_size=2), Inbox()
    for name in ("a", "b", "queued"):
        submit(core, name, inbox, max_tokens=200)
    for _ in range(3):
        core.step()

    for name in ("a", "b", "queued"):
        core.cancel(name)
    core.step()

    stats = core.stats()
    assert (stats.usage.kv_used, stats.usage.running, stats.usage.waiting) == (0, 0, 0)
    assert inbox.reasons() == dict.fromkeys(("a", "b", "queued"), FinishReason.CANCELLED)
    assert stats.counters.accepted == sum(stats.counters.finished.values()) == 3
    assert not core.has_work


def test_an_id_can_be_used_again_at_once() -> None:
    """A request cancelled between steps and its successor of the same id get their own pieces."""
    core, old, new = make_core(), Inbox(), Inbox()
    submit(core, "a", old, max_tokens=9)
    core.step()
    core.cancel("a")

    submit(core, "a", new, max_tokens=2)
    run(core)

    assert old.answer("a").finish_reason is FinishReason.CANCELLED
    assert (new.answer("a").finish_reason, new.answer("a").output_tokens) == (LENGTH, 2)


def test_cancelling_nobody_is_no_error() -> None:
    """The result may have crossed the cancellation."""
    make_core().cancel("who?")


def test_the_runner_forgets_who_has_ended() -> None:
    """Every request that ended, however, is forgotten by the runner and the sampler."""
    runner, sampler = FakeRunner(vocabulary=128), BatchSampler()
    core, inbox = make_core(runner, sampler=sampler), Inbox()
    submit(core, "a", inbox, max_tokens=2)
    submit(core, "b", inbox, max_tokens=90)
    core.step()
    core.cancel("b")
    run(core)
    core.close()

    assert sorted(runner.forgotten) == ["a", "b"]
    assert len(sampler) == 0
    assert runner.closed


# at the door


def test_a_refusal_carries_the_numbers() -> None:
    """T1: larger than the pool is refused at submit, and leaves no trace."""
    sampler = BatchSampler()
    core, inbox = make_core(FakeRunner(num_blocks=4, block_size=16), sampler=sampler), Inbox()

    with pytest.raises(RequestRefused, match="--num-kv-blocks 7") as caught:
        submit(core, "a", inbox, prompt="x" * 100, max_tokens=10)

    assert caught.value.refused.reason is Reason.NEVER_FITS
    assert not core.has_work
    assert len(sampler) == 0


def test_submitted_together_they_leave_together() -> None:
    """What arrives while together() is held is one batch, even after the input has ended."""
    witness = Witness()
    core, inbox = make_core(policy="static", batch_size=8, observers=[witness]), Inbox()
    core.end_input()
    with core.together():
        for name in "abc":
            submit(core, name, inbox, max_tokens=2)

    run(core)

    assert [batch.members for batch in witness.batches] == [3]


# when a step fails


@pytest.mark.parametrize("policy", POLICIES)
def test_a_step_that_fails_now_and_then_is_made_again(policy: PolicyName) -> None:
    """One failure in the middle changes no answer."""
    expected, got = Inbox(), Inbox()
    for inbox, broken in ((expected, 0), (got, MAX_ATTEMPTS - 1)):
        runner = FakeRunner(vocabulary=128)
        broken_for(runner, broken, step=3)
        core = make_core(runner, policy=policy)
        for name in ("a", "b", "c"):
            submit(core, name, inbox, max_tokens=8)
        core.end_input()
        run(core)
        assert core.health().ok

    assert got.tokens() == expected.tokens()
    assert got.reasons() == dict.fromkeys(("a", "b", "c"), LENGTH)


@pytest.mark.parametrize("policy", POLICIES)
def test_a_step_that_keeps_failing_ends_those_in_it_and_nobody_else(policy: PolicyName) -> None:
    """After so many attempts in a row the members of the plan end with an error; who waited is answered."""
    runner = FakeRunner(vocabulary=128)
    broken_for(runner, MAX_ATTEMPTS, step=3)
    core, inbox = make_core(runner, policy=policy, batch_size=2, max_batch_size=2, max_num_seqs=2), Inbox()
    for name in ("a", "b", "waits", "too"):
        submit(core, name, inbox, max_tokens=8)
    core.end_input()

    run(core)

    assert inbox.reasons() == {"a": FinishReason.ERROR, "b": FinishReason.ERROR, "waits": LENGTH, "too": LENGTH}
    assert "failed 3 times in a row: step 3 was scripted to fail" in inbox.answer("a").error
    stats = core.stats()
    assert stats.usage.kv_used == 0
    assert stats.counters.finished[FinishReason.ERROR] == 2
    assert stats.counters.output_tokens == 16 + inbox.answer("a").output_tokens + inbox.answer("b").output_tokens


def test_health_is_red_while_steps_fail() -> None:
    """The cause is shown from the first failure until a step succeeds."""
    runner = FakeRunner(vocabulary=128)
    broken_for(runner, 1, step=1)
    core, inbox = make_core(runner), Inbox()
    submit(core, "a", inbox, max_tokens=4)

    seen = []
    while core.has_work:
        core.step()
        seen.append(core.health())

    assert [health.ok for health in seen] == [True, False, True, True, True]
    assert "step 1 was scripted to fail" in seen[1].cause
    assert seen[1].since is not None


def test_a_prompts_failing_step_frees_it_too() -> None:
    """A step of nothing but a prompt's chunk fails for good: the request ends and its blocks are free."""
    runner = FakeRunner(vocabulary=128)
    broken_for(runner, MAX_ATTEMPTS, step=0)
    core, inbox = make_core(runner, max_num_batched_tokens=32), Inbox()
    submit(core, "long", inbox, prompt="x" * 100, max_tokens=4)

    run(core)

    assert inbox.answer("long").finish_reason is FinishReason.ERROR
    assert core.stats().usage.kv_used == 0
    assert core.stats().counters.output_tokens == 0


@pytest.mark.parametrize("policy", POLICIES)
def test_a_row_that_fails_ends_alone(policy: PolicyName) -> None:
    """NaN in one row's logits: that request ends with words, its neighbours' tokens do not change."""
    got, expected = Inbox(), Inbox()
    for inbox, broken in ((expected, {}), (got, {"b": float("nan")})):
        sampler = BatchSampler()
        runner = LogitsRunner(sampler)
        runner.broken_rows.update(broken)
        core = make_core(runner, sampler=sampler, policy=policy)
        for name in ("a", "b", "c"):
            submit(core, name, inbox, max_tokens=6, seed=1, ignore_eos=True)
        core.end_input()
        run(core)

    assert got.answer("b").finish_reason is FinishReason.ERROR
    assert "not finite" in got.answer("b").error
    assert {name: got.tokens()[name] for name in "ac"} == {name: expected.tokens()[name] for name in "ac"}


def test_a_broken_device_leaves_nobody_hanging() -> None:
    """Every request ends with the cause, health is red, and the door is shut with the same words."""
    core, inbox = make_core(BrokenRunner(vocabulary=128), max_num_seqs=2), Inbox()
    for name in ("a", "b", "queued"):
        submit(core, name, inbox, max_tokens=9)

    run(core)

    assert inbox.reasons() == dict.fromkeys(("a", "b", "queued"), FinishReason.ERROR)
    assert "RuntimeError: the device fell off the bus" in inbox.answer("queued").error
    assert not core.health().ok
    assert "fell off the bus" in core.health().cause
    with pytest.raises(EngineUnhealthy, match="fell off the bus"):
        submit(core, "late", inbox, max_tokens=1)
    assert core.step() is not None


def test_a_bug_in_the_engine_leaves_nobody_hanging_either(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a step raises, every request ends with it, and closing still works."""
    core, inbox = make_core(), Inbox()
    for name in "ab":
        submit(core, name, inbox, max_tokens=9)
    core.step()

    def fail(*args: Any) -> None:
        raise ContractError("the books do not balance")

    monkeypatch.setattr(core._scheduler, "commit", fail)
    run(core)
    core.close()

    assert inbox.reasons() == dict.fromkeys("ab", FinishReason.ERROR)
    assert "the books do not balance" in core.health().cause


def test_health_is_green_again_when_the_failing_work_is_gone() -> None:
    """Nothing is left that could fail: a red light for ever would keep everybody away."""
    runner = FakeRunner(vocabulary=128)
    broken_for(runner, MAX_ATTEMPTS, step=0)
    core, inbox = make_core(runner), Inbox()
    submit(core, "a", inbox, max_tokens=4)
    run(core)
    assert not core.health().ok

    core.step()

    assert core.health().ok


def test_closing_in_the_middle_of_a_step_ends_everyone() -> None:
    """An interrupt between plan and commit leaves a step in flight; closing ends its requests all the same."""

    class Interrupted(FakeRunner):
        def execute(self, plan: StepPlan) -> StepOutcome:
            raise KeyboardInterrupt

    core, inbox = make_core(Interrupted()), Inbox()
    submit(core, "a", inbox, max_tokens=4)
    with pytest.raises(KeyboardInterrupt):
        core.step()

    core.close()

    assert inbox.reasons() == {"a": FinishReason.CANCELLED}


class RefusingPool(BlockPool):
    """An allocator that refuses for ever."""

    def allocate(self, table: Any, count: int) -> bool:
        return False


@pytest.mark.parametrize("policy", POLICIES)
def test_t12_an_allocator_that_refuses_turns_health_red(policy: PolicyName, caplog: pytest.LogCaptureFixture) -> None:
    """T12 (vllm 53130): red with the cause, and one log line a period however often it is tried."""
    clock = Clock()
    core, inbox = make_core(policy=policy, clock=clock, pool=RefusingPool(64, 16)), Inbox()
    submit(core, "a", inbox, max_tokens=4)
    core.end_input()

    with caplog.at_level(logging.ERROR, logger="chairlift.engine"):
        for _ in range(900):
            clock.time += 100_000_000
            wait = core.step()
            assert wait is not None
            assert wait.reason is Reason.STALLED

    assert not core.health().ok
    assert "KV blocks" in core.health().cause
    assert len(caplog.records) == 3  # 90 seconds, one line in 30
    assert "299 more" in caplog.records[1].message


# switching and shutting down


def test_a_live_switch_loses_nobody() -> None:
    """From static to continuous in the middle of a batch: everyone is answered as if nothing had been."""
    plain, switched = Inbox(), Inbox()
    for inbox in (plain, switched):
        core = make_core(policy="static", batch_size=3)
        for name in ("a", "b", "c", "d"):
            submit(core, name, inbox, max_tokens=8)
        core.end_input()
        for _ in range(3):
            core.step()
        if inbox is switched:
            core.switch_policy("continuous")
            assert core.config.policy == "continuous"
        run(core)

    assert switched.tokens() == plain.tokens()


def test_a_switch_that_cannot_be_is_refused() -> None:
    """Settings that were not reserved for at start do not come in by a switch."""
    with pytest.raises(ConfigError, match="--max-num-batched-tokens"):
        make_core().switch_policy("static", max_num_batched_tokens=4096)


def test_draining_answers_who_is_here_and_takes_nobody_in() -> None:
    """An unfilled static batch leaves when the server drains; newcomers are told so."""
    core, inbox = make_core(policy="static", batch_size=8), Inbox()
    submit(core, "a", inbox, max_tokens=3)

    core.drain()
    with pytest.raises(EngineClosed, match="shutting down"):
        submit(core, "late", inbox, max_tokens=3)
    run(core)

    assert inbox.reasons() == {"a": LENGTH}


def test_closing_ends_everyone_as_cancelled() -> None:
    """What is in progress at close is told so, and the device is freed."""
    runner = FakeRunner(vocabulary=128)
    core, inbox = make_core(runner, max_num_seqs=1), Inbox()
    for name in ("a", "queued"):
        submit(core, name, inbox, max_tokens=100)
    core.step()

    core.close()

    assert inbox.reasons() == dict.fromkeys(("a", "queued"), FinishReason.CANCELLED)
    assert runner.closed
    with pytest.raises(EngineClosed):
        submit(core, "late", inbox, max_tokens=1)


def test_the_ledger_reaches_up_to_now() -> None:
    """The statistics' ledger sums up to the wall clock at the moment they are asked for."""
    clock = Clock(tick=1000)
    core: EngineCore = make_core(clock=clock)
    inbox = Inbox()
    submit(core, "a", inbox, max_tokens=3)
    run(core)
    clock.time += 5_000_000

    ledger = core.stats().ledger

    assert sum(ledger.times.values()) == ledger.wall
    assert ledger.wall >= 5_000_000
