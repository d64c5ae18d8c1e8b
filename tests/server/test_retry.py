from hypothesis import given
from hypothesis import strategies as st

from chairlift.server.retry import LONGEST, RetryAfter

SECOND = 10**9


def at_rate(interval: int, count: int = 10) -> tuple[RetryAfter, int]:
    """Places that came free every `interval` seconds, and the time of the last."""
    retry = RetryAfter()
    for place in range(count):
        retry.freed(place * interval * SECOND)
    return retry, (count - 1) * interval * SECOND


def test_without_experience_it_is_one_second() -> None:
    """Nothing came free yet, or only once: nothing can be computed."""
    retry = RetryAfter()
    assert retry.seconds(0, waiting=100) == 1
    retry.freed(0)
    assert retry.seconds(5 * SECOND, waiting=100) == 1


def test_each_refused_client_is_told_another_place() -> None:
    """A place every two seconds: the first is sent away for two, the second for four, the third for six."""
    retry, now = at_rate(2)

    assert [retry.seconds(now, waiting=10) for _ in range(3)] == [2, 4, 6]


def test_nobody_is_sent_away_for_longer_than_the_queue_takes() -> None:
    """Who was told may never come back: the latest is when all that waits now is admitted."""
    retry, now = at_rate(2)

    assert [retry.seconds(now, waiting=3) for _ in range(5)] == [2, 4, 6, 6, 6]


def test_time_hands_places_back() -> None:
    """Later, the places told before are taken or forfeited."""
    retry, now = at_rate(2)
    for _ in range(3):
        retry.seconds(now, waiting=10)
    for place in range(1, 6):
        retry.freed(now + place * 2 * SECOND)

    assert retry.seconds(now + 10 * SECOND, waiting=10) == 2


def test_a_server_that_has_stopped_says_so() -> None:
    """The silence since the last free place makes the mean longer, up to ten minutes."""
    retry, now = at_rate(1)

    assert retry.seconds(now + 90 * SECOND, waiting=10) == 10
    assert retry.seconds(now + 10**6 * SECOND, waiting=10) == LONGEST


@given(
    st.lists(st.integers(0, 10**12), max_size=50).map(sorted),
    st.integers(0, 10**13),
    st.integers(0, 10**6),
    st.integers(1, 20),
)
def test_it_is_always_a_whole_number_of_seconds_within_bounds(
    freed: list[int], now: int, waiting: int, refused: int
) -> None:
    """1 to 600, never falling while one moment's clients are refused."""
    retry = RetryAfter()
    for moment in freed:
        retry.freed(moment)
    told = [retry.seconds(max([now, *freed]), waiting) for _ in range(refused)]

    assert all(1 <= seconds <= LONGEST for seconds in told)
    assert told == sorted(told)
