import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chairlift.core.errors import ConfigError
from chairlift.lab.loads.describe import describe
from chairlift.lab.loads.prompts import Prompts, SafeIds
from tests.lab.loads.making import LENGTHS, schedule


def test_a_load_is_described_as_it_will_be_sent() -> None:
    """Numbers of a load that can be reckoned by hand."""
    load = schedule(
        "arrivals=constant arrivals.rate=2 count=101 prompt=100 output=bimodal output.short=20 output.long=600 "
        "output.ratio=1:1 output.order=cycle max_tokens=700 deadline=1s"
    )

    told = describe(load)

    assert (told.requests, told.complete, told.sessions, told.longest, told.users) == (101, True, 0, 800, None)
    assert (told.prompt.mean, told.prompt.cv2) == (100, 0)
    assert told.output.mean == pytest.approx((51 * 20 + 50 * 600) / 101)
    assert (told.span_s, told.rate, told.cv_of_gaps) == (50, 2, 0)
    assert told.dispersion == {"1s": 0, "10s": None, "60s": None}
    assert (told.shared_tokens, told.peak_concurrency_at_least, told.deadlines) == (0, 1, 101)
    assert (told.classes, told.priorities) == ({}, {"0": 101})


def test_shared_tokens_are_what_a_perfect_cache_would_save() -> None:
    """Three prompts with one prefix of 50: two of them find it. A second turn finds all of the first and its answer."""
    prefixes = describe(schedule(f"arrivals=burst arrivals.size=3 {LENGTHS} prefix.tokens=50"))
    turns = describe(schedule(f"arrivals=constant arrivals.rate=1 count=2 {LENGTHS} sessions.turns=2"))

    assert prefixes.shared_tokens == 2 * 50 / (3 * 150)
    assert turns.shared_tokens == 120 / (100 + 220)


def test_blocks_are_shared_as_far_as_prompts_are_alike() -> None:
    """In the excerpt of Bailian: 32, 32, 0, 48 and 48 tokens of 40 + 33 + 70 + 16 + 110 + 66."""
    told = describe(schedule("arrivals=trace arrivals.file=qwen_bailian.jsonl"))

    # [0 1 3] finds 0 1; [0 1 4 5 6] finds 0 1; [7] nothing; [0 1 4 5 8 ...] finds 0 1 4 5; [0 1 4 11 ...] finds 0 1 4
    assert told.shared_tokens == pytest.approx((32 + 32 + 0 + 64 + 48) / 335)


def test_recorded_sessions_share_only_when_their_turns_follow() -> None:
    """In the excerpt in BurstGPT's format one turn is long enough to extend the 472 + 18 tokens before it."""
    burstgpt = "arrivals=trace arrivals.file=burstgpt.csv"
    total = 472 + 1087 + 530 + 77 + 78 + 301 + 540 + 900 + 140

    assert describe(schedule(burstgpt)).shared_tokens == 0
    assert describe(schedule(f"{burstgpt} arrivals.follow=true")).shared_tokens == pytest.approx(490 / total)


def test_a_block_that_was_seen_less_long_is_shared_as_far_as_it_was_seen(tmp_path: Path) -> None:
    """A last block of 100 tokens, then the same block whole and another: 100 are shared; then the same again: all."""
    rows = [(100, [5]), (600, [5, 6]), (600, [5, 6]), (600, [7, 6])]
    (tmp_path / "x").write_text(
        "".join(
            f'{{"timestamp": {time}, "input_length": {tokens}, "output_length": 1, "hash_ids": {names}}}\n'
            for time, (tokens, names) in enumerate(rows)
        )
    )

    told = describe(schedule("arrivals=trace arrivals.file=x", tmp_path))

    assert told.shared_tokens == (100 + 600) / 1900


