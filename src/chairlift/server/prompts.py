"""From a request's body to token ids."""

from __future__ import annotations

from collections.abc import Sequence

from chairlift.core.errors import RequestError
from chairlift.core.request import TokenId
from chairlift.server.errors import ApiError, invalid
from chairlift.server.protocol import ChatBody, CompletionBody
from chairlift.text.chat import ChatTemplate, require
from chairlift.text.tokenizer import Tokenizer


class PromptReader:
    """Understands bodies for one model. Safe to share between threads.

    Args:
        tokenizer: the model's.
        template: of chats; None when the model has none.
        names: under which requests may ask for the model; the first is shown.
        max_choices: most answers one request may ask for.
    """

    def __init__(
        self, tokenizer: Tokenizer, template: ChatTemplate | None, names: tuple[str, ...], max_choices: int
    ) -> None:
        self.names = names
        self._tokenizer = tokenizer
        self._template = template
        self._max_choices = max_choices

    def model_name(self, asked: str | None) -> str:
        """The name to answer under.

        Raises:
            ApiError: 404, there is no such model here.
        """
        if asked is None:
            return self.names[0]
        if asked not in self.names:
            raise ApiError(
                404,
                f"the model {asked!r} is not served here; there is {', '.join(self.names)}.",
                param="model",
                code="model_not_found",
            )
        return asked

    def completion(self, body: CompletionBody) -> list[Sequence[TokenId]]:
        """Token ids of each prompt.

        Raises:
            ApiError: an id that is none, or too many answers asked for.
            RequestError: text that cannot be encoded.
        """
        prompts = body.prompts()
        self._check_choices(len(prompts), body.n or 1)
        self._check_ids(body.stop_token_ids or (), "stop_token_ids")
        return [self._encode(prompt, body) for prompt in prompts]

    def chat(self, body: ChatBody) -> list[Sequence[TokenId]]:
        """Token ids of a conversation, in the model's own chat format. A template is a program: it may take its time.

        Raises:
            ApiError: there is no template, it refuses the messages, or too many answers are asked for.
        """
        self._check_choices(1, body.n or 1)
        self._check_ids(body.stop_token_ids or (), "stop_token_ids")
        try:
            prompt = require(self._template, self.names[0]).render(
                body.messages,
                add_generation_prompt=body.add_generation_prompt is not False,
                variables=body.chat_template_kwargs,
                parse_special=bool(body.parse_special),
            )
            return [self._tokenizer.encode_prompt(prompt)]
        except RequestError as error:
            raise invalid(str(error), "messages") from error

    def _encode(self, prompt: str | list[TokenId], body: CompletionBody) -> Sequence[TokenId]:
        if isinstance(prompt, str):
            return self._tokenizer.encode(
                prompt,
                add_special_tokens=body.add_special_tokens is not False,
                parse_special=bool(body.parse_special),
            )
        self._check_ids(prompt, "prompt")
        return prompt

    def _check_choices(self, prompts: int, n: int) -> None:
        if prompts * n > self._max_choices:
            raise invalid(
                f"{prompts:,} prompts times n {n:,} make {prompts * n:,} answers; {self._max_choices:,} are the most "
                "for one request (--max-choices).",
                "n" if n > 1 else "prompt",
            )

    def _check_ids(self, ids: Sequence[TokenId], field: str) -> None:
        size = self._tokenizer.vocab_size
        wrong = next((one for one in ids if not 0 <= one < size), None)
        if wrong is not None:
            raise invalid(f"{field} has the token id {wrong}; the model's are 0 to {size - 1:,}.", field)
