from pathlib import Path

from tests.lab.loads.making import requests, schedule

BASE = "arrivals=poisson arrivals.rate=1"
TRACE = "lengths=trace lengths.file=AzureLLMInferenceTrace_conv.csv"
CHATS = """\
{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b b"}]}
{"messages": [{"role": "user", "content": "a a a"}, {"role": "assistant", "content": "b"}, {"role": "user", "content":\
 "c c"}, {"role": "assistant", "content": "d d d d"}]}
"""


def lengths(pairs: str, folder: Path | None = None) -> list[tuple[int, int]]:
    """Prompt and output tokens of each request."""
    items = requests(pairs, folder) if folder else requests(pairs)
    return [(request.prompt_tokens, request.output_tokens) for request in items]


def test_rows_of_a_trace_stay_together() -> None:
    """Every pair of lengths is one of the trace's; in order they are its rows, again and again."""
    in_order = lengths(f"{BASE} count=80 {TRACE} lengths.draw=in_order")
    drawn = lengths(f"{BASE} count=200 {TRACE}")

    assert in_order[:2] == [(374, 44), (396, 109)]
    assert in_order[:40] == in_order[40:]
    assert set(drawn) <= set(in_order)
    assert len(set(drawn)) > 20


def test_a_class_has_its_own_length_beside_a_trace() -> None:
    """The other length stays the row's."""
    own = lengths(f"{BASE} count=40 {TRACE} lengths.draw=in_order classes.a.share=1 classes.a.output=5")

    assert own[:2] == [(374, 5), (396, 5)]


def test_first_exchanges_or_whole_chats(tmp_path: Path) -> None:
    """By default a chat gives one request; with turns=all it is a session, which thinks as sessions do."""
    (tmp_path / "chats").write_text(CHATS)
    source = "lengths=transcripts lengths.file=chats lengths.draw=in_order"

    assert lengths(f"{BASE} count=3 {source}", tmp_path) == [(1, 2), (3, 1), (1, 2)]
    whole = requests(f"{BASE} count=4 {source} lengths.turns=all sessions.think=3s", tmp_path)
    assert [(request.session, request.turn, request.prompt_tokens, request.output_tokens) for request in whole] == [
        (0, 0, 1, 2),
        (1, 0, 3, 1),
        (1, 1, 6, 4),
        (2, 0, 1, 2),
    ]


def test_files_are_named_with_what_was_left_out(tmp_path: Path) -> None:
    """The notes count, and the hashes name the file as the load does."""
    (tmp_path / "chats").write_text(CHATS + '{"messages": []}\n')

    chats = schedule(f"{BASE} count=4 lengths=transcripts lengths.file=chats", tmp_path)
    rows = schedule(f"{BASE} count=4 lengths=trace lengths.file=burstgpt.csv")

    assert chats.notes == ("chats: 2 chats, 1 left out",)
    assert rows.notes == ("burstgpt.csv: 1 rows left out (failed: 0 output tokens)",)
    assert set(chats.files) == {"chats"}
    assert set(rows.files) == {"burstgpt.csv"}
