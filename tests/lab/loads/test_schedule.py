import statistics
from itertools import islice, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chairlift.core.errors import ConfigError
from chairlift.lab.loads.request import After, At, Segment, WhenFree
from chairlift.lab.loads.schedule import Schedule
from chairlift.lab.loads.statistics import cv_of_gaps
from tests.lab.loads.making import LENGTHS, dues, load, requests, schedule
from tests.lab.loads.test_files import LOADS

SESSIONS = "sessions.turns=uniform sessions.turns.min=1 sessions.turns.max=5 sessions.think=2s"


@given(LOADS)
def test_the_same_load_gives_the_same_requests_and_they_are_sound(made: object) -> None:
    """Twice from one schedule and again from another; indexes count up, lengths add up, bounds hold."""
    assert isinstance(made, type(load(f"arrivals=constant arrivals.rate=1 count=1 {LENGTHS}")))
    one = Schedule(made)
    try:
        first = list(islice(one, 30))
    except ConfigError as error:
        assert "max_context" in str(error)  # noqa: PT017 - the one thing that only shows when it is tried
        return

    assert first == list(islice(one, 30)) == list(islice(Schedule(made), 30))
    assert [request.index for request in first] == list(range(len(first)))
    for request in first:
        assert request.prompt_tokens == sum(segment.tokens for segment in request.recipe)
        assert min(segment.tokens for segment in request.recipe) >= 1
        assert 1 <= request.output_tokens <= request.max_tokens
    assert dues(first) == sorted(dues(first))


def test_another_seed_is_another_load() -> None:
    """Times and lengths both differ."""
    pairs = "arrivals=poisson arrivals.rate=1 prompt=uniform prompt.min=1 prompt.max=999 output=9 count=50"
    one, other = requests(pairs), requests(f"{pairs} seed=1")

    assert dues(one) != dues(other)
    assert [request.prompt_tokens for request in one] != [request.prompt_tokens for request in other]


def test_lengths_do_not_depend_on_arrivals_nor_arrivals_on_lengths() -> None:
    """Changing one table changes nothing else, so that two runs differ in one thing."""
    lengths = "prompt=uniform prompt.min=1 prompt.max=999 output=9"
    poisson = requests(f"arrivals=poisson arrivals.rate=1 count=50 {lengths}")
    burst = requests(f"arrivals=burst arrivals.size=50 {lengths}")
    fixed = requests(f"arrivals=poisson arrivals.rate=1 count=50 {LENGTHS}")

    assert [request.recipe for request in poisson] == [request.recipe for request in burst]
    assert dues(poisson) == dues(fixed)


def test_count_and_duration_both_end_a_load() -> None:
    """Whichever comes first; a request due at the duration's very end is not in it."""
    constant = f"arrivals=constant arrivals.rate=2 {LENGTHS}"

    assert len(requests(f"{constant} count=5")) == 5
    assert dues(requests(f"{constant} duration=2s")) == [0, 500_000_000, 1_000_000_000, 1_500_000_000]
    assert len(requests(f"{constant} duration=2s count=3")) == 3


def test_the_time_scale_stretches_arrivals_and_thinking() -> None:
    """Half the scale is twice as fast; the duration is of the load as it is played."""
    talk = f"arrivals=constant arrivals.rate=1 {LENGTHS} sessions.turns=2 sessions.think=4s"

    assert [request.start for request in requests(f"{talk} time_scale=0.5 duration=1s")] == [
        At(0),
        After(0, think=2 * 10**9),
        At(500_000_000),
        After(2, think=2 * 10**9),
    ]


def test_what_is_sent_has_the_cv_that_was_asked_for() -> None:
    """Through the whole schedule, not only its arrivals."""
    times = dues(requests(f"arrivals=gamma arrivals.rate=5 arrivals.cv=2.5 count=10000 {LENGTHS}"))

    assert cv_of_gaps(times) == pytest.approx(2.5, rel=0.06)


