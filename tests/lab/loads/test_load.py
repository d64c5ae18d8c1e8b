import pytest

from chairlift.core.errors import ConfigError
from chairlift.lab.loads.load import Load
from tests.lab.loads.making import LENGTHS, load

POISSON = "arrivals=poisson arrivals.rate=1"


@pytest.mark.parametrize(
    ("pairs", "message"),
    [
        (f"{POISSON} {LENGTHS}", "count is missing: a load needs an end"),
        (f"{POISSON} {LENGTHS} count=0", "count is 0; it must be positive, or absent"),
        (f"{POISSON} {LENGTHS} duration=0", "duration is 0; it must be positive, or absent"),
        (f"{POISSON} {LENGTHS} count=1 time_scale=0", "time_scale is 0; it is between 1e-6 and 1e6"),
        (f"{POISSON} {LENGTHS} count=1 warmup_requests=-1", "warmup_requests is -1; it must not be negative"),
        (f"{POISSON} {LENGTHS} count=1 nonce=-1", "nonce is -1; it must not be negative"),
        (f"{POISSON} {LENGTHS} count=1 deadline=0", "deadline is 0 ns; it must be positive, or absent"),
        (f"{POISSON} {LENGTHS} count=1 max_tokens=0", "max_tokens is 0; it must be at least 1, or absent"),
        (f"{POISSON} {LENGTHS} count=1 max_tokens=9999999999", "max_tokens is 9999999999; it must be at most 1,000,"),
        (f"{POISSON} {LENGTHS} count=5 warmup_requests=5", "warmup_requests is 5 and count 5: no request would be"),
        (f"{POISSON} {LENGTHS} count=1 prefix.tokens=9999999999", "prefix.tokens is 9999999999; it is at most"),
        (f"{POISSON} output=1 count=1", "prompt is missing: a load says how long it is, such as prompt = 128"),
        (f"{POISSON} prompt=1 count=1", "output is missing"),
        (
            f"{POISSON} prompt=1 count=1 classes.a.share=1 classes.a.output=5 classes.b.share=1",
            "output is missing: the class b has none of its own, and a load says",
        ),
        (f"{POISSON} prompt=1 count=1 lengths=trace lengths.file=x", "prompt and lengths both say how long"),
        (f"{POISSON} {LENGTHS} count=1 prefix.tokens=0", "prefix.tokens is 0; it must be at least 1"),
        (f"{POISSON} {LENGTHS} count=1 prefix.tokens=1 prefix.share=2", "prefix.share is 2; it is above 0"),
        (f"{POISSON} {LENGTHS} count=1 prefix.tokens=1 prefix.skew=-1", "prefix.skew is -1; it must not be negative"),
        (f"{POISSON} {LENGTHS} count=1 sessions.max_context=1", "sessions.max_context is 1; a prompt"),
        (f"{POISSON} {LENGTHS} count=1 classes..share=1", "classes has one without a name"),
        (f"{POISSON} {LENGTHS} count=1 classes.a.share=0", "classes.a.share is 0; it must be positive"),
        (f"{POISSON} {LENGTHS} count=1 classes.a.share=1 classes.a.deadline=0", "classes.a.deadline is 0 ns"),
        (
            f"{POISSON} count=1 lengths=transcripts lengths.file=x lengths.turns=all sessions.turns=2",
            "sessions.turns does not go with lengths.turns = all",
        ),
        ("arrivals=trace arrivals.file=x sessions.turns=2", "sessions does not go with arrivals.kind = trace"),
        ("arrivals=trace arrivals.file=x lengths=trace lengths.file=x", "lengths does not go with"),
    ],
)
def test_a_load_that_cannot_be_is_refused(pairs: str, message: str) -> None:
    """The message begins with the key and has the value or the way out."""
    with pytest.raises(ConfigError) as caught:
        load(pairs)

    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    ("pairs", "bounded"),
    [
        (f"{POISSON} {LENGTHS} duration=5s", True),
        (f"arrivals=burst arrivals.size=5 {LENGTHS}", True),
        ("arrivals=trace arrivals.file=x", True),
        (f"arrivals=closed arrivals.users=5 {LENGTHS} count=5", True),
        (f"arrivals=closed arrivals.users=5 {LENGTHS} duration=5s", False),
    ],
)
def test_only_a_closed_loop_without_a_count_has_no_end_of_its_own(pairs: str, bounded: bool) -> None:  # noqa: FBT001
    """How many requests it has is then the target's doing."""
    assert load(pairs).bounded is bounded


def test_warm_up_is_by_number_or_by_time() -> None:
    """The first two requests, and whatever is due in the first second."""
    warm: Load = load(f"{POISSON} {LENGTHS} count=9 warmup_requests=2 warmup_time=1s")

    assert warm.is_warmup(1, 5 * 10**9)
    assert warm.is_warmup(7, 10**9 - 1)
    assert not warm.is_warmup(2, 10**9)


def test_classes_may_have_all_lengths_between_them() -> None:
    """A load whose every class says how long it is needs no lengths of its own."""
    assert load(f"{POISSON} prompt=1 count=1 classes.a.share=1 classes.a.output=5").output is None
