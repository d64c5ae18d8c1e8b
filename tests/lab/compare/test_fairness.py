"""Each thing that makes a comparison unfair or empty, on a load that has it and on one that has not."""

import pytest

from chairlift.core.config import SchedulerConfig
from chairlift.lab.compare.fairness import SortedSchedule, before_runs, offline
from chairlift.lab.loads.describe import describe
from chairlift.lab.loads.files import load_from_pairs
from chairlift.lab.loads.load import Load
from chairlift.lab.loads.playback import Playback
from chairlift.lab.loads.schedule import Schedule

CALM = "arrivals=poisson arrivals.rate=4 count=40 prompt=64 output=uniform output.min=8 output.max=64"


def load(pairs: str) -> Load:
    """From text."""
    return load_from_pairs(pairs.split())


def told(pairs: str, **settings: object) -> list[str]:
    """What is said of a load before it runs."""
    wanted = load(pairs)
    return list(before_runs(wanted, describe(Schedule(wanted)), SchedulerConfig(**settings)))  # type: ignore[arg-type]


def test_an_ordinary_load_is_not_complained_about() -> None:
    """Open arrivals, lengths that differ, no bounds beyond the answers."""
    assert told(CALM) == []


@pytest.mark.parametrize(
    ("pairs", "settings", "said"),
    [
        ("arrivals=poisson arrivals.rate=4 count=9 prompt=64 output=32", {}, "all answers have 32 tokens"),
        (CALM.replace("poisson arrivals.rate=4", "closed arrivals.users=4"), {}, "a closed loop of 4 users slows down"),
        (CALM.replace("poisson arrivals.rate=4", "closed arrivals.users=4"), {}, "--max-num-seqs 32 has no effect"),
        (f"{CALM} prefix.tokens=100", {"enable_prefix_caching": False}, "prefix caching is off for all policies"),
        (f"{CALM} max_tokens=512", {}, "times earlier on average than --max-tokens 512 allows"),
        (CALM, {"release": "token"}, "--release token lets closed batches answer before they end"),
        (CALM, {"max_queued_requests": 10}, "the load has 40 requests and --max-queued-requests is 10"),
        (
            CALM.replace("output=uniform output.min=8 output.max=64", "output=16 ignore_eos=false"),
            {},
            "are the model's",
        ),
    ],
)
def test_what_is_unfair_is_pointed_out(pairs: str, settings: dict[str, object], said: str) -> None:
    """With the numbers."""
    assert any(said in text for text in told(pairs, **settings))


def test_only_what_is_there_at_once_may_be_sorted() -> None:
    """Not a second burst, not arrivals over time, not conversations."""
    burst = "arrivals=burst arrivals.size=8 prompt=16 output=8"

    assert offline(load(burst))
    assert not offline(load(f"{burst} arrivals.every=5s count=16"))
    assert not offline(load(CALM))
    assert not offline(load(f"{burst} sessions.turns=2"))


def test_a_sorted_load_asks_for_the_same_in_another_order() -> None:
    """By the answer's bound, then the prompt; a client plays it in that order, since indices follow it."""
    wanted = load(
        "arrivals=burst arrivals.size=20 prompt=uniform prompt.min=8 prompt.max=32 output=uniform "
        "output.min=2 output.max=9"
    )
    plain, ordered = Schedule(wanted), SortedSchedule(wanted)
    keys = [(one.max_tokens, one.prompt_tokens) for one in ordered]

    assert keys == sorted((one.max_tokens, one.prompt_tokens) for one in plain)
    assert {one.recipe for one in ordered} == {one.recipe for one in plain}
    played = [due.request for due in Playback(ordered).due(0)]
    assert [(one.max_tokens, one.prompt_tokens) for one in played] == keys
