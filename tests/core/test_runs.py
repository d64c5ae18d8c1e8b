import tracemalloc
from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chairlift.core.blocks import root_key
from chairlift.core.journal import fingerprint
from chairlift.core.plan import StepOutcome, Wait
from chairlift.core.runs import ContentKey, Cycle, Run, Stretches, TokenRuns, run_keys
from chairlift.core.scheduler import Scheduler
from tests.core.helpers import MILLISECOND, make_scheduler, request

ROOT = root_key("")

_runs = st.builds(Run, st.integers(0, 5), st.integers(0, 1), st.integers(0, 6))
_added = st.one_of(
    _runs,
    st.integers(0, 5),
    st.lists(st.integers(0, 5), max_size=5),
    st.lists(st.just(3), max_size=5),
    st.builds(lambda first, count: range(first, first + count), st.integers(0, 5), st.integers(0, 5)),
)


def _spelled(run: Run) -> list[int]:
    return [run.first + run.step * i for i in range(run.size)]


@given(st.lists(_added, max_size=8), st.data())
def test_runs_of_tokens_are_the_list_of_them(added: list[object], data: st.DataObject) -> None:
    """However they are put together: length, order, indices from both ends, slices and strides."""
    tokens, expected = TokenRuns(), list[int]()
    for one in added:
        match one:
            case Run():
                tokens.extend(TokenRuns.of(one))
                expected += _spelled(one)
            case int():
                tokens.append(one)
                expected.append(one)
            case list() | range():
                tokens.extend(one)
                expected += one
    assert list(tokens) == expected
    assert len(tokens) == len(expected)
    assert [tokens[i] for i in range(-len(expected), len(expected))] == expected * 2
    indices = st.none() | st.integers(-20, 20)
    cut = slice(data.draw(indices), data.draw(indices), data.draw(st.sampled_from([None, 1, 2, 3, -1, -2])))
    assert list(tokens[cut]) == expected[cut]
    assert tokens.same == (len(set(expected)) == 1)
    start, stop = sorted((data.draw(st.integers(0, 30)), data.draw(st.integers(0, 30))))
    cut_runs = list(tokens.runs(min(start, len(expected)), min(stop, len(expected))))
    assert [token for run in cut_runs for token in _spelled(run)] == expected[start:stop]
    for outside in (len(expected), -len(expected) - 1):
        with pytest.raises(IndexError):
            tokens[outside]


@given(st.lists(st.integers(0, 3), max_size=20), st.integers(0, 20))
def test_runs_are_equal_however_they_were_cut(tokens: list[int], at: int) -> None:
    """One by one, or in two parts."""
    parts = TokenRuns(tokens[:at])
    for token in tokens[at:]:
        parts.append(token)

    assert parts == TokenRuns(tokens)


def test_a_million_equal_tokens_take_no_room() -> None:
    """Nor does taking each eighth of them, or adding as many."""
    tracemalloc.start()
    tokens = TokenRuns.constant(7, 10**6)
    tokens.repeat(7, 10**6)
    eighth = tokens[::8]
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert (len(tokens), len(eighth), eighth[-1]) == (2 * 10**6, 250_000, 7)
    assert peak < 10_000


@given(st.lists(st.text(max_size=2), max_size=4), st.integers(0, 4), st.data())
def test_a_cycle_and_stretches_are_the_lists_of_their_things(items: list[str], times: int, data: st.DataObject) -> None:
    """As sequences: length, order, indices, slices."""
    counts = [data.draw(st.integers(0, 3)) for _ in items]
    cases: list[tuple[Sequence[str], list[str]]] = [
        (Cycle(items, times), items * times),
        (
            Stretches(zip(items, counts, strict=True)),
            [item for item, count in zip(items, counts, strict=True) for _ in range(count)],
        ),
    ]
    for sequence, expected in cases:
        assert list(sequence) == expected
        assert [sequence[i] for i in range(-len(expected), len(expected))] == expected * 2
        assert sequence[1:7:2] == expected[1:7:2]
        with pytest.raises(IndexError):
            sequence[len(expected)]


_prompts = st.lists(st.builds(Run, st.sampled_from([0, 1000, 2000]), st.integers(0, 1), st.integers(1, 9)), max_size=4)


