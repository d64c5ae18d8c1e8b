import pytest

from chairlift.core.runs import TokenRuns
from chairlift.core.sequence import Phase, Sequence
from tests.core.helpers import request


def test_a_waiting_sequence_knows_its_prompt_without_holding_a_copy() -> None:
    """A virtual prompt of a million tokens costs nothing while it waits."""
    sequence = Sequence(request(prompt=range(1_000_000)), number=0, arrival=3, max_tokens=4)

    assert (sequence.phase, sequence.output) == (Phase.WAITING, [])
    assert (sequence.length, sequence.prompt_length, sequence.output_length) == (1_000_000, 1_000_000, 0)
    assert sequence.unreleased() == []


def test_the_last_token_generated_is_never_computed() -> None:
    """A request of 8 + 4 tokens ends when 11 positions are computed, and a full reservation holds 12."""
    sequence = Sequence(request(prompt=8), number=0, arrival=0, max_tokens=4)
    assert (sequence.last_position, sequence.most_tokens) == (11, 12)


def test_unreleased_tokens_are_those_generated_and_not_yet_told() -> None:
    """The prompt is never released, and nothing twice."""
    sequence = Sequence(request(prompt=[1, 2]), number=0, arrival=0, max_tokens=4)
    sequence.output = [30, 40, 50]
    sequence.released = 1

    assert sequence.output_length == 3
    assert sequence.unreleased() == [40, 50]


@pytest.mark.parametrize("kind", [list, TokenRuns])
def test_its_tokens_are_the_prompt_and_what_was_generated(kind: type[list[int]] | type[TokenRuns]) -> None:
    """Any stretch of them, stored or described by runs."""
    sequence = Sequence(request(prompt=kind([1, 2, 3])), number=0, arrival=0, max_tokens=4)
    sequence.output = kind([7, 7])

    for start in range(6):
        for stop in range(start, 6):
            assert list(sequence.tokens(start, stop)) == [1, 2, 3, 7, 7][start:stop]


def test_the_total_order_is_priority_then_arrival_then_number() -> None:
    """No two sequences are equal in it, so that ties cannot preempt each other in turn."""

    def order(priority: int, arrival: int, number: int) -> tuple[int, int, int]:
        return Sequence(request(priority=priority), number=number, arrival=arrival, max_tokens=1).order

    assert order(0, 9, 9) < order(1, 0, 0)
    assert order(1, 3, 9) < order(1, 4, 0)
    assert order(1, 3, 0) < order(1, 3, 1)


def test_stop_ids_count_from_min_tokens_on() -> None:
    """With min_tokens 3 the third generated token is the first that may end the request; without it, the first."""
    assert Sequence(request(prompt=5, min_tokens=3), number=0, arrival=0, max_tokens=9).stop_from == 8
    assert Sequence(request(prompt=5), number=0, arrival=0, max_tokens=9).stop_from == 6


def test_a_sequence_describes_itself() -> None:
    """For messages and the debugger: who, where, how far."""
    assert (
        repr(Sequence(request("r7", prompt=5), number=0, arrival=0, max_tokens=9)) == "<r7: waiting, 0 of 5 computed>"
    )
