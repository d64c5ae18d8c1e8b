from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chairlift.core.errors import ContractError
from chairlift.core.ledger import Category, Ledger
from chairlift.core.plan import TokenCounts

GAPS = (Category.HOST, Category.HELD, Category.IDLE)


def _book(ledger: Ledger, now: int, device_time: int, tokens: TokenCounts, **more: Any) -> None:
    ledger.book_step(now, device_time=device_time, tokens=tokens, live_rows=1, dead_rows=0, slots=4, **more)


def test_the_clock_starts_with_the_first_call() -> None:
    """Time before it belongs to nobody, and an unused ledger is empty."""
    ledger = Ledger()
    assert ledger.report().wall == 0
    assert ledger.report(100).wall == 0
    ledger.pass_to(50, Category.IDLE)
    assert ledger.report(80).wall == 30


def test_a_gap_is_what_was_said_of_it_when_it_began() -> None:
    """Each stretch is booked as what the last call named, the present one up to now included."""
    ledger = Ledger()
    ledger.pass_to(0, Category.HELD)
    ledger.pass_to(10, Category.HOST)
    ledger.pass_to(11, Category.IDLE)

    times = ledger.report(20).times

    assert (times[Category.HELD], times[Category.HOST], times[Category.IDLE]) == (10, 1, 9)
    assert ledger.gap is Category.IDLE


def test_device_time_is_shared_by_tokens_and_the_rest_is_host_time() -> None:
    """Average cost: 60 ns over 3 prefill, 2 decode and 1 padding token; the other 40 ns of the step are the host's."""
    ledger = Ledger()
    ledger.pass_to(0, Category.HOST)
    _book(ledger, 100, 60, TokenCounts(prefill=3, decode=2, padding=1))

    times = ledger.report().times

    assert (times[Category.PREFILL], times[Category.DECODE], times[Category.PADDING]) == (30, 20, 10)
    assert times[Category.HOST] == 40


def test_what_does_not_divide_goes_to_the_kind_with_the_most() -> None:
    """The remainder rule: each kind gets the floor of its share, the largest one the rest."""
    ledger = Ledger()
    ledger.pass_to(0, Category.HOST)
    _book(ledger, 100, 100, TokenCounts(prefill=1, decode=4, dead=2))

    times = ledger.report().times

    assert (times[Category.PREFILL], times[Category.DEAD], times[Category.DECODE]) == (14, 28, 58)


def test_a_device_that_claims_more_than_the_step_took_is_cut_to_it() -> None:
    """Two clocks may disagree; the wall clock wins."""
    ledger = Ledger()
    ledger.pass_to(0, Category.HOST)
    _book(ledger, 10, 25, TokenCounts(decode=1))

    report = ledger.report()

    assert (report.device, report.times[Category.DECODE], report.times[Category.HOST]) == (10, 10, 0)


def test_a_drains_steps_are_switching_whole() -> None:
    """Device and host time of a step of a drain are booked as switching; device time still counts as busy."""
    ledger = Ledger()
    ledger.pass_to(0, Category.HOST)
    ledger.book_step(10, device_time=6, tokens=TokenCounts(decode=1), live_rows=1, dead_rows=0, slots=1, switching=True)

    report = ledger.report()

    assert report.times[Category.SWITCHING] == report.wall == 10
    assert report.device == 6
    assert report.tokens.decode == 1


def test_slots_are_live_dead_or_empty() -> None:
    """Each step offers as many slots as the policy has rows."""
    ledger = Ledger()
    ledger.pass_to(0, Category.HOST)
    ledger.book_step(5, device_time=5, tokens=TokenCounts(decode=2, dead=1), live_rows=2, dead_rows=1, slots=8, times=3)

    slots = ledger.report().slots

    assert (slots.live, slots.dead, slots.empty) == (6, 3, 15)


def test_busy_and_useful_are_shares() -> None:
    """Busy: device time / wall. Useful: prefill and decode / all computed tokens. Zero before anything happened."""
    ledger = Ledger()
    assert (ledger.report().busy, ledger.report().useful) == (0.0, 0.0)
    ledger.pass_to(0, Category.HOST)
    _book(ledger, 100, 25, TokenCounts(prefill=1, decode=1, recompute=1, padding=1))

    assert (ledger.report().busy, ledger.report().useful) == (0.25, 0.5)


