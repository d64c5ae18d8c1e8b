"""Prompts in the form a target takes: token ids, text, or messages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from chairlift.core.request import TokenId
from chairlift.lab.client.options import Answer
from chairlift.lab.loads.fitting import Guess
from chairlift.lab.loads.load import Load
from chairlift.lab.loads.prompts import Prompts, SafeIds
from chairlift.lab.loads.request import ScheduledRequest
from chairlift.lab.loads.text import EncodeChat, Message, TextPrompts
from chairlift.text.chat import ChatTemplate
from chairlift.text.tokenizer import Tokenizer


class TokenIdPrompts:
    """Token ids: exactly as long as asked."""

    def __init__(self, load: Load, tokenizer: Tokenizer, salt: str) -> None:
        self._prompts = Prompts(load, SafeIds.of(tokenizer.vocab_size, tokenizer.control_ids), salt)

    def __call__(self, request: ScheduledRequest, answers: Mapping[int, Answer]) -> list[TokenId]:
        """See PromptWriter."""
        ids = {index: answer.token_ids for index, answer in answers.items() if answer.token_ids is not None}
        return self._prompts.tokens(request, ids)


class PlainPrompts:
    """Text: as long as asked where the tokenizer is known, and guessed where it is not."""

    def __init__(self, load: Load, tokenizer: Tokenizer | None, guess: Guess | None, salt: str) -> None:
        self._prompts = TextPrompts(load, None if tokenizer is None else tokenizer.encode, salt=salt, guess=guess)

    def __call__(self, request: ScheduledRequest, answers: Mapping[int, Answer]) -> str:
        """See PromptWriter."""
        return self._prompts.text(request, {index: answer.text for index, answer in answers.items()}).text


class ChatPrompts:
    """Messages: as long as asked, template included, where tokenizer and template are known."""

    def __init__(
        self, load: Load, tokenizer: Tokenizer | None, template: ChatTemplate | None, guess: Guess | None, salt: str
    ) -> None:
        self._prompts = TextPrompts(load, None if tokenizer is None else tokenizer.encode, salt=salt, guess=guess)
        self._encode = _chat_encoder(tokenizer, template)

    def __call__(self, request: ScheduledRequest, answers: Mapping[int, Answer]) -> tuple[Message, ...]:
        """See PromptWriter."""
        texts = {index: answer.text for index, answer in answers.items()}
        return self._prompts.messages(request, self._encode, texts).messages


def _chat_encoder(tokenizer: Tokenizer | None, template: ChatTemplate | None) -> EncodeChat | None:
    if tokenizer is None or template is None:
        return None

    def encode(messages: Sequence[Message]) -> list[TokenId]:
        rendered = template.render([{"role": one.role, "content": one.content} for one in messages])
        return tokenizer.encode_prompt(rendered)

    return encode