@given(st.integers(0, 200), st.integers(1, 3), st.integers(1, 4), st.integers(0, 5))
def test_the_share_is_what_the_tokens_have_in_common(prefix: int, groups: int, turns: int, seed: int) -> None:
    """Counted by comparing prompts token by token, with answers as part of what was seen."""
    with_prefix = f"prefix.tokens={prefix} prefix.groups={groups}" if prefix else ""
    load = schedule(
        "arrivals=poisson arrivals.rate=1 count=12 prompt=uniform prompt.min=1 prompt.max=60 output=9 "
        f"{with_prefix} sessions.turns={turns} seed={seed}"
    )
    prompts = Prompts(load.load, SafeIds(0, 2**31))
    seen: list[list[int]] = []
    shared = total = 0
    later = {(request.session, request.turn): request for request in load}
    for request in load:
        tokens = prompts.tokens(request)
        total += len(tokens)
        shared += max((common(tokens, old) for old in seen), default=0)
        follower = later.get((request.session, request.turn + 1))
        known = prompts.tokens(follower)[: len(tokens) + 9] if follower else tokens
        seen.append(known)

    assert describe(load).shared_tokens == pytest.approx(shared / total)


def common(one: list[int], other: list[int]) -> int:
    """How many tokens two prompts begin with alike."""
    for count, (a, b) in enumerate(zip(one, other, strict=False)):
        if a != b:
            return count
    return min(len(one), len(other))


def test_concurrency_has_a_bound_from_below() -> None:
    """What starts at one instant; or what must overlap when an answer of 20 tokens takes at least 2 s."""
    bursts = "arrivals=burst arrivals.size=5 arrivals.every=1s count=50"

    assert describe(schedule(f"{bursts} {LENGTHS}")).peak_concurrency_at_least == 5
    assert describe(schedule(f"{bursts} {LENGTHS}"), token_time=10**8).peak_concurrency_at_least == 10
    assert describe(schedule(f"arrivals=closed arrivals.users=7 count=3 {LENGTHS}")).peak_concurrency_at_least == 3


def test_a_load_without_an_end_is_sampled_and_says_so() -> None:
    """The first ten thousand of a closed loop that goes on until its time is over."""
    told = describe(schedule(f"arrivals=closed arrivals.users=8 duration=1m {LENGTHS}"))

    assert (told.requests, told.complete, told.users, told.rate) == (10_000, False, 8, None)
    assert "10,000 requests (the first ones; the load goes on until its time is over)" in told.table()
    assert "closed loop of 8 users: when requests start is for the target to decide" in told.table()


def test_a_description_can_be_stored() -> None:
    """It is plain JSON, notes and all."""
    told = describe(schedule("arrivals=trace arrivals.file=burstgpt.csv"))

    stored = json.loads(json.dumps(told.to_json()))

    assert stored == told.to_json()
    assert stored["prompt"]["p50"] == told.prompt.p50
    assert stored["notes"] == [
        "burstgpt.csv: burstgpt trace, 9 requests",
        "burstgpt.csv: 1 rows left out (failed: 0 output tokens)",
        "burstgpt.csv: times come in ticks of 1s: 5 distinct values in 9 requests; spread inside their tick",
    ]


def test_the_table_says_what_there_is() -> None:
    """Lengths, times, sharing, classes, priorities, deadlines, and notes; what does not apply is left out."""
    table = describe(
        schedule(
            f"arrivals=gamma arrivals.rate=5 arrivals.cv=2 count=300 {LENGTHS} sessions.turns=2 "
            "classes.chat.share=1 classes.chat.deadline=1s classes.batch.share=1 classes.batch.priority=9"
        ),
        token_time=10**7,
    ).table()

    assert "starts/s over" in table
    assert "300 requests in 150 sessions, longest prompt + max_tokens 240" in table
    assert "37.5% of the prompt tokens are shared with an earlier prompt" in table
    assert "in flight at the peak if a token takes 0.01 s" in table
    assert "classes: batch" in table
    assert "priorities: 0: " in table
    assert "with a deadline" in table
    assert "classes" not in describe(schedule(f"arrivals=burst arrivals.size=3 {LENGTHS}")).table()
    assert "all start at one instant" in describe(schedule(f"arrivals=burst arrivals.size=3 {LENGTHS}")).table()


def test_an_empty_load_is_an_error() -> None:
    """Nothing was recorded in the first nanosecond after the start."""
    nothing = "arrivals=trace arrivals.file=AzureLLMInferenceTrace_conv.csv arrivals.start=1s duration=1ns"

    with pytest.raises(ConfigError, match="the load has no request in it"):
        describe(schedule(nothing))
