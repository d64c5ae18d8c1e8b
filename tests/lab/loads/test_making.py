from collections import Counter

import pytest

from chairlift.lab.loads.draws import Draws
from chairlift.lab.loads.making import Maker
from chairlift.lab.loads.request import At, Segment
from tests.lab.loads.making import LENGTHS, load, requests

BASE = f"arrivals=poisson arrivals.rate=1 count=4000 {LENGTHS}"


def test_classes_are_mixed_by_their_shares_whatever_their_order() -> None:
    """Three to one; a class's own settings come first, the load's otherwise."""
    mixed = requests(
        f"{BASE} priority=2 deadline=9s classes.b.share=1 classes.b.priority=0 classes.b.output=7 "
        "classes.a.share=3 classes.a.ignore_eos=false classes.a.deadline=1s classes.a.max_tokens=50"
    )
    by_kind = {request.kind: request for request in mixed}

    assert Counter(request.kind for request in mixed)["a"] / 4000 == pytest.approx(0.75, abs=0.03)
    a, b = by_kind["a"], by_kind["b"]
    assert (a.priority, a.deadline, a.ignore_eos, a.output_tokens, a.max_tokens) == (2, 10**9, False, 20, 50)
    assert (b.priority, b.deadline, b.ignore_eos, b.output_tokens, b.max_tokens) == (0, 9 * 10**9, True, 7, 7)
    swapped = requests(
        f"{BASE} priority=2 deadline=9s classes.a.share=3 classes.a.ignore_eos=false classes.a.deadline=1s "
        "classes.a.max_tokens=50 classes.b.share=1 classes.b.priority=0 classes.b.output=7"
    )
    assert swapped == mixed


def test_prefixes_come_in_addition_in_their_share_and_groups() -> None:
    """A quarter has none; the others are spread over the groups evenly, or by a power of their number."""
    even = requests(f"{BASE} prefix.tokens=30 prefix.groups=4 prefix.share=0.75")
    skewed = requests(f"{BASE} prefix.tokens=30 prefix.groups=4 prefix.skew=1")

    groups = Counter(request.recipe[0].number if len(request.recipe) > 1 else None for request in even)
    assert set(groups) == {None, 0, 1, 2, 3}
    assert groups[None] / 4000 == pytest.approx(0.25, abs=0.03)
    assert all(groups[group] / 4000 == pytest.approx(0.1875, abs=0.03) for group in range(4))
    assert {request.prompt_tokens for request in even} == {100, 130}
    first = Counter(request.recipe[0].number for request in skewed)
    assert first[0] / first[3] == pytest.approx(4, rel=0.2)


def test_a_class_with_its_own_prefix_shares_it_with_nobody_else() -> None:
    """Its groups are named after it; a class without one takes part in the load's."""
    maker = Maker(
        load(f"{BASE} prefix.tokens=30 classes.a.share=1 classes.a.prefix.tokens=9 classes.b.share=1"), Draws(0)
    )

    assert maker.prefix("a", 5) == (Segment("prefix/a", 0, 9),)
    assert maker.prefix("b", 5) == (Segment("prefix", 0, 30),)
    assert Maker(load(BASE), Draws(0)).prefix("", 5) == ()


def test_the_bound_is_never_below_the_answer() -> None:
    """A max_tokens below an answer's length does not cut it."""
    maker = Maker(load(f"{BASE} max_tokens=10"), Draws(0))

    assert maker.bound("", 4) == 10
    assert maker.bound("", 40) == 40
    request = maker.request(3, At(5), (Segment("own", 3, 6), Segment("own", 4, 5)), 4, "", session=1, turn=2)
    assert (request.prompt_tokens, request.max_tokens, request.session, request.turn) == (11, 10, 1, 2)
