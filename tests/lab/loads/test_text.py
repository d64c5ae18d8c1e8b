import itertools
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import models, pre_tokenizers, trainers

from chairlift.core.errors import ConfigError
from chairlift.lab.loads.fitting import Guess
from chairlift.lab.loads.prompts import SafeIds
from chairlift.lab.loads.text import Message, TextPrompts
from chairlift.lab.loads.words import WORDS
from chairlift.runners.openvino.gguf import GgufFile
from chairlift.text.chat import ChatTemplate
from chairlift.text.tokenizer import Tokenizer
from tests.lab.loads.making import load, requests

BASE = "arrivals=burst arrivals.size=12 prompt=uniform prompt.min=1 prompt.max=150 output=20"
SHARED = f"{BASE} prefix.tokens=33 prefix.groups=2"
TALKS = f"{SHARED} sessions.turns=3"

Count = Callable[[str], Collection[object]]


def byte_pairs(size: int, *, metaspace: bool = False) -> Count:
    """A tokenizer trained on the words, small enough that many of them are several tokens."""
    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    if metaspace:
        tokenizer.pre_tokenizer, alphabet = pre_tokenizers.Metaspace(), list(map(chr, range(32, 127)))
    trainer = trainers.BpeTrainer(vocab_size=size, show_progress=False, initial_alphabet=alphabet)
    tokenizer.train_from_iterator([" ".join(WORDS)], trainer)
    return lambda text: tokenizer.encode(text).ids