def test_a_closed_loop_starts_its_users_and_then_waits_for_them() -> None:
    """The first N spread over the ramp-up, the others whenever a user is free and has thought."""
    closed = requests(f"arrivals=closed arrivals.users=4 arrivals.think=3s arrivals.ramp_up=2s count=6 {LENGTHS}")

    starts = [request.start for request in closed]
    assert starts == [
        WhenFree(not_before=0),
        WhenFree(not_before=500_000_000),
        WhenFree(not_before=1_000_000_000),
        WhenFree(not_before=1_500_000_000),
        WhenFree(think=3 * 10**9),
        WhenFree(think=3 * 10**9),
    ]


def test_a_turn_extends_the_last_ones_prompt_and_answer() -> None:
    """Prefix, own, answer, own, answer, own: each prompt begins with the whole of the one before."""
    talk = requests(f"arrivals=constant arrivals.rate=1 count=3 {LENGTHS} sessions.turns=3 prefix.tokens=7")

    assert talk[2].recipe == (
        Segment("prefix", 0, 7),
        Segment("own", 0, 100),
        Segment("answer", 0, 20),
        Segment("own", 1, 100),
        Segment("answer", 1, 20),
        Segment("own", 2, 100),
    )
    assert [request.prompt_tokens for request in talk] == [107, 227, 347]
    for before, after in pairwise(talk):
        assert after.recipe[: len(before.recipe)] == before.recipe
        assert after.start == After(before.index)


def test_sessions_have_the_turns_asked_for_and_follow_one_another_in_the_list() -> None:
    """1 to 5 turns, 3 on average; the turns of a session stand together."""
    talks = requests(f"arrivals=poisson arrivals.rate=1 count=6000 {LENGTHS} {SESSIONS}")
    sizes: dict[int | None, int] = {}
    for request in talks:
        assert request.turn == sizes.get(request.session, 0)
        sizes[request.session] = request.turn + 1

    assert list(sizes) == list(range(len(sizes)))
    assert statistics.fmean(sizes.values()) == pytest.approx(3, abs=0.1)
    assert set(sizes.values()) == {1, 2, 3, 4, 5}


def test_a_session_ends_before_it_outgrows_its_context() -> None:
    """Prompts of 100, 220, 340: with answers of 20 the third does not fit into 359, and does into 360."""
    base = f"arrivals=constant arrivals.rate=1 count=3 {LENGTHS} sessions.turns=9"

    assert [request.turn for request in requests(f"{base} sessions.max_context=359")] == [0, 1, 0]
    assert [request.turn for request in requests(f"{base} sessions.max_context=360")] == [0, 1, 2]


def test_a_context_that_no_first_turn_fits_is_an_error_not_a_search_for_ever() -> None:
    """With the setting, and what could be shortened."""
    impossible = schedule(f"arrivals=closed arrivals.users=1 count=3 {LENGTHS} sessions.max_context=100")

    with pytest.raises(ConfigError, match=r"sessions\.max_context is 100: in 1,000 sessions no first turn fits"):
        list(impossible)


@given(st.integers(0, 40), st.integers(0, 40))
def test_a_cycle_of_lengths_is_kept_whatever_the_arrivals(first: int, more: int) -> None:
    """Any eight requests in a row of a 7:1 cycle have exactly one long answer."""
    items = requests(
        f"arrivals=burst arrivals.size={first + 8 + more} prompt=1 output=bimodal output.short=20 "
        "output.long=600 output.order=cycle"
    )

    assert [request.output_tokens for request in items[first : first + 8]].count(600) == 1


def test_transcripts_need_a_tokenizer() -> None:
    """The error says whose."""
    chats = load("arrivals=poisson arrivals.rate=1 count=1 lengths=transcripts lengths.file=x")

    with pytest.raises(ConfigError, match="is for the target's tokenizer to say, and it is unknown"):
        Schedule(chats)
