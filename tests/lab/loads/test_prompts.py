import hashlib
import json
from collections import Counter
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chairlift.core.errors import ConfigError
from chairlift.lab.loads.prompts import Prompts, SafeIds
from chairlift.lab.loads.request import ScheduledRequest
from tests.lab.loads.making import load, requests

IDS = SafeIds(17, 49_152)
MIX = (
    "arrivals=poisson arrivals.rate=1 count=24 prompt=uniform prompt.min=1 prompt.max=300 output=20 seed=3 "
    "prefix.tokens=50 prefix.groups=2 prefix.share=0.5 sessions.turns=3"
)
PLAIN = "arrivals=poisson arrivals.rate=1 count=30 prompt=64 output=20"


def prompts(pairs: str, salt: str = "", ids: SafeIds = IDS) -> Prompts:
    """Of a load, for a target."""
    return Prompts(load(pairs), ids, salt)


def common(one: list[int], other: list[int]) -> int:
    """How many tokens two prompts begin with alike."""
    alike = (count for count, (a, b) in enumerate(zip(one, other, strict=False)) if a != b)
    return next(alike, min(len(one), len(other)))


ITEMS = requests(MIX)
EXPECTED = [prompts(MIX).tokens(request) for request in ITEMS]


@given(st.permutations(range(24)))
def test_a_prompt_is_the_same_in_whatever_order_it_is_asked_for(order: list[int]) -> None:
    """And exactly as long as asked."""
    made = prompts(MIX)
    asked = {index: made.tokens(ITEMS[index]) for index in order}

    assert [asked[index] for index in range(24)] == EXPECTED
    assert all(len(asked[request.index]) == request.prompt_tokens for request in ITEMS)


def test_prompts_are_what_they_always_were() -> None:
    """The bytes of a mixed load's prompts, on any machine and under any version of Python and numpy."""
    tokens = [prompts(MIX, "x").tokens(request) for request in requests(MIX)]

    assert hashlib.sha256(json.dumps(tokens).encode()).hexdigest()[:16] == "ddc003a65788994a"


def test_prompts_share_what_the_load_says_and_nothing_else() -> None:
    """A group's prefix and a session's history, to the token; without them not even the first token."""
    items = requests(MIX)
    made = prompts(MIX)
    tokens = {request.index: made.tokens(request) for request in items}

    for one in items:
        for other in items[: one.index]:
            shared = common(tokens[one.index], tokens[other.index])
            if one.session == other.session:
                assert shared == other.prompt_tokens
            elif one.recipe[0] == other.recipe[0]:
                assert 50 <= shared <= 52  # two ids of 49,135 may be equal by chance
            else:
                assert shared <= 1


def test_the_nonce_is_part_of_the_length_and_changes_with_the_salt_alone() -> None:
    """Two runs share nothing at the front and everything behind it; the same salt sends the same bytes."""
    items = requests(PLAIN)
    one, other = prompts(PLAIN, "run-1"), prompts(PLAIN, "run-2")

    for request in items:
        assert one.tokens(request)[:4] != other.tokens(request)[:4]
        assert one.tokens(request)[4:] == other.tokens(request)[4:]
        assert one.tokens(request) == prompts(PLAIN, "run-1").tokens(request)
    assert len({tuple(one.tokens(request)[:4]) for request in items}) == 30


def test_a_nonce_can_be_turned_off_and_is_no_longer_than_its_segment() -> None:
    """Without it the salt changes nothing; a prompt of two tokens has a nonce of two."""
    off = f"{PLAIN} nonce=0"
    request = requests(off)[0]
    assert prompts(off, "a").tokens(request) == prompts(off, "b").tokens(request)

    short = f"{PLAIN} nonce=9".replace("prompt=64", "prompt=2")
    assert len(prompts(short, "a").tokens(requests(short)[0])) == 2


def test_those_that_share_a_prefix_share_its_nonce() -> None:
    """Otherwise the nonce would undo the sharing that was asked for."""
    shared = f"{PLAIN} prefix.tokens=16"
    one, other, *_ = requests(shared)

    assert prompts(shared, "a").tokens(one)[:16] == prompts(shared, "a").tokens(other)[:16]
    assert prompts(shared, "a").tokens(one)[:4] != prompts(shared, "b").tokens(one)[:4]


def test_real_answers_take_the_place_of_drawn_ones() -> None:
    """Cut or filled up to the length the load says, so that the prompt keeps its own."""
    talk = f"{PLAIN} sessions.turns=2"
    first, second, *_ = requests(talk)
    made = prompts(talk)
    drawn = made.tokens(second)

    full = made.tokens(second, {first.index: [1] * 20})
    short = made.tokens(second, {first.index: [1] * 5})
    long = made.tokens(second, {first.index: [1] * 99})

    assert full == drawn[:64] + [1] * 20 + drawn[84:] == long
    assert short == drawn[:64] + [1] * 5 + drawn[69:]


def test_ids_are_drawn_from_the_safe_ones_alone_and_all_alike() -> None:
    """Every id in the range but those left out, none more often than chance allows."""
    ids = SafeIds(10, 30, (10, 13, 14, 29))
    long = PLAIN.replace("prompt=64", "prompt=2000")

    seen = Counter(token for request in requests(long) for token in prompts(long, ids=ids).tokens(request))

    assert set(seen) == set(range(10, 30)) - {10, 13, 14, 29}
    assert len(ids) == 16
    assert all(count == pytest.approx(60_000 / 16, rel=0.08) for count in seen.values())


def test_a_vocabularys_ordinary_tokens_are_all_but_its_control_tokens() -> None:
    """Control tokens beyond the vocabulary do not matter."""
    assert SafeIds.of(100, [3, 1, 3, 200]) == SafeIds(0, 100, (1, 3))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: SafeIds(5, 5), "of the ids 5 .. 4 none is left"),
        (lambda: SafeIds(5, 7, (5, 6)), "of the ids 5 .. 6 none is left"),
        (lambda: SafeIds(-1, 7), "none is left"),
        (lambda: SafeIds(5, 9, (7, 6)), "left out must ascend and lie in 5 .. 8"),
        (lambda: SafeIds(5, 9, (9,)), "must ascend and lie in 5 .. 8"),
    ],
)
def test_impossible_ranges_are_refused(make: Callable[[], SafeIds], message: str) -> None:
    """The message has the range."""
    with pytest.raises(ConfigError, match=message):
        make()


def test_a_recipe_is_all_that_a_prompt_needs() -> None:
    """A request made elsewhere, with the same recipe, has the same prompt: the list it came from is not looked at."""
    request = requests(PLAIN)[7]
    again = ScheduledRequest(**{name: getattr(request, name) for name in request.__slots__})

    assert prompts(PLAIN).tokens(again) == prompts(PLAIN).tokens(request)
