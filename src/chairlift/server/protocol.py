"""The bodies of requests: OpenAI's fields, and vLLM's further ones at the top level, where clients put them.

What this server cannot do is refused by name unless it has its neutral value; what makes no difference to an answer is
accepted and ignored; anything else is unknown, most likely a slip of the pen, and refused with the closest name.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any, Final, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from chairlift.engine.params import SamplingParams
from chairlift.server.errors import ApiError, invalid

MAX_COMPLETION_TOKENS: Final = 16
"""What /v1/completions generates when the request does not say, as OpenAI's does."""

_MAX_STOPS: Final = 64
"""Each stop string costs something for every character of the answer."""

_HARMLESS: Final = frozenset(
    {
        "metadata",
        "parallel_tool_calls",
        "prompt_cache_key",
        "prompt_cache_retention",
        "safety_identifier",
        "service_tier",
        "store",
        "user",
    }
)
"""Accepted and ignored: bookkeeping of the caller, or without effect when there are no tools."""

_NEUTRAL: Final[Mapping[str, tuple[Any, ...]]] = {
    "allowed_token_ids": (),
    "audio": (),
    "bad_words": ([],),
    "best_of": (1,),
    "chat_template": (),
    "continue_final_message": (False,),
    "documents": ([],),
    "echo": (False,),
    "function_call": ("none", "auto"),
    "functions": ([],),
    "guided_choice": (),
    "guided_grammar": (),
    "guided_json": (),
    "guided_regex": (),
    "length_penalty": (1,),
    "logit_bias": ({},),
    "logits_processors": ([],),
    "logprobs": (False,),
    "min_p": (0,),
    "modalities": (["text"],),
    "prediction": (),
    "prompt_logprobs": (),
    "reasoning_effort": (),
    "repetition_penalty": (1,),
    "response_format": ({"type": "text"},),
    "return_token_ids": (False,),
    "spaces_between_special_tokens": (True,),
    "structured_outputs": (),
    "suffix": ("",),
    "tool_choice": ("none", "auto"),
    "tools": ([],),
    "top_logprobs": (0,),
    "truncate_prompt_tokens": (),
    "use_beam_search": (False,),
    "verbosity": ("medium",),
    "web_search_options": (),
}
"""Not supported: refused unless null or one of these values, which ask for nothing."""

_EXPECTED: Final = {
    "prompt": "a string, a list of strings, a list of token ids, or a list of such lists",
    "messages": "a list of messages, each an object with role and content",
    "stop": "a string or a list of strings",
    "stop_token_ids": "a list of token ids",
}


class StreamOptions(BaseModel):
    """What a stream carries beside the answer."""

    model_config = ConfigDict(strict=True, extra="allow")

    include_usage: bool | None = None
    continuous_usage_stats: bool | None = None
    """vLLM's: with include_usage, every chunk has the usage so far, of all choices together."""
    """End with a chunk that has the usage and no choices."""
    include_obfuscation: bool | None = None
    """Ignored: chunks are not padded."""


class GenerationBody(BaseModel):
    """What both kinds of request have."""

    model_config = ConfigDict(strict=True, extra="allow", allow_inf_nan=False, frozen=True)

    model: str | None = None
    n: int | None = Field(None, ge=1)
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    seed: int | None = None
    stop: str | list[str] | None = None
    # vLLM's
    top_k: int | None = None
    min_tokens: int | None = None
    ignore_eos: bool | None = None
    stop_token_ids: list[int] | None = None
    include_stop_str_in_output: bool | None = None
    skip_special_tokens: bool | None = None
    priority: int | None = None
    cache_salt: str | None = None
    # ours
    parse_special: bool | None = None
    """Read control tokens in the text as such, not as the characters they are written with. Only for text that the
    caller wrote: a stranger's could end its own turn. Default: false."""

    @classmethod
    def read(cls, body: bytes) -> Self:
        """Raises ApiError (400) that names the field."""
        parsed = _validate(cls, body)
        _check_extra(parsed.model_extra or {}, cls, parsed.n or 1)
        if isinstance(parsed.stop, list) and len(parsed.stop) > _MAX_STOPS:
            raise invalid(f"stop has {len(parsed.stop):,} strings; {_MAX_STOPS} are the most.", "stop")
        if parsed.stream_options is not None:
            if not parsed.stream:
                raise invalid("stream_options is for streams: set stream to true, or leave it out.", "stream_options")
            for name, value in (parsed.stream_options.model_extra or {}).items():
                if value not in (None, False):
                    raise invalid(f"stream_options.{name} is not supported; leave it out.", f"stream_options.{name}")
        return parsed

    @property
    def include_usage(self) -> bool:
        return self.stream_options is not None and bool(self.stream_options.include_usage)

    @property
    def continuous_usage(self) -> bool:
        return self.stream_options is not None and bool(self.stream_options.continuous_usage_stats)

    def most_tokens(self) -> int | None:
        """What the answer may have at most; None: what the model and the pool allow."""
        return self.max_tokens

    def sampling(self, choice: int) -> SamplingParams:
        """How one of the request's answers is made.

        Args:
            choice: its number among those of the same prompt; with a seed, each is drawn from a seed of its own.

        Raises:
            RequestError: a value cannot be; the message names the field.
        """
        given = {
            name: value
            for name in (
                "temperature",
                "top_p",
                "top_k",
                "presence_penalty",
                "frequency_penalty",
                "stop",
                "min_tokens",
                "ignore_eos",
                "stop_token_ids",
                "include_stop_str_in_output",
                "skip_special_tokens",
            )
            if (value := getattr(self, name)) is not None
        }
        seed = None if self.seed is None else self.seed + choice
        return SamplingParams(max_tokens=self.most_tokens(), seed=seed, **given)


