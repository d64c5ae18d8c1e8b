import logging
from dataclasses import replace

import pytest

from chairlift.core.config import POLICIES, PolicyName
from chairlift.core.request import FinishReason
from chairlift.core.work import ModelShape, work_of
from chairlift.engine.observe import Observer
from chairlift.engine.sampling import BatchSampler
from chairlift.records.schema import RequestRecord, StepRecord
from chairlift.runners.fake import FakeRunner
from tests.engine.tiny import Clock, Inbox, LogitsRunner, Witness, make_core, run, submit

SHAPE = ModelShape(
    num_layers=2,
    hidden_size=8,
    num_heads=2,
    num_kv_heads=1,
    head_dim=4,
    intermediate_size=16,
    vocab_size=128,
    layer_weight_bytes=1000,
    head_weight_bytes=500,
)


class ShapedRunner(FakeRunner):
    """A fake runner that says how large its model is."""

    def shape(self) -> ModelShape:
        return SHAPE


@pytest.mark.parametrize("policy", POLICIES)
def test_the_records_agree_with_ledger_and_counters(policy: PolicyName) -> None:
    """Summed over the steps, tokens by kind, time and samples are the ledger's; the requests are the counters'."""
    witness = Witness()
    runner = FakeRunner(vocabulary=128, num_blocks=24, block_size=4)
    core = make_core(runner, policy=policy, batch_size=3, max_batch_size=3, observers=[witness], max_model_len=64)
    inbox = Inbox()
    for n in range(7):
        submit(core, f"r{n}", inbox, prompt="x" * (3 * n + 1), max_tokens=2 + 3 * n)
    core.end_input()
    run(core)

    stats = core.stats()
    steps, tokens = witness.steps, stats.ledger.tokens
    assert [step.step for step in steps] == list(range(stats.ledger.steps))
    for kind in ("prefill", "decode", "recompute", "padding", "dead"):
        assert sum(getattr(step, kind) for step in steps) == getattr(tokens, kind), kind
    assert sum(step.samples for step in steps) == stats.counters.output_tokens
    assert sum(min(step.device_time, step.committed - step.planned) for step in steps) <= stats.ledger.device
    assert sum(step.preempted for step in steps) == stats.counters.preemptions
    assert sum(record.preemptions for record in witness.requests.values()) == stats.counters.preemptions
    assert sum(record.output_tokens for record in witness.requests.values()) == stats.counters.output_tokens
    assert len(witness.requests) == 7


def test_a_step_shows_queue_and_pool_as_they_stand_after_it() -> None:
    """Two run and one waits; then the last runs alone; then nobody, and the pool keeps what may be shared."""
    witness = Witness()
    core = make_core(FakeRunner(vocabulary=128, block_size=4), max_num_seqs=2, observers=[witness])
    inbox = Inbox()
    for name, most in (("a", 2), ("b", 2), ("c", 2)):
        submit(core, name, inbox, prompt=name * 5, max_tokens=most)
    run(core)

    first, second, third, last = witness.steps
    assert (first.running, first.waiting, first.waiting_tokens, first.kv_used) == (2, 1, 5, 4)
    assert (second.running, second.waiting, second.kv_used) == (0, 1, 0)
    assert (first.kv_peak, second.kv_peak) == (4, 4)
    assert (third.running, third.waiting, third.waiting_tokens) == (1, 0, 0)
    assert (last.running, last.kv_used, last.kv_cached, last.kv_total) == (0, 0, 3, 64)
    assert (first.prefill, first.decode, first.rows, first.samples) == (10, 0, 2, 2)


def test_the_work_of_a_step_is_that_of_its_plan() -> None:
    """Operations and bytes come from the model's shape, prefill and decode apart."""
    witness, runner = Witness(), ShapedRunner(vocabulary=128)
    core, inbox = make_core(runner, observers=[witness]), Inbox()
    submit(core, "a", inbox, prompt="hello", max_tokens=3)
    run(core)

    for record, plan in zip(witness.steps, runner.executed, strict=True):
        work = work_of(plan, SHAPE)
        assert record.decode_flops + record.prefill_flops == work.flops
        assert record.weight_bytes + record.decode_kv_bytes + record.prefill_kv_bytes == work.bytes
    assert witness.steps[0].prefill_flops > 0 == witness.steps[0].decode_flops
    assert witness.steps[1].decode_flops > 0 == witness.steps[1].prefill_flops


def test_a_closed_batch_shows_its_forecast_beside_what_happened() -> None:
    """Reserved blocks are exact; an answer that stops early takes fewer steps than forecast."""
    witness = Witness()
    core, inbox = make_core(policy="static", batch_size=2, observers=[witness]), Inbox()
    for name in ("ab", "cd"):
        submit(core, name, inbox, max_tokens=30)
    run(core)

    (batch,) = witness.batches
    assert (batch.members, batch.reason, batch.policy) == (2, "batch_full", "static")
    assert batch.forecast_blocks == batch.peak_blocks == 4
    assert batch.steps == batch.forecast_steps == 30
    assert batch.started == witness.steps[0].planned
    assert batch.ended == witness.steps[-1].committed
    assert {step.batch for step in witness.steps} == {batch.batch}