@given(_prompts, _prompts, st.integers(0, 6), st.integers(2, 5))
def test_blocks_have_equal_keys_exactly_where_all_tokens_so_far_are_equal(
    ours: list[Run], theirs: list[Run], answer: int, size: int
) -> None:
    """Neither a hit that would show others' content, nor a miss of what is shared from the first token on."""
    described = []
    for runs in (ours, theirs):
        prompt, output = TokenRuns.of(*runs), TokenRuns.constant(5000, answer)
        keys: list[ContentKey] = []
        run_keys(keys, ROOT, prompt, output, (len(prompt) + answer) // size, size)
        described.append((keys, [*prompt, *output]))
    (one, tokens), (other, those) = described

    for block in range(min(len(one), len(other))):
        end = (block + 1) * size
        assert (one[block] == other[block]) == (tokens[:end] == those[:end])
    assert len(set(one)) == len(one)


@given(_prompts, st.integers(0, 20), st.lists(st.integers(0, 12), max_size=4), st.integers(1, 5))
def test_keys_are_the_same_however_often_they_were_asked_for(
    runs: list[Run], answer: int, asked: list[int], size: int
) -> None:
    """Of a few blocks first, of the answer's later; and an answer continued in a later prompt is known by them."""
    prompt, output = TokenRuns.of(*runs), TokenRuns.constant(5000, answer)
    most = (len(prompt) + answer) // size
    at_once: list[ContentKey] = []
    run_keys(at_once, ROOT, prompt, output, most, size)
    bit_by_bit: list[ContentKey] = []
    for blocks in sorted(min(most, one) for one in asked):
        run_keys(bit_by_bit, ROOT, prompt, output, max(blocks, len(bit_by_bit)), size)
    run_keys(bit_by_bit, ROOT, prompt, output, most, size)
    following = TokenRuns.of(*runs, Run(5000, 0, answer), Run(9000, 1, 7))
    next_turn: list[ContentKey] = []
    run_keys(next_turn, ROOT, following, [], len(following) // size, size)

    assert bit_by_bit == at_once == next_turn[:most]


@pytest.mark.parametrize("policy", ["continuous", "static", "dynamic"])
def test_described_prompts_are_scheduled_as_stored_ones(policy: str) -> None:
    """The same plans, and the same prefix hits."""
    schedulers = [
        make_scheduler(policy=policy, num_blocks=30, max_num_batched_tokens=40, max_queue_delay=0) for _ in range(2)
    ]
    shared = range(10_000, 10_040)
    now = 0
    for number in range(6):
        own = range(20_000 + 1000 * number, 20_000 + 1000 * number + 9 * number)
        schedulers[0].submit(request(f"r{number}", [*shared, *own], 12), now)
        schedulers[1].submit(
            request(f"r{number}", TokenRuns.of(Run(10_000, 1, 40), Run(own.start, 1, len(own))), 12), now
        )
    for scheduler in schedulers:
        scheduler.end_input(now)
    while schedulers[0].has_work:
        plans = [scheduler.plan(now) for scheduler in schedulers]
        assert fingerprint(plans[0]) == fingerprint(plans[1])
        now += MILLISECOND
        for scheduler, plan in zip(schedulers, plans, strict=True):
            assert not isinstance(plan, Wait)
            scheduler.commit(plan, StepOutcome([0] * len(plan.sampled_rows), MILLISECOND), now)
    assert schedulers[0].counters == schedulers[1].counters
    assert schedulers[0].counters.prefix_hits > 0


def test_a_jump_over_a_million_tokens_takes_no_room() -> None:
    """Neither in the answers nor in what the commit tells, streamed or held back."""
    peaks = []
    for times in (1000, 300_000):
        for policy in ("continuous", "static"):
            scheduler = _decoding(times, policy)
            tracemalloc.start()
            plan = scheduler.plan(0)
            assert not isinstance(plan, Wait)
            assert scheduler.horizon(plan) == times
            events = scheduler.commit(plan, StepOutcome(TokenRuns.constant(0, 4 * times), 9), 9, times)
            peaks.append(tracemalloc.get_traced_memory()[1])
            tracemalloc.stop()
            assert len(events.tokens) == len(events.request_ids) == 4 * times + (4 if scheduler.config.closed else 0)
            assert len(events.finished) == 4
    small, large = peaks[:2], peaks[2:]
    for before, after in pairwise((max(small), max(large))):
        assert after < before + 50_000


def _decoding(times: int, policy: str) -> Scheduler:
    """Four answers that have `times` tokens to go, in blocks large enough for their tables not to count."""
    scheduler = make_scheduler(num_blocks=40, block_size=100_000, max_model_len=10**6, policy=policy, batch_size=4)
    for number in range(4):
        scheduler.submit(request(f"r{number}", TokenRuns.of(Run(10**6 * number, 1, 8)), times + 1), 0)
    plan = scheduler.plan(0)
    assert not isinstance(plan, Wait)
    scheduler.commit(plan, StepOutcome([0] * 4, 0), 0)
    return scheduler
