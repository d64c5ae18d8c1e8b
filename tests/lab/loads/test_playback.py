import heapq
import itertools
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chairlift.core.errors import ContractError
from chairlift.lab.loads.playback import Due, Playback
from chairlift.lab.loads.request import After, At
from chairlift.lab.loads.statistics import cv_of_gaps
from tests.lab.loads.making import LENGTHS, schedule

SECOND = 10**9
CLOSED = f"arrivals=closed arrivals.users=3 {LENGTHS}"


def play(playback: Playback, service: int, failing: frozenset[int] = frozenset()) -> list[tuple[Due, int]]:
    """Everything handed out, with its end, by a target that takes `service` for each request."""
    done: list[tuple[Due, int]] = []
    ends: list[tuple[int, int]] = []
    now = 0
    for _ in itertools.count():
        for due in playback.due(now):
            done.append((due, now + service))
            heapq.heappush(ends, (now + service, due.request.index))
        moments = [moment for moment in (playback.next_due(), ends[0][0] if ends else None) if moment is not None]
        if not moments:
            return done
        now = max(now, min(moments))
        while ends and ends[0][0] <= now:
            index = heapq.heappop(ends)[1]
            playback.finished(index, now, failed=index in failing)
    raise AssertionError


def dues(played: list[tuple[Due, int]]) -> list[int]:
    """When each was due."""
    return [due.at for due, _ in played]


def test_an_open_load_is_due_by_its_schedule_whatever_the_target_does() -> None:
    """Nothing ends, and everything is due on time; asking late hands out all that is due, with its moment."""
    playback = Playback(schedule(f"arrivals=constant arrivals.rate=1 count=4 {LENGTHS}"))

    assert playback.next_due() == 0
    assert [due.at for due in playback.due(2 * SECOND)] == [0, SECOND, 2 * SECOND]
    assert playback.due(2 * SECOND) == []
    assert playback.next_due() == 3 * SECOND
    assert [due.request.index for due in playback.due(9 * SECOND)] == [3]
    assert (playback.started, playback.in_flight, playback.done) == (4, 4, False)
    for index in range(4):
        playback.finished(index, 9 * SECOND)
    assert playback.done
    assert playback.next_due() is None


def test_what_is_handed_out_has_the_cv_that_was_asked_for() -> None:
    """From the load's file to the moment of sending."""
    played = play(Playback(schedule(f"arrivals=gamma arrivals.rate=10 arrivals.cv=0.5 count=5000 {LENGTHS}")), SECOND)

    assert cv_of_gaps(dues(played)) == pytest.approx(0.5, rel=0.05)


def test_a_closed_loop_never_has_more_in_flight_than_users_and_thinks() -> None:
    """Three users, service 1 s, thinking 0.5 s: three requests every 1.5 s."""
    played = play(Playback(schedule(f"{CLOSED} arrivals.think=500ms count=7")), SECOND)

    half = SECOND // 2
    assert dues(played) == [0, 0, 0, 3 * half, 3 * half, 3 * half, 6 * half]


def test_a_free_user_takes_the_next_request_so_that_long_ones_hold_up_only_their_own() -> None:
    """Requests start in the list's order, whoever is free."""
    playback = Playback(schedule(f"{CLOSED} count=5"))
    assert [due.request.index for due in playback.due(0)] == [0, 1, 2]
    assert playback.next_due() is None

    playback.finished(1, 5)
    assert playback.next_due() == 5
    assert [(due.request.index, due.at) for due in playback.due(6)] == [(3, 5)]
    playback.finished(3, 7)
    assert [due.request.index for due in playback.due(7)] == [4]
    assert playback.next_due() is None


def test_users_come_in_over_the_ramp_up() -> None:
    """Thirds of three seconds."""
    played = play(Playback(schedule(f"{CLOSED} arrivals.ramp_up=3s count=3")), 1)

    assert dues(played) == [0, SECOND, 2 * SECOND]


def test_a_closed_loop_stops_at_its_duration() -> None:
    """Nothing starts from then on, and the load is done when what runs has ended."""
    playback = Playback(schedule(f"{CLOSED} duration=2500ms"))

    played = play(playback, SECOND)

    assert dues(played) == [0] * 3 + [SECOND] * 3 + [2 * SECOND] * 3
    assert (playback.done, playback.cut) == (True, 0)


