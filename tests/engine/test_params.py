import math
from typing import Any

import pytest

from chairlift.core.errors import RequestError
from chairlift.engine.params import SamplingParams


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("max_tokens", 0),
        ("max_tokens", 1.5),
        ("max_tokens", True),
        ("min_tokens", -1),
        ("min_tokens", 17),
        ("temperature", -0.1),
        ("temperature", math.nan),
        ("temperature", math.inf),
        ("temperature", "1"),
        ("top_p", 0),
        ("top_p", 1.01),
        ("top_k", -2),
        ("top_k", 2.0),
        ("seed", 2**64),
        ("seed", -(2**63) - 1),
        ("seed", 0.5),
        ("stop", [""]),
        ("stop", ["a", 3]),
        ("stop_token_ids", [-1]),
        ("stop_token_ids", ["a"]),
        ("presence_penalty", 2.1),
        ("frequency_penalty", -2.1),
        ("frequency_penalty", math.nan),
    ],
)
def test_a_value_that_cannot_be_is_refused_by_the_fields_name(field: str, value: Any) -> None:
    """Each field is checked, and the message begins with its name and has the value."""
    with pytest.raises(RequestError, match=rf"^{field} (is|has) ") as caught:
        SamplingParams(**{field: value})

    assert str(value[-1] if isinstance(value, list) else value) in str(caught.value)


def test_one_stop_string_is_a_list_of_one() -> None:
    """A string alone is that string, not its letters."""
    assert SamplingParams(stop="end").stop_strings == ("end",)
    assert SamplingParams(stop=["a", "b"]).stop_strings == ("a", "b")


def test_stop_ids_are_the_models_and_the_requests_own() -> None:
    """The model's own ends count unless they are to be ignored; the request's always do."""
    ends = frozenset({1, 2})

    assert SamplingParams(stop_token_ids=[7]).stop_ids(ends) == {1, 2, 7}
    assert SamplingParams(stop_token_ids=[7], ignore_eos=True).stop_ids(ends) == {7}


@pytest.mark.parametrize(
    ("params", "greedy"),
    [
        (SamplingParams(temperature=0), True),
        (SamplingParams(temperature=1e-6), True),
        (SamplingParams(top_k=1), True),
        (SamplingParams(), False),
        (SamplingParams(temperature=0.1, top_k=2), False),
    ],
)
def test_greedy_is_no_temperature_or_one_candidate(params: SamplingParams, greedy: bool) -> None:  # noqa: FBT001
    """Temperature near zero and top_k 1 both always take the likeliest token."""
    assert params.greedy is greedy


def test_equal_params_are_equal_whatever_they_were_given_as() -> None:
    """Lists, tuples and sets of the same stops make the same parameters, which can be a key."""
    one = SamplingParams(stop=["a"], stop_token_ids=[3, 4])
    other = SamplingParams(stop=("a",), stop_token_ids={4, 3})

    assert one == other
    assert hash(one) == hash(other)