class CompletionBody(GenerationBody):
    """POST /v1/completions."""

    prompt: str | list[str] | list[int] | list[list[int]]
    add_special_tokens: bool | None = None
    """Begin with the model's own begin-of-sequence token. Default: true."""

    def most_tokens(self) -> int | None:
        return MAX_COMPLETION_TOKENS if self.max_tokens is None else self.max_tokens

    def prompts(self) -> list[str | list[int]]:
        """One or several, each text or token ids.

        Raises:
            ApiError: there is none.
        """
        if isinstance(self.prompt, str):
            return [self.prompt]
        if not self.prompt:
            raise invalid("prompt is an empty list; give at least one prompt.", "prompt")
        ids = [item for item in self.prompt if isinstance(item, int)]
        return [ids] if ids else [item for item in self.prompt if not isinstance(item, int)]


class ChatBody(GenerationBody):
    """POST /v1/chat/completions."""

    messages: list[dict[str, Any]]
    max_completion_tokens: int | None = None
    add_generation_prompt: bool | None = None
    """End the prompt with the opening of the assistant's turn. Default: true."""
    chat_template_kwargs: dict[str, Any] | None = None
    """Further names for the chat template to read, such as enable_thinking."""

    def most_tokens(self) -> int | None:
        return self.max_tokens if self.max_completion_tokens is None else self.max_completion_tokens


B = TypeVar("B", bound=BaseModel)


def _validate(model: type[B], body: bytes) -> B:
    try:
        return model.model_validate_json(body)
    except ValidationError as error:
        raise _readable(error) from error


def _readable(error: ValidationError) -> ApiError:
    first = error.errors(include_url=False, include_context=False)[0]
    location = first["loc"]
    if not location:
        return invalid(f"the body cannot be read: {first['msg']}.", code="invalid_json")
    field = str(location[0])
    if first["type"] == "missing" and len(location) == 1:
        return invalid(f"{field} is missing; it must be {_EXPECTED.get(field, 'given')}.", field, "missing")
    if field in _EXPECTED:
        return invalid(f"{field} must be {_EXPECTED[field]}.", field, "invalid_type")
    path = ".".join(map(str, location))
    return invalid(f"{path}: {first['msg']} (it is {_short(first['input'])}).", path, "invalid_value")


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _check_extra(extra: Mapping[str, Any], model: type[BaseModel], n: int) -> None:
    for name, value in extra.items():
        if name in _HARMLESS or value is None:
            continue
        if name in _NEUTRAL:
            if not any(_same(value, neutral) for neutral in _NEUTRAL[name]) and (name, value) != ("best_of", n):
                raise invalid(
                    f"{name} is not supported by this server; leave it out or set it to null.", name, "unsupported"
                )
            continue
        near = difflib.get_close_matches(name, [*model.model_fields, *_NEUTRAL, *_HARMLESS], n=1, cutoff=0.7)
        meant = f" Did you mean {near[0]}?" if near else " Leave it out."
        raise invalid(f"there is no field {_short(name)} in this request.{meant}", name, "unknown_field")


def _same(value: Any, neutral: Any) -> bool:
    """Equal, and not only because True == 1."""
    return isinstance(value, bool) == isinstance(neutral, bool) and bool(value == neutral)
