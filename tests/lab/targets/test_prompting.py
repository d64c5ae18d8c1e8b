from chairlift.lab.client.options import Answer
from chairlift.lab.loads.files import load_from_pairs
from chairlift.lab.loads.request import At, ScheduledRequest, Segment
from chairlift.lab.targets.prompting import ChatPrompts, PlainPrompts, TokenIdPrompts
from chairlift.text.chat import ChatTemplate
from tests.engine.tiny import END, byte_tokenizer
from tests.server.harness import TEMPLATE

LOAD = load_from_pairs(["arrivals=constant", "arrivals.rate=1", "count=2", "prompt=200", "output=20"])
FIRST = ScheduledRequest(0, At(0), (Segment("own", 0, 200),), 200, 20, 20)
SECOND = ScheduledRequest(
    1, At(0), (Segment("own", 0, 200), Segment("answer", 0, 20), Segment("own", 1, 100)), 320, 20, 20, session=0, turn=1
)


def test_token_ids_are_as_many_as_asked_and_ordinary() -> None:
    """No control token among them."""
    ids = TokenIdPrompts(LOAD, byte_tokenizer(), "")(FIRST, {})

    assert len(ids) == 200
    assert END not in ids


def test_the_answer_before_is_in_the_prompt_after() -> None:
    """As it was really given, and filled up where it was short."""
    writer = TokenIdPrompts(LOAD, byte_tokenizer(), "")
    ids = writer(SECOND, {0: Answer("xyz", (120, 121, 122))})

    assert ids[:200] == writer(FIRST, {})
    assert ids[200:203] == [120, 121, 122]
    assert len(ids) == 320


def test_an_answer_without_ids_is_stood_in_for() -> None:
    """Text is not tokenized again."""
    writer = TokenIdPrompts(LOAD, byte_tokenizer(), "")

    assert writer(SECOND, {0: Answer("xyz", None)}) == writer(SECOND, {})


def test_text_is_as_long_as_asked_by_the_tokenizer() -> None:
    """A byte is a token here."""
    text = PlainPrompts(LOAD, byte_tokenizer(), None, "")(FIRST, {})

    assert len(text) == 200


def test_text_without_a_tokenizer_is_words() -> None:
    """As many as tokens were asked for, unless a guess says better."""
    text = PlainPrompts(LOAD, None, None, "")(FIRST, {})

    assert len(text.split()) == 200


def test_a_salt_changes_the_beginning() -> None:
    """So that a second run finds nothing in the cache."""
    tokenizer = byte_tokenizer()

    assert TokenIdPrompts(LOAD, tokenizer, "a")(FIRST, {}) != TokenIdPrompts(LOAD, tokenizer, "b")(FIRST, {})


def test_a_chat_is_as_long_as_asked_template_included() -> None:
    """Counted as the server will count it."""
    tokenizer = byte_tokenizer()
    template = ChatTemplate(TEMPLATE, tokenizer, source="test")
    messages = ChatPrompts(LOAD, tokenizer, template, None, "")(FIRST, {})

    rendered = template.render([{"role": one.role, "content": one.content} for one in messages])
    assert len(tokenizer.encode_prompt(rendered)) == 200


def test_a_chat_without_a_template_is_messages_all_the_same() -> None:
    """Turns alternate, and the real answer is the assistant's message."""
    messages = ChatPrompts(LOAD, None, None, None, "")(SECOND, {0: Answer("well", None)})

    assert [one.role for one in messages] == ["user", "assistant", "user"]
    assert messages[1].content == "well"