def test_a_request_lives_through_the_moments_in_order() -> None:
    """Held back by a static batch: admitted, computed, finished, released; and it counts as not streamed."""
    witness = Witness()
    core, inbox = make_core(policy="static", batch_size=2, observers=[witness]), Inbox()
    submit(core, "short", inbox, max_tokens=2)
    submit(core, "long", inbox, max_tokens=5)
    run(core)

    short = witness.requests["short"]
    assert short.admitted is not None
    assert short.first_token_computed is not None
    assert short.finished is not None
    assert short.arrival < short.admitted < short.first_token_computed < short.finished < short.released
    assert short.first_token_released == short.released == witness.requests["long"].released
    assert not short.streamed
    assert len(short.token_gaps) == 1


def test_a_preempted_request_keeps_its_first_admission() -> None:
    """Preemption is counted, the queue time ends with the first admission, and tokens stay streamed."""
    witness = Witness()
    core = make_core(FakeRunner(vocabulary=128, num_blocks=8, block_size=4), watermark=0.0, observers=[witness])
    inbox = Inbox()
    submit(core, "a", inbox, prompt="aaa", max_tokens=20)
    submit(core, "b", inbox, prompt="bbb", max_tokens=20)
    run(core)

    record = witness.requests["b"]
    assert record.preemptions > 0
    assert record.admitted is not None
    assert record.first_token_computed is not None
    assert record.admitted < record.first_token_computed
    assert record.streamed
    assert record.output_tokens == len(record.token_gaps) + 1 == 20


def test_a_request_that_never_ran_has_no_moments() -> None:
    """Cancelled in the queue: arrival and release only."""
    witness = Witness()
    core, inbox = make_core(max_num_seqs=1, observers=[witness]), Inbox()
    submit(core, "a", inbox, max_tokens=5)
    submit(core, "queued", inbox, max_tokens=5)
    core.step()
    core.cancel("queued")
    run(core)

    record = witness.requests["queued"]
    assert (record.admitted, record.first_token_computed, record.first_token_released) == (None, None, None)
    assert (record.finish_reason, record.output_tokens) == (FinishReason.CANCELLED, 0)


def test_a_failed_row_is_counted_and_told() -> None:
    """The step says how many rows failed; the request's record has the message."""
    witness, sampler = Witness(), BatchSampler()
    runner = LogitsRunner(sampler)
    core, inbox = make_core(runner, sampler=sampler, observers=[witness]), Inbox()
    runner.broken_rows["b"] = float("nan")
    for name in "ab":
        submit(core, name, inbox, max_tokens=3, ignore_eos=True)
    run(core)

    assert [(step.rows, step.samples, step.failures) for step in witness.steps] == [(2, 1, 1), (1, 1, 0), (1, 1, 0)]
    assert "not finite" in witness.requests["b"].error
    assert witness.requests["b"].output_tokens == 0


def test_decisions_come_with_the_moment_they_became_known() -> None:
    """A request's story is told in order."""
    witness = Witness()
    core, inbox = make_core(observers=[witness], max_num_batched_tokens=64), Inbox()
    submit(core, "a", inbox, prompt="x" * 100, max_tokens=2)
    run(core)

    assert [one.reason for one in witness.decisions] == ["accepted", "admitted", "chunked", "decoding", "finished"]
    times = [one.time for one in witness.decisions]
    assert times == sorted(times)
    assert times[1] == witness.steps[0].planned


def test_a_batch_dissolved_by_a_switch_leaves_no_record() -> None:
    """It did not run to its end, so there is nothing to compare the forecast with."""
    witness = Witness()
    core, inbox = make_core(policy="static", batch_size=2, observers=[witness]), Inbox()
    for name in "ab":
        submit(core, name, inbox, max_tokens=9)
    core.step()
    core.switch_policy("continuous")
    run(core)

    assert witness.batches == []
    assert witness.steps[0].batch == 1
    assert witness.steps[-1].batch is None


def test_an_observer_that_fails_is_dropped_and_harms_nobody(caplog: pytest.LogCaptureFixture) -> None:
    """Its exception is logged once; the other observers and the answers go on."""

    class Failing(Observer):
        def on_step(self, record: StepRecord) -> None:
            raise OSError("disk full")

    witness = Witness()
    core, inbox = make_core(observers=[Failing(), witness]), Inbox()
    submit(core, "a", inbox, max_tokens=4)
    with caplog.at_level(logging.ERROR, logger="chairlift.engine"):
        run(core)

    assert inbox.answer("a").finish_reason is FinishReason.LENGTH
    assert len(witness.steps) == 4
    assert len(caplog.records) == 1


def test_an_observer_may_come_and_go() -> None:
    """Between attach and detach it sees what happens, before and after nothing."""
    seen: list[RequestRecord] = []

    class Counting(Observer):
        def on_request(self, record: RequestRecord) -> None:
            seen.append(record)

    core, inbox, counting = make_core(), Inbox(), Counting()
    for name in ("before", "while", "after"):
        if name == "while":
            core.attach(counting)
        if name == "after":
            core.detach(counting)
            core.detach(counting)
        submit(core, name, inbox, max_tokens=2)
        run(core)

    assert [record.request_id for record in seen] == ["while"]


def test_records_do_not_change_answers() -> None:
    """Watched or not, the same plans are made at the same times."""
    runs = []
    for observers in ([], [Witness()]):
        runner = FakeRunner(vocabulary=128)
        core, inbox = make_core(runner, clock=Clock(tick=1000), observers=observers), Inbox()
        for name in "abc":
            submit(core, name, inbox, max_tokens=5)
        run(core)
        runs.append([replace(plan, tables=()) for plan in runner.executed])

    assert runs[0] == runs[1]