def test_turns_follow_their_answers() -> None:
    """Due an answer's end and the thinking later."""
    talk = f"arrivals=constant arrivals.rate=1 count=4 {LENGTHS} sessions.turns=2 sessions.think=3s"

    played = play(Playback(schedule(talk)), SECOND // 4)

    assert [(due.request.index, due.at) for due, _ in played] == [
        (0, 0),
        (2, SECOND),
        (1, 3 * SECOND + SECOND // 4),
        (3, 4 * SECOND + SECOND // 4),
    ]


def test_users_of_a_closed_loop_lead_one_session_at_a_time() -> None:
    """A user's next session starts after the last turn of the one before."""
    played = play(Playback(schedule(f"arrivals=closed arrivals.users=1 count=4 {LENGTHS} sessions.turns=2")), 10)

    assert [(due.request.session, due.request.turn, due.at) for due, _ in played] == [
        (0, 0, 0),
        (0, 1, 10),
        (1, 0, 20),
        (1, 1, 30),
    ]


def test_a_failed_turn_cuts_the_rest_of_its_session_and_frees_its_user() -> None:
    """Turns 1 and 2 never start, and are counted; the next session does."""
    playback = Playback(schedule(f"arrivals=closed arrivals.users=1 count=6 {LENGTHS} sessions.turns=3"))

    played = play(playback, 10, failing=frozenset({0}))

    assert [(due.request.index, due.at) for due, _ in played] == [(0, 0), (3, 10), (4, 20), (5, 30)]
    assert (playback.started, playback.cut, playback.done) == (4, 2, True)


def test_turns_whose_time_comes_after_the_end_are_cut() -> None:
    """And with them whoever would follow."""
    one = f"arrivals=burst arrivals.size=1 {LENGTHS}"
    playback = Playback(schedule(f"{one} sessions.turns=4 sessions.think=1s duration=2s"))

    played = play(playback, SECOND // 2)

    assert dues(played) == [0, SECOND + SECOND // 2]
    assert (playback.cut, playback.done) == (2, True)


def test_a_recorded_turn_waits_for_the_one_before_only_if_that_is_late() -> None:
    """With follow: at its recorded time, or at the end of the turn before, whichever is later."""
    replay = "arrivals=trace arrivals.file=qwen_bailian.jsonl arrivals.follow=true"
    at = {request.index: request.start for request in schedule(replay)}

    fast = {due.request.index: due.at for due, _ in play(Playback(schedule(replay)), 1)}
    slow = {due.request.index: due.at for due, _ in play(Playback(schedule(replay)), 20 * SECOND)}

    assert fast == {
        index: start.due if isinstance(start, At) else start.not_before
        for index, start in at.items()
        if isinstance(start, At | After)
    }
    assert slow == fast | {2: 20 * SECOND, 4: 40 * SECOND, 5: 20 * SECOND}


def test_a_recorded_turn_after_a_failure_is_cut_even_when_it_is_read_much_later() -> None:
    """The failure is remembered."""
    playback = Playback(schedule("arrivals=trace arrivals.file=qwen_bailian.jsonl arrivals.follow=true"))

    played = play(playback, 1, failing=frozenset({0}))

    assert [due.request.index for due, _ in played] == [0, 1, 3]
    assert playback.cut == 3


def test_warm_up_is_marked() -> None:
    """By number and by time."""
    constant = f"arrivals=constant arrivals.rate=1 count=4 {LENGTHS}"
    playback = Playback(schedule(f"{constant} warmup_requests=1 warmup_time=2s"))

    assert [due.warmup for due in playback.due(9 * SECOND)] == [True, True, False, False]


@pytest.mark.parametrize("index", [0, 5])
def test_an_end_without_a_start_is_a_broken_contract(index: int) -> None:
    """Of a request not handed out yet, one that does not exist, or one that has ended already."""
    playback = Playback(schedule(f"arrivals=constant arrivals.rate=1 count=2 {LENGTHS}"))

    with pytest.raises(ContractError, match=f"request {index} has ended, but it is not in flight"):
        playback.finished(index, 0)
    playback.due(0)
    playback.finished(0, 1)
    with pytest.raises(ContractError):
        playback.finished(0, 1)


@given(
    st.sampled_from(
        [
            "arrivals=poisson arrivals.rate=5 count=40",
            "arrivals=burst arrivals.size=9 arrivals.every=2s count=40",
            "arrivals=closed arrivals.users=4 arrivals.think=exponential arrivals.think.mean=300ms count=40",
            "arrivals=closed arrivals.users=4 duration=3s",
        ]
    ),
    st.sampled_from(["", "sessions.turns=uniform sessions.turns.min=1 sessions.turns.max=4 sessions.think=200ms"]),
    st.sampled_from(["", "duration=2s", "duration=2s time_scale=0.5"]),
    st.integers(1, 3 * SECOND),
    st.frozensets(st.integers(0, 40), max_size=5),
)
def test_every_request_is_handed_out_once_or_cut(
    arrivals: str, sessions: str, end: str, service: int, failing: frozenset[int]
) -> None:
    """Whatever the arrivals, the sessions, the target's speed and its failures: the books balance, nothing is early."""
    if "duration" in arrivals:
        end = ""
    made = schedule(f"{arrivals} {LENGTHS} {sessions} {end}")
    playback = Playback(made)
    service = max(service, SECOND // 10) if not made.load.bounded else service

    played = play(playback, service, failing)

    assert playback.done
    assert max(Counter(due.request.index for due, _ in played).values()) == 1
    if made.load.bounded and "closed" not in arrivals:
        assert playback.started + playback.cut == sum(1 for _ in made)
    ended = {due.request.index: end for due, end in played}
    for due, _ in played:
        start = due.request.start
        if isinstance(start, After):
            assert start.index not in failing
            assert due.at == ended[start.index] + start.think
