import itertools
import string

from hypothesis import given
from hypothesis import strategies as st

from chairlift.lab.client.sse import EventParser, ServerSentEvent

LINE_ENDS = [b"\n", b"\r", b"\r\n"]


def feed_whole(data: bytes) -> list[ServerSentEvent]:
    """Feed everything at once."""
    return EventParser().feed(data)


def by_the_standard(data: bytes) -> list[tuple[bytes, bytes]]:
    """The standard's algorithm, a byte at a time and without any haste; (data, event name) of each event."""
    data = data.removeprefix(b"\xef\xbb\xbf")
    lines, line, position = [], b"", 0
    while position < len(data):
        byte = data[position : position + 1]
        position += 1
        if byte in (b"\r", b"\n"):
            if byte == b"\r" and data[position : position + 1] == b"\n":
                position += 1
            lines.append(line)
            line = b""
        else:
            line += byte
    events, buffer, name = [], b"", b""
    for line in lines:
        if not line:
            if buffer:
                events.append((buffer[:-1], name))
            buffer, name = b"", b""
        elif not line.startswith(b":"):
            field, _, value = line.partition(b":")
            value = value[1:] if value.startswith(b" ") else value
            if field == b"data":
                buffer += value + b"\n"
            elif field == b"event":
                name = value
    return events


values = st.text(alphabet=string.ascii_letters + " :{}é", max_size=8).map(str.encode)
lines = st.one_of(
    st.builds(lambda value: b"data: " + value, values),
    st.builds(lambda value: b"data:" + value, values),
    st.builds(lambda value: b"event: " + value, values),
    st.builds(lambda value: b": " + value, values),
    st.builds(lambda value: b"id: " + value, values),
    st.just(b"data"),
    st.just(b""),
    st.just(b""),
)


@st.composite
def streams(draw: st.DrawFn) -> bytes:
    """Lines of every kind, each with an ending of its own."""
    parts = [draw(st.sampled_from([b"", b"", b"\xef\xbb\xbf"]))]
    for line in draw(st.lists(lines, max_size=20)):
        parts += [line, draw(st.sampled_from(LINE_ENDS))]
    parts.append(draw(st.sampled_from([b"", b"data: cut sho"])))
    return b"".join(parts)


def pieces_of(data: bytes, cuts: list[int]) -> list[bytes]:
    """Cut at some places."""
    places = [0, *sorted({cut % (len(data) + 1) for cut in cuts}), len(data)]
    return [data[start:stop] for start, stop in itertools.pairwise(places)]


@given(streams(), st.lists(st.integers(min_value=0, max_value=10_000), max_size=30))
def test_events_do_not_depend_on_how_the_bytes_were_split(data: bytes, cuts: list[int]) -> None:
    """Whatever the split, the events are those of the standard's algorithm on the whole."""
    parser = EventParser()

    events = [event for piece in pieces_of(data, cuts) for event in parser.feed(piece)]

    assert [tuple(event) for event in events] == by_the_standard(data)


@given(streams())
def test_events_come_with_the_byte_that_completes_them(data: bytes) -> None:
    """Fed byte by byte, each prefix of the stream has yielded exactly the events that are whole in it."""
    parser, seen = EventParser(), 0
    for position in range(len(data)):
        seen += len(parser.feed(data[position : position + 1]))
        assert seen == len(by_the_standard(data[: position + 1]))


@given(st.lists(values.filter(bool), min_size=1, max_size=8), st.integers(min_value=1, max_value=7))
def test_whole_events_in_one_read_take_the_short_way_to_the_same_end(contents: list[bytes], first: int) -> None:
    """Reads that end between events, as nearly all do, give what a byte-by-byte read gives."""
    encoded = [b"data: " + content + b"\n\n" for content in contents]
    short, slow = EventParser(), EventParser()

    quick = short.feed(b"".join(encoded[:first])) + short.feed(b"".join(encoded[first:]))
    careful = [event for byte in b"".join(encoded) for event in slow.feed(bytes([byte]))]

    assert quick == careful == [ServerSentEvent(content) for content in contents]


def test_a_long_line_in_small_pieces_is_joined_once() -> None:
    """A line without an end is kept in its pieces, so that long ones do not cost their square."""
    parser = EventParser()
    assert parser.feed(b"data: ") == []
    for _ in range(999):
        assert parser.feed(b"x") == []

    assert parser.feed(b"\n\n") == [ServerSentEvent(b"x" * 999)]


def test_the_old_llama_cpp_error_line_is_an_event_of_that_name() -> None:
    """A line `error: ...`, which the standard ignores, is handed on."""
    assert feed_whole(b'error: {"code":500}\n\n') == [ServerSentEvent(b'{"code":500}', b"error")]


def test_a_last_event_without_its_blank_line_is_had_on_closing() -> None:
    """The standard drops it; the client may still want to read a [DONE]."""
    parser = EventParser()
    assert parser.feed(b"data: a\n\ndata: [DONE]") == [ServerSentEvent(b"a")]

    assert parser.close() == ServerSentEvent(b"[DONE]")
    assert parser.close() is None


def test_a_last_event_whose_line_ended_is_had_on_closing_too() -> None:
    """The line is whole, only the blank one is missing."""
    parser = EventParser()
    parser.feed(b"data: [DONE]\n")

    assert parser.close() == ServerSentEvent(b"[DONE]")


def test_closing_after_whole_events_gives_nothing() -> None:
    """Nothing is handed out twice."""
    parser = EventParser()
    parser.feed(b"data: a\n\n")

    assert parser.close() is None
