from pathlib import Path

import pytest

from chairlift.core.errors import ConfigError
from chairlift.lab.loads.request import After, At, Segment
from chairlift.lab.loads.traces import read_trace
from tests.lab.loads.making import FIXTURES, dues, requests, schedule

CONV = "arrivals=trace arrivals.file=AzureLLMInferenceTrace_conv.csv"
MOONCAKE = "arrivals=trace arrivals.file=mooncake_conversation_trace.jsonl"
BAILIAN = "arrivals=trace arrivals.file=qwen_bailian.jsonl"
BURSTGPT = "arrivals=trace arrivals.file=burstgpt.csv"


def test_times_and_lengths_are_the_recorded_ones() -> None:
    """Row by row, to the nanosecond."""
    trace, items = read_trace(FIXTURES / "AzureLLMInferenceTrace_conv.csv"), requests(CONV)

    assert dues(items) == list(trace.times)
    assert [request.prompt_tokens for request in items] == list(trace.prompt_tokens)
    assert [request.output_tokens for request in items] == list(trace.output_tokens)


def test_a_replay_can_start_later_be_stretched_and_be_cut() -> None:
    """What was before the start is left out, the rest moves to the front and is scaled; then duration and count cut."""
    times = read_trace(FIXTURES / "AzureLLMInferenceTrace_conv.csv").times
    late = [time for time in times if time >= 5 * 10**9]

    assert dues(requests(f"{CONV} arrivals.start=5s")) == [time - 5 * 10**9 for time in late]
    assert dues(requests(f"{CONV} arrivals.start=5s time_scale=2"))[:9] == [2 * time - 10**10 for time in late[:9]]
    assert dues(requests(f"{CONV} duration=5s")) == [time for time in times if time < 5 * 10**9]
    assert len(requests(f"{CONV} count=7")) == 7
    with pytest.raises(ConfigError, match=r"arrivals\.start is 999s, but \S+_conv\.csv ends after 24.1463s"):
        requests(f"{CONV} arrivals.start=999s")


def test_rounded_times_are_spread_and_said_unless_told_not_to() -> None:
    """Every request stays in its tick, and almost all times become different."""
    recorded = list(read_trace(FIXTURES / "mooncake_conversation_trace.jsonl").times)
    spread, kept = schedule(MOONCAKE), schedule(f"{MOONCAKE} arrivals.spread=false")

    assert dues(list(kept)) == recorded
    assert all(0 <= new - old < 3 * 10**9 for old, new in zip(recorded, dues(list(spread)), strict=True))
    assert len(set(dues(list(spread)))) == 60
    assert dues(list(spread)) != dues(requests(f"{MOONCAKE} seed=1"))
    assert spread.notes[1].endswith("ticks of 3s: 19 distinct values in 60 requests; spread inside their tick")
    assert kept.notes[1].endswith("left as they are: each tick is a burst")


def test_failures_are_said() -> None:
    """BurstGPT's rows without response tokens."""
    assert "burstgpt.csv: 1 rows left out (failed: 0 output tokens)" in schedule(BURSTGPT).notes


def test_blocks_become_shared_segments() -> None:
    """Of 512 tokens each, the last one shorter; prompts that begin with the same names begin with the same segments."""
    items = requests(MOONCAKE)

    assert items[0].recipe[:2] == (Segment("block", 0, 512), Segment("block", 42, 512))
    assert items[0].recipe[-1] == Segment("block", 45, 2290 - 4 * 512)
    assert {request.recipe[0] for request in items if request.prompt_tokens >= 512} == {Segment("block", 0, 512)}


