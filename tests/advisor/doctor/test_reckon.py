from dataclasses import replace
from typing import Any

import pytest

from chairlift.advisor.doctor.case import Case
from chairlift.advisor.doctor.reckon import blocked, facts_of, held, weighted_percentile
from chairlift.core.config import SchedulerConfig
from chairlift.records.schema import BatchRecord, DecisionRecord, RequestRecord, StepRecord

MS = 1_000_000


def step(number: int, planned: int, committed: int, **fields: Any) -> StepRecord:
    """A step with times in ms; the device works all the time unless told otherwise."""
    counts = dict.fromkeys(
        ("samples", "failures", "prefill", "decode", "recompute", "padding", "dead", "decode_flops", "prefill_flops",
         "weight_bytes", "decode_kv_bytes", "prefill_kv_bytes", "running", "waiting", "waiting_tokens", "preempted",
         "kv_used", "kv_cached"), 0,
    )  # fmt: skip
    given: dict[str, Any] = {"device_time": committed - planned, "rows": 1, "repeats": 1, "kv_total": 100, **fields}
    given["device_time"] *= MS
    return StepRecord(step=number, policy="continuous", planned=planned * MS, committed=committed * MS,
                      **{**counts, **given})  # fmt: skip


def request(number: int, arrival: int, admitted: int, released: int, **fields: Any) -> RequestRecord:
    """An answered request with times in ms."""
    given: dict[str, Any] = {"prompt_tokens": 10, "cached_tokens": 0, "output_tokens": 5, "preemptions": 0,
                             "streamed": True, "finish_reason": "stop", "policy": "continuous"}  # fmt: skip
    return RequestRecord(
        request_id=f"r{number}", arrival=arrival * MS, admitted=admitted * MS, first_token_computed=admitted * MS,
        first_token_released=admitted * MS, finished=released * MS, released=released * MS, **{**given, **fields},
    )  # fmt: skip


def test_means_over_time_not_over_steps() -> None:
    """Running 1 for 10 ms and 4 for 30 ms: 3.25."""
    steps = [step(0, 0, 10, running=1), step(1, 10, 20, running=4), step(2, 20, 50, running=2)]

    facts = facts_of(Case("x", steps=steps))

    assert facts.running_mean == pytest.approx((1 * 10 + 4 * 30) / 40)
    assert facts.running_peak == 4
    assert facts.wall == pytest.approx(0.050)
    assert facts.busy == 1


def test_waste_is_counted_in_time_at_average_cost() -> None:
    """Two of four rows dead in a step of 10 ms, none in one of 30: an eighth of the device's time."""
    steps = [step(0, 0, 10, decode=2, dead=2), step(1, 10, 40, decode=4)]

    facts = facts_of(Case("x", steps=steps))

    assert facts.dead_time == pytest.approx(5 / 40)
    assert facts.useful == pytest.approx(6 / 8)
    assert facts.padding_time == 0


def test_at_the_limit_means_with_a_queue() -> None:
    """As many run as may for 30 of 40 ms, and for 20 of them somebody waits."""
    config = SchedulerConfig(max_num_seqs=2)
    steps = [
        step(0, 0, 10, running=1, waiting=0),
        step(1, 10, 20, running=2, waiting=0),
        step(2, 20, 30, running=2, waiting=3),
        step(3, 30, 50, running=2, waiting=1),
    ]

    assert facts_of(Case("x", config=config, steps=steps)).at_limit == pytest.approx(20 / 50)


def test_held_is_waiting_for_nothing() -> None:
    """Of a wait from 5 to 35 ms the device worked in 10 to 20 and in 30 to 40: 15 ms were for nothing."""
    steps = [step(0, 10, 20), step(1, 30, 40)]

    assert held(steps, [request(0, 5, 35, 40)]) == 15 * MS
    assert held(steps, [request(0, 12, 18, 40)]) == 0
    assert held(steps, [request(0, 0, 5, 40), request(1, 50, 60, 70)]) == pytest.approx(7.5 * MS)


def test_blocked_is_a_union() -> None:
    """Two requests wait for blocks from 0 to 20 and from 10 to 30, one goes on waiting to the end at 100."""
    decisions = [
        DecisionRecord(0, 0, "a", "waiting_for_blocks"),
        DecisionRecord(10 * MS, 1, "b", "waiting_for_blocks"),
        DecisionRecord(20 * MS, 2, "a", "admitted"),
        DecisionRecord(30 * MS, 3, "b", "admitted"),
        DecisionRecord(60 * MS, 4, "c", "waiting_for_slot"),
    ]
    case = Case("x", steps=[step(0, 0, 50), step(1, 50, 100)], decisions=decisions)

    assert blocked(case) == {"waiting_for_blocks": pytest.approx(0.3), "waiting_for_slot": pytest.approx(0.4)}


def batch(number: int, started: int, ended: int, members: int) -> BatchRecord:
    """A closed batch with times in ms."""
    return BatchRecord(number, "dynamic", "no_delay", members, 1, 1, None, started * MS, ended * MS, 1, 1)


def test_who_comes_soon_after_a_batch_is_too_late() -> None:
    """A batch of one from 0 to 1,000 ms with room for three more: of those that come at 50, 100, 149 and 150 ms three
    are within 15%.
    """
    arrivals = [0, 50, 100, 149, 150]
    case = Case(
        "x",
        config=SchedulerConfig(policy="dynamic", max_batch_size=4),
        requests=[request(n, time, 1000, 2000) for n, time in enumerate(arrivals)],
        batches=[batch(0, 1, 1001, 1)],
        steps=[step(0, 0, 1000)],
    )
    facts = facts_of(case)

    assert facts.late == pytest.approx(3 / 5)
    assert facts.late_within == pytest.approx(0.1382)
    full = facts_of(replace(case, batches=[batch(0, 1, 1001, 4)]))
    assert full.late == 0


def test_steps_are_told_apart_by_what_is_in_them() -> None:
    """The median of those without prompts, the ninetieth percentile of those with both; repeats count as many."""
    steps = [
        step(0, 0, 10, rows=2, decode=2),
        step(1, 10, 110, rows=2, decode=20, repeats=10),
        step(2, 110, 160, rows=3, decode=2, prefill=30),
        step(3, 160, 170, rows=1, prefill=30),
    ]

    facts = facts_of(Case("x", steps=steps))

    assert facts.decode_step == pytest.approx(0.010)
    assert facts.mixed_step == pytest.approx(0.050)
    assert facts.step_by_rows == {2: pytest.approx(0.010)}
    assert facts.stretches == {2: 1}


def test_a_weighted_percentile_is_one_of_the_values() -> None:
    """As if each were there as often as it weighs."""
    assert weighted_percentile([(1.0, 9), (5.0, 1)], 50) == 1.0
    assert weighted_percentile([(1.0, 9), (5.0, 1)], 91) == 5.0
    assert weighted_percentile([(3.0, 1)], 99) == 3.0