TOKENIZERS: dict[str, Count] = {
    "words": str.split,
    "words and a bos": lambda text: ["bos", *text.split()],
    "characters": list,
    "every three characters": lambda text: range(-(-len(text) // 3)),
    "few byte pairs": byte_pairs(300),
    "some byte pairs": byte_pairs(700),
    "metaspace": byte_pairs(500, metaspace=True),
}


def chat(text: Count) -> Callable[[Sequence[Message]], list[object]]:
    """A template of five tokens a message, and three that open the answer."""

    def encode(messages: Sequence[Message]) -> list[object]:
        written = [["<", message.role, "|", *list(text(message.content.strip())), ">", "."] for message in messages]
        return [*itertools.chain.from_iterable(written), "<", "assistant", "|"]

    return encode


@pytest.mark.parametrize("name", TOKENIZERS)
def test_a_text_has_exactly_the_tokens_asked_for(name: str) -> None:
    """With prefixes and turns, under tokenizers that cut words in all sorts of ways."""
    count = TOKENIZERS[name]
    made = TextPrompts(load(TALKS), count)

    for request in requests(TALKS):
        prompt = made.text(request)
        assert len(count(prompt.text)) == request.prompt_tokens == prompt.tokens
        assert prompt.checked


@pytest.mark.parametrize("name", TOKENIZERS)
def test_texts_share_what_the_load_says(name: str) -> None:
    """A turn begins with the text before it, and all of a group begin with one text, each group with its own."""
    made = TextPrompts(load(TALKS), TOKENIZERS[name])
    items = requests(TALKS)
    texts = {request.index: made.text(request).text for request in items}
    fronts = {request.recipe[0].number: set[str]() for request in items}

    for request in items:
        if request.turn:
            assert texts[request.index].startswith(texts[request.index - 1])
        fronts[request.recipe[0].number].add(texts[request.index][:30])
    assert all(len(front) == 1 for front in fronts.values())
    assert len(fronts) == 2


def test_texts_are_the_same_in_any_order_and_differ_by_their_salt() -> None:
    """The salt changes the first four words, and nothing else."""
    items = requests(BASE)
    one, other = (TextPrompts(load(BASE), str.split, salt=salt) for salt in ("a", "b"))
    backwards = {request.index: one.text(request).text for request in reversed(items)}

    for request in items:
        text = TextPrompts(load(BASE), str.split, salt="a").text(request).text
        assert backwards[request.index] == text
        if request.prompt_tokens >= 4:
            assert text.split()[:4] != other.text(request).text.split()[:4]
            assert text.split()[4:] == other.text(request).text.split()[4:]


def test_an_unknown_tokenizer_is_guessed_at_and_said() -> None:
    """One word a token, or what was learned from the target's usage."""
    request = next(request for request in requests(BASE) if request.prompt_tokens > 100)

    plain = TextPrompts(load(BASE), None).text(request)
    learned = TextPrompts(load(BASE), None, guess=Guess(1.3, 4.0)).text(request)

    assert (plain.tokens, plain.checked) == (request.prompt_tokens, False)
    assert len(plain.text.split()) == request.prompt_tokens
    assert len(learned.text.split()) == round((request.prompt_tokens - 4) / 1.3)


@pytest.mark.parametrize("name", TOKENIZERS)
def test_a_chat_has_exactly_the_tokens_asked_for_with_its_template(name: str) -> None:
    """Turns are messages; each chat begins with the messages of the one before."""
    pairs = f"{SHARED} prompt.min=40 sessions.turns=3".replace("prompt.min=1 ", "")
    encode = chat(TOKENIZERS[name])
    made = TextPrompts(load(pairs), TOKENIZERS[name])
    before: tuple[Message, ...] = ()

    for request in requests(pairs):
        prompt = made.messages(request, encode)
        assert len(encode(prompt.messages)) == request.prompt_tokens == prompt.tokens
        assert [message.role for message in prompt.messages] == ["user", "assistant"] * request.turn + ["user"]
        if request.turn:
            assert prompt.messages[: len(before)] == before
        before = prompt.messages


def test_a_chat_under_an_unknown_template_is_guessed_at_and_said() -> None:
    """As many words as tokens were asked for."""
    request = requests(TALKS)[1]

    prompt = TextPrompts(load(TALKS), None).messages(request, None)

    assert not prompt.checked
    assert sum(len(message.content.split()) for message in prompt.messages) == request.prompt_tokens


def test_real_answers_take_the_place_of_drawn_ones() -> None:
    """What the user adds makes up for another length, as far as it can."""
    pairs = TALKS.replace("prompt.min=1 ", "prompt.min=40 ")
    first, second, *_ = requests(pairs)
    made = TextPrompts(load(pairs), str.split)

    exact = made.text(second, {first.index: " yes" * 12})
    over = made.text(second, {first.index: " yes" * 999})
    talk = made.messages(second, chat(str.split), {first.index: "yes"})

    assert exact.text.startswith(made.text(first).text + " yes" * 12)
    assert exact.tokens == second.prompt_tokens
    assert over.tokens == first.prompt_tokens + 999 == len(over.text.split())
    assert talk.messages[1] == Message("assistant", "yes")
    assert talk.tokens == second.prompt_tokens


def test_what_cannot_be_had_is_refused_with_its_numbers() -> None:
    """A template longer than the prompt; a tokenizer that counts in pairs."""
    short = BASE.replace("prompt=uniform prompt.min=1 prompt.max=150", "prompt=5")

    with pytest.raises(ConfigError, match="no text of 5 tokens was found for own 0: with 0 words of its own it has 8"):
        TextPrompts(load(short), str.split).messages(requests(short)[0], chat(str.split))
    with pytest.raises(ConfigError, match="Ask for longer prompts, or for token ids instead of text"):
        TextPrompts(load(short), lambda text: range(2 * len(text.split()))).text(requests(short)[0])


@given(st.integers(1, 2000), st.integers(0, 5))
def test_any_length_is_met(tokens: int, seed: int) -> None:
    """From one token to two thousand, under a tokenizer whose words are often several tokens."""
    pairs = f"arrivals=burst arrivals.size=1 prompt={tokens} output=1 seed={seed}"

    prompt = TextPrompts(load(pairs), TOKENIZERS["every three characters"]).text(requests(pairs)[0])

    assert prompt.tokens == tokens


@pytest.mark.model
def test_lengths_are_exact_under_the_demo_models_tokenizer_and_template(demo_model_path: Path) -> None:
    """Texts, chats with their template, and token ids that are all ordinary ones."""
    metadata = GgufFile(demo_model_path).metadata
    tokenizer = Tokenizer.from_gguf(metadata)
    template = ChatTemplate.from_gguf(metadata, tokenizer)
    assert template is not None
    pairs = TALKS.replace("prompt.min=1 ", "prompt.min=60 ")

    def encode_chat(messages: Sequence[Message]) -> list[int]:
        rendered = template.render([{"role": message.role, "content": message.content} for message in messages])
        return tokenizer.encode_prompt(rendered)

    made = TextPrompts(load(pairs), tokenizer.encode)
    for request in requests(pairs)[:12]:
        text = made.text(request)
        assert len(tokenizer.encode(text.text)) == text.tokens == request.prompt_tokens
        chat_prompt = made.messages(request, encode_chat)
        assert len(encode_chat(chat_prompt.messages)) == chat_prompt.tokens == request.prompt_tokens
    assert len(SafeIds.of(tokenizer.vocab_size, tokenizer.control_ids)) == 49_152 - len(tokenizer.control_ids)
