"""Records to test with, and ways to draw them."""

from hypothesis import strategies as st

from chairlift.core.request import FinishReason
from chairlift.records.gaps import GapRun
from chairlift.records.manifest import Manifest
from chairlift.records.schema import BatchRecord, DecisionRecord, RequestRecord, ShareRecord, StepRecord

count = st.integers(0, 2**40)
moment = st.integers(0, 2**62)
words = st.text(max_size=8).filter(lambda text: "\x00" not in text)
"""Any text, line breaks and quotes included; lone surrogates are no text."""
maybe = st.none() | moment

steps = st.builds(
    StepRecord,
    **{
        name: words if name == "policy" else (st.none() | count if name == "batch" else count)
        for name in StepRecord.__annotations__
    },
)
requests = st.builds(
    RequestRecord,
    request_id=words,
    policy=words,
    arrival=moment,
    prompt_tokens=count,
    cached_tokens=count,
    output_tokens=count,
    preemptions=count,
    admitted=maybe,
    first_token_computed=maybe,
    first_token_released=maybe,
    finished=maybe,
    released=moment,
    streamed=st.booleans(),
    finish_reason=st.sampled_from(FinishReason),
    error=words,
    token_gaps=st.lists(count, max_size=4).map(tuple),
    gap_runs=st.lists(st.builds(GapRun, count, count, count, count, count), max_size=3).map(tuple),
)
decisions = st.builds(
    DecisionRecord,
    time=moment,
    step=count,
    request_id=words,
    reason=words,
    numbers=st.dictionaries(words, count, max_size=3),
)
batches = st.builds(
    BatchRecord,
    **{
        name: words if name in {"policy", "reason"} else (maybe if name == "forecast_time" else count)
        for name in BatchRecord.__annotations__
    },
)
shares = st.builds(
    ShareRecord, **{name: words if name == "request_id" else count for name in ShareRecord.__annotations__}
)
records = steps | shares | requests | decisions | batches


def manifest(**changes: object) -> Manifest:
    """The head of a run that began at noon."""
    return Manifest(
        **{  # type: ignore[arg-type]
            "source": "engine",
            "started": "2030-01-01T12:00:00+00:00",
            "clock_zero": 1.5,
            "chairlift": "0.1.0",
            **changes,
        }
    )


def request(
    *,
    arrival: int = 0,
    first: int | None = 30,
    gaps: tuple[int, ...] = (10, 10),
    released: int | None = None,
    reason: FinishReason = FinishReason.LENGTH,
) -> RequestRecord:
    """A request that was admitted at 20 and streamed, unless it is released later than its last token; seconds."""
    second = 1_000_000_000
    last = None if first is None else first + sum(gaps)
    end = released if released is not None else (last or 50)
    streamed = released is None or released == last
    return RequestRecord(
        request_id="a",
        policy="continuous",
        arrival=arrival * second,
        prompt_tokens=5,
        cached_tokens=0,
        output_tokens=0 if first is None else len(gaps) + 1,
        preemptions=0,
        admitted=None if first is None else 20 * second,
        first_token_computed=None if first is None else first * second,
        first_token_released=None if first is None else (first if streamed else end) * second,
        finished=None if last is None else last * second,
        released=end * second,
        streamed=streamed,
        finish_reason=reason,
        token_gaps=tuple(gap * second for gap in gaps) if first is not None else (),
    )