def test_blocks_that_do_not_reach_are_completed_and_those_beyond_are_dropped(tmp_path: Path) -> None:
    """The prompt is as long as the trace says, whatever its blocks say."""
    (tmp_path / "x").write_text(
        '{"timestamp": 0, "input_length": 600, "output_length": 1, "hash_ids": [5]}\n'
        '{"timestamp": 1, "input_length": 512, "output_length": 1, "hash_ids": [5, 6]}\n'
    )

    short, long = requests("arrivals=trace arrivals.file=x", tmp_path)

    assert short.recipe == (Segment("block", 5, 512), Segment("own", 0, 88))
    assert long.recipe == (Segment("block", 5, 512),)


def test_turns_are_sent_when_they_were_recorded_or_follow_their_answer() -> None:
    """Without follow at their times; with it, also not before the turn before has ended."""
    plain, following = requests(BAILIAN), requests(f"{BAILIAN} arrivals.follow=true")

    assert all(isinstance(request.start, At) for request in plain)
    assert [(request.session, request.turn) for request in plain] == [(0, 0), (1, 0), (0, 1), (2, 0), (0, 2), (0, 1)]
    assert following[2].start == After(0, not_before=3_250_000_000)
    assert following[4].start == After(2, not_before=9_750_000_000)
    assert following[5].start == After(0, not_before=11_000_000_000)
    assert [request.recipe for request in following] == [request.recipe for request in plain]


def test_sessions_without_blocks_extend_where_they_are_long_enough() -> None:
    """BurstGPT's session 101: 530 tokens hold 472 + 18; 540 do not hold 530 + 44 and start anew."""
    plain, following = requests(BURSTGPT), requests(f"{BURSTGPT} arrivals.follow=true")
    first, second, third = (request for request in following if request.session == 0)

    assert second.recipe == (*first.recipe, Segment("answer", first.index, 18), Segment("own", second.index, 40))
    assert third.recipe == (Segment("own", third.index, 540),)
    assert {len(request.recipe) for request in plain} == {1}


def test_a_session_whose_beginning_was_left_out_begins_later() -> None:
    """A turn whose predecessor is not sent waits for nobody."""
    late = requests(f"{BAILIAN} arrivals.follow=true arrivals.start=1s")

    assert late[0].start == At(2_250_000_000)
    assert late[2].start == After(0, not_before=8_750_000_000)


def test_a_rows_own_priority_deadline_and_class_come_first(tmp_path: Path) -> None:
    """Absent, they are the class's or the load's."""
    (tmp_path / "x").write_text(
        "time_s,prompt_tokens,output_tokens,priority,deadline_s,class\n0,9,9,0,,a\n1,9,9,,2.5,a\n2,9,9,,,b\n"
    )
    classes = "classes.a.share=1 classes.a.priority=3 classes.b.share=1 classes.b.output=4 deadline=9s"

    items = requests(f"arrivals=trace arrivals.file=x {classes}", tmp_path)

    assert [(request.kind, request.priority, request.deadline, request.output_tokens) for request in items] == [
        ("a", 0, 9 * 10**9, 9),
        ("a", 3, 2_500_000_000, 9),
        ("b", 0, 9 * 10**9, 4),
    ]
    with pytest.raises(ConfigError, match="has requests of the class 'a', which the load does not know: add a table"):
        requests("arrivals=trace arrivals.file=x", tmp_path)


def test_lengths_of_the_load_replace_the_traces() -> None:
    """Its times stay; with a prompt length of its own a block says nothing any more."""
    items = requests(f"{MOONCAKE} arrivals.spread=false prompt=50")

    assert {request.recipe for request in items} == {(Segment("own", index, 50),) for index in range(60)}
    assert items[0].output_tokens == 316


def test_a_prefix_goes_with_a_trace_unless_the_trace_knows_better() -> None:
    """Azure says nothing about sharing; Mooncake does."""
    assert requests(f"{CONV} prefix.tokens=50")[0].recipe == (Segment("prefix", 0, 50), Segment("own", 0, 374))
    with pytest.raises(ConfigError, match="prefix does not go with mooncake_conversation_trace"):
        requests(f"{MOONCAKE} prefix.tokens=50")
