import json
from pathlib import Path
from typing import Any

import pytest

from chairlift.core.errors import ConfigError
from chairlift.lab.loads.transcripts import Exchange, Transcripts, read_transcripts


def read(path: Path, *chats: Any, as_list: bool = False) -> Transcripts:
    """Chats through a file; a word is a token."""
    path.write_text(json.dumps(chats) if as_list else "".join(json.dumps(chat) + "\n" for chat in chats))
    return read_transcripts(path, lambda text: len(text.split()))


def messages(*texts: str) -> dict[str, Any]:
    """An OpenAI chat of texts like "user: a b c"."""
    pairs = (text.split(": ", 1) for text in texts)
    return {"messages": [{"role": role, "content": content} for role, content in pairs]}


@pytest.mark.parametrize("as_list", [False, True])
def test_both_shapes_are_read_as_lines_and_as_a_list(tmp_path: Path, as_list: bool) -> None:  # noqa: FBT001
    """OpenAI's messages and ShareGPT's conversations, counted by the tokenizer."""
    sharegpt = {"id": "x", "conversations": [{"from": "human", "value": "a b"}, {"from": "gpt", "value": "c d e"}]}

    chats = read(tmp_path / "x", messages("user: a", "assistant: b c"), sharegpt, as_list=as_list).chats

    assert chats == ((Exchange(1, 2),), (Exchange(2, 3),))


def test_turns_are_what_each_side_adds(tmp_path: Path) -> None:
    """A system prompt counts with the first user's; messages in a row are one; a last question has no answer."""
    chat = messages(
        "system: be good", "user: a", "user: b", "assistant: c", "assistant: d e", "user: f", "assistant: g", "user: h"
    )

    assert read(tmp_path / "x", chat).chats == ((Exchange(4, 3), Exchange(1, 1)),)


def test_an_answer_to_nobody_is_passed_over(tmp_path: Path) -> None:
    """A chat that the assistant opens begins with the first question."""
    chat = messages("assistant: hello there", "user: a", "assistant: b c d")

    assert read(tmp_path / "x", chat).chats == ((Exchange(1, 3),),)


def test_parts_of_a_message_count_as_far_as_they_are_text(tmp_path: Path) -> None:
    """A picture has no tokens here."""
    chat = messages("user: a", "assistant: b")
    chat["messages"][0]["content"] = [{"type": "text", "text": "a b c"}, {"type": "image_url", "image_url": "x"}]

    assert read(tmp_path / "x", chat).chats == ((Exchange(3, 1),),)


def test_chats_without_an_exchange_are_left_out_and_counted(tmp_path: Path) -> None:
    """Nobody answered, nobody asked, or it was silence."""
    silent = messages("user: a", "assistant: b")
    silent["messages"][1]["content"] = ""

    whole = messages("user: a", "assistant: b")
    transcripts = read(tmp_path / "x", messages("user: a"), messages("assistant: a"), silent, whole)

    assert len(transcripts.chats) == 1
    assert transcripts.left_out == 3


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "have no exchange of a user and an assistant in 0 chats"),
        ('{"messages": []}', "have no exchange of a user and an assistant in 1 chats"),
        ("\n{", "line 2: no JSON"),
        ("[1", "no JSON"),
        ('{"a": 1}', "line 1: no chat: it has neither a list 'messages' nor a list 'conversations'"),
        ('{"messages": [{"role": "user"}]}', "line 1: a message is no object with 'role' and 'content'"),
        ('[{"messages": [1]}]', "chat 1: a message is no object with 'role' and 'content'"),
    ],
)
def test_what_is_no_transcript_is_refused(tmp_path: Path, content: str, message: str) -> None:
    """With the line, or the chat's number."""
    path = tmp_path / "x"
    path.write_text(content)

    with pytest.raises(ConfigError, match=message):
        read_transcripts(path, len)


def test_a_file_that_cannot_be_read_is_said(tmp_path: Path) -> None:
    """It is not there, or is no text."""
    (tmp_path / "binary").write_bytes(b"\xff\xfe")

    with pytest.raises(ConfigError, match="none cannot be read: No such file"):
        read_transcripts(tmp_path / "none", len)
    with pytest.raises(ConfigError, match="binary are no text"):
        read_transcripts(tmp_path / "binary", len)
