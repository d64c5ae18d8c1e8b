from pathlib import Path

import pytest

from chairlift.advisor.evaluate.rounds import LEAST, rounds_of
from chairlift.core.errors import ConfigError
from chairlift.lab.loads.files import load_from_pairs
from chairlift.lab.loads.request import At
from tests.advisor.evaluate.making import rounds

POISSON = "arrivals=poisson arrivals.rate=8 prompt=50 output=exponential output.mean=20 output.cap=90"


def test_a_drawn_load_is_drawn_again_with_other_seeds() -> None:
    """As many times as asked for, no two alike."""
    made = rounds(f"{POISSON} count=30", count=3)
    lengths = [tuple(one.output_tokens for one in each.schedule) for each in made.rounds]

    assert len(set(lengths)) == 3
    assert all(len(one) == 30 for one in lengths)
    assert not made.cut
    assert made.notes == ()


def test_a_long_load_is_cut_and_that_is_said() -> None:
    """A batch may then hold a quarter of what is left at most."""
    made = rounds(f"{POISSON} count=300", requests=80)

    assert len(made.first.schedule) == 80
    assert made.cut
    assert made.most_at_once("static") == 20
    assert made.most_at_once("continuous") == 80
    assert "the first 80 requests" in made.notes[0]


def test_a_trace_gives_stretches_from_its_beginning_to_its_end(tmp_path: Path) -> None:
    """Each starts at zero with request 0, and keeps its gaps."""
    rows = "\n".join(f"{second * 2},{100 + second},{10 + second % 7}" for second in range(50))
    (tmp_path / "own.csv").write_text(f"time_s,prompt_tokens,output_tokens\n{rows}\n")
    load = load_from_pairs(["arrivals=trace", "arrivals.file=own.csv", "arrivals.spread=false"], tmp_path)
    made = rounds_of(load, count=3, requests=10)
    prompts = [[one.prompt_tokens for one in each.schedule] for each in made.rounds]

    assert prompts == [[*range(100, 110)], [*range(120, 130)], [*range(140, 150)]]
    for each in made.rounds:
        assert [one.index for one in each.schedule] == list(range(10))
        assert [one.start for one in each.schedule] == [At(second * 2_000_000_000) for second in range(10)]
    assert "3 stretches of 10" in made.notes[0]


def test_requests_beyond_the_context_are_left_out_and_counted() -> None:
    """The others close up."""
    made = rounds(f"{POISSON} count=60", longest=70)

    assert max(one.prompt_tokens + one.max_tokens for one in made.first.schedule) <= 70
    assert [one.index for one in made.first.schedule] == list(range(len(made.first.schedule)))
    assert made.longest <= 70
    assert f"{60 - len(made.first.schedule)} requests are left out" in made.notes[0]


def test_long_prompts_shorten_a_round() -> None:
    """But not below the least that percentiles need."""
    made = rounds("arrivals=burst arrivals.size=200 prompt=100000 output=10")

    assert len(made.first.schedule) == LEAST


def test_what_is_there_at_once_is_sorted_by_prompts_for_static_alone() -> None:
    """How long answers will be nobody knows."""
    load = rounds("arrivals=burst arrivals.size=20 prompt=uniform prompt.min=5 prompt.max=90 output=9").first
    sent = {policy: [one.prompt_tokens for one in load.under(policy)] for policy in ("static", "dynamic")}

    assert sent["static"] == sorted(sent["dynamic"]) != sent["dynamic"]
    online = rounds(f"{POISSON} count=20").first
    assert online.under("static") is online.schedule


def test_only_a_load_that_keeps_its_times_has_a_rate() -> None:
    """Not one that is there at once, nor one whose users wait."""
    assert rounds(f"{POISSON} count=9").has_a_rate
    for other in ("burst arrivals.size=4", "burst arrivals.size=4 arrivals.every=1s", "closed arrivals.users=2"):
        assert not rounds(f"arrivals={other} prompt=9 output=4 count=8").has_a_rate


def test_nothing_is_an_error() -> None:
    """No request short enough, or none wanted."""
    with pytest.raises(ConfigError, match="none short enough"):
        rounds(f"{POISSON} count=5", longest=10)
    with pytest.raises(ConfigError, match="at least 1"):
        rounds(f"{POISSON} count=5", count=0)
