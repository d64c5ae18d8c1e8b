from hypothesis import given
from hypothesis import strategies as st

from chairlift.core.request import FinishReason
from chairlift.engine.outputs import OutputDelta

deltas = st.builds(
    OutputDelta,
    request_id=st.just("a"),
    text=st.text(max_size=4),
    token_ids=st.lists(st.integers(0, 9), max_size=3).map(tuple),
    prompt_tokens=st.just(5),
    cached_tokens=st.integers(0, 5),
    output_tokens=st.integers(0, 9),
    finish_reason=st.none() | st.sampled_from(FinishReason),
    stop_reason=st.none() | st.text(max_size=2),
    error=st.text(max_size=3),
)


@given(deltas, deltas, deltas)
def test_joining_is_associative_and_keeps_the_later_state(a: OutputDelta, b: OutputDelta, c: OutputDelta) -> None:
    """Text and tokens add up in order; counts, reasons and errors are the last one's."""
    joined = a.joined(b).joined(c)

    assert joined == a.joined(b.joined(c))
    assert joined.text == a.text + b.text + c.text
    assert joined.token_ids == a.token_ids + b.token_ids + c.token_ids
    assert (joined.output_tokens, joined.finish_reason, joined.error) == (c.output_tokens, c.finish_reason, c.error)