def test_recoverable_time_is_part_of_the_device_time() -> None:
    """What single steps were off by evens out; the sum is neither below zero nor above the device time."""
    ledger = Ledger()
    ledger.pass_to(0, Category.HOST)
    reports = []
    for now, nanoseconds in ((10, -3), (20, 7), (30, 200)):
        _book(ledger, now, 8, TokenCounts(decode=1, dead=1), saved=nanoseconds * 10**6 + 5)
        reports.append(ledger.report().recoverable)

    assert reports == [0, 4, 24]


def test_time_never_runs_backwards() -> None:
    """Every call refuses a time before the last booking and changes nothing."""
    ledger = Ledger()
    ledger.pass_to(10, Category.IDLE)
    for call in (
        lambda: ledger.pass_to(9, Category.HOST),
        lambda: _book(ledger, 9, 1, TokenCounts(decode=1)),
        lambda: ledger.report(9),
        lambda: ledger.check(9),
    ):
        with pytest.raises(ContractError, match="time ran backwards: 9 ns after 10 ns"):
            call()
    assert ledger.report().wall == 0


_COUNTS = st.builds(
    TokenCounts,
    prefill=st.integers(0, 50),
    decode=st.integers(1, 9),
    recompute=st.integers(0, 20),
    padding=st.integers(0, 20),
    dead=st.integers(0, 9),
)
_STEPS = st.tuples(st.integers(0, 10**6), st.integers(0, 2 * 10**6), _COUNTS, st.booleans())


@given(
    start=st.integers(0, 1000),
    events=st.lists(st.one_of(_STEPS, st.tuples(st.integers(0, 10**6), st.sampled_from(GAPS))), max_size=20),
)
def test_the_categories_sum_to_the_wall_clock_exactly(start: int, events: list[tuple[object, ...]]) -> None:
    """Whatever is booked, in integers, with no nanosecond lost or made."""
    ledger, now, tokens = Ledger(), start, TokenCounts()
    ledger.pass_to(start, Category.IDLE)
    for event in events:
        match event:
            case (int(span), int(device), TokenCounts() as counts, bool(switching)):
                now += span
                tokens += counts
                ledger.book_step(
                    now,
                    device_time=device,
                    tokens=counts,
                    live_rows=1,
                    dead_rows=0,
                    slots=1,
                    switching=switching,
                )
            case (int(span), Category() as gap):
                now += span
                ledger.pass_to(now, gap)
        report = ledger.report()
        assert sum(report.times.values()) == report.wall == now - start
        assert min(report.times.values()) >= 0
        assert report.device <= report.wall
    assert ledger.report().tokens == tokens
    assert sum(ledger.report(now + 77).times.values()) == now + 77 - start


@given(st.lists(st.integers(0, 1000), min_size=1, max_size=12), _COUNTS)
def test_many_equal_steps_read_the_same_booked_one_by_one_or_at_once(spans: list[int], counts: TokenCounts) -> None:
    """Additive in `times`: shares are divided only when read, so that a jump loses nothing to rounding."""
    single, jump, now = Ledger(), Ledger(), 0
    for ledger in (single, jump):
        ledger.pass_to(0, Category.HOST)
    for span in spans:
        now += span
        _book(single, now, span, counts)
    _book(jump, now, sum(spans), counts, times=len(spans))

    assert single.report() == jump.report()


@given(st.lists(_COUNTS, min_size=1, max_size=8), st.integers(1, 997))
def test_no_kind_is_off_by_more_than_the_remainder_rule_says(counts: list[TokenCounts], device: int) -> None:
    """Each kind is within four nanoseconds for each distinct step total of its exact share."""
    ledger, now = Ledger(), 0
    ledger.pass_to(0, Category.HOST)
    for one in counts:
        now += device
        _book(ledger, now, device, one)
    times, totals = ledger.report().times, len({one.total for one in counts})

    for category in (Category.PREFILL, Category.DECODE, Category.RECOMPUTE, Category.PADDING, Category.DEAD):
        exact = sum(device * getattr(one, category.value) / one.total for one in counts)
        assert abs(times[category] - exact) <= 4 * totals + 1e-6
