"""How one request is to be answered: length, randomness, and where it stops."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from chairlift.core.errors import RequestError
from chairlift.core.request import NO_STOP_IDS, TokenId

GREEDY_BELOW = 1e-5
"""A temperature below this is greedy: dividing by it would overflow, and the likeliest token has all the mass."""

_SEED_LIMIT = 2**63


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """Names and meanings are those of the OpenAI API and of vLLM.

    Raises:
        RequestError: a value cannot be; the message names the field.
    """

    max_tokens: int | None = 16
    """Most tokens to generate. None: as many as max_model_len and the KV pool allow."""

    min_tokens: int = 0
    """Tokens to generate before a stop string, a stop token or the model's own end may end the answer. Until then stop
    tokens are not sampled at all."""

    temperature: float = 1.0
    """Divides the logits: 0 always takes the likeliest token, 1 samples from the model's own distribution."""

    top_k: int = 0
    """Sample among this many likeliest tokens (the lower id wins among equals). 0 or -1: among all."""

    top_p: float = 1.0
    """Sample among the fewest likeliest tokens that together have at least this probability, after top_k. 1: among
    all."""

    seed: int | None = None
    """Equal request, equal seed, equal answer, whatever else runs. None: another answer each time."""

    stop: str | Sequence[str] = ()
    """Strings that end the answer; the one that is complete first. Kept as a tuple."""

    stop_token_ids: Iterable[TokenId] = ()
    """Tokens that end the answer, beside the model's own. Kept as a frozenset."""

    ignore_eos: bool = False
    """The model's own end-of-sequence tokens are tokens like any other."""

    include_stop_str_in_output: bool = False
    """Keep the stop string, or the text of the stop token, at the end of the answer."""

    skip_special_tokens: bool = True
    """Leave control tokens out of the text."""

    presence_penalty: float = 0.0
    """Taken off the logit of every token that the answer has already. -2 to 2."""

    frequency_penalty: float = 0.0
    """Taken off the logit of every token once for each time that the answer has it. -2 to 2."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "stop", (self.stop,) if isinstance(self.stop, str) else tuple(self.stop))
        object.__setattr__(self, "stop_token_ids", frozenset(self.stop_token_ids))
        _check_lengths(self)
        _check_randomness(self)
        _check_stops(self)

    @property
    def greedy(self) -> bool:
        """Whether the likeliest token is always taken."""
        return self.temperature < GREEDY_BELOW or self.top_k == 1

    @property
    def penalised(self) -> bool:
        """Whether tokens of the answer count against themselves."""
        return self.presence_penalty != 0 or self.frequency_penalty != 0

    @property
    def stop_strings(self) -> tuple[str, ...]:
        return tuple(self.stop)

    def stop_ids(self, end_ids: frozenset[TokenId]) -> frozenset[TokenId]:
        """Every token id that ends the answer, where the model's own are `end_ids`."""
        return frozenset(self.stop_token_ids) | (NO_STOP_IDS if self.ignore_eos else end_ids)


def _check_lengths(params: SamplingParams) -> None:
    if params.max_tokens is not None and _integer("max_tokens", params.max_tokens) < 1:
        raise RequestError(f"max_tokens is {params.max_tokens}; it must be at least 1.")
    if _integer("min_tokens", params.min_tokens) < 0:
        raise RequestError(f"min_tokens is {params.min_tokens}; it must not be negative.")
    if params.max_tokens is not None and params.min_tokens > params.max_tokens:
        raise RequestError(
            f"min_tokens is {params.min_tokens}, above max_tokens {params.max_tokens}: lower the first or raise the "
            "second."
        )


def _check_randomness(params: SamplingParams) -> None:
    if not _number("temperature", params.temperature) >= 0:
        raise RequestError(f"temperature is {params.temperature}; it must not be negative. 0 is greedy.")
    if not 0 < _number("top_p", params.top_p) <= 1:
        raise RequestError(f"top_p is {params.top_p}; it is a probability: above 0, at most 1.")
    if _integer("top_k", params.top_k) < -1:
        raise RequestError(f"top_k is {params.top_k}; it must be positive, or 0 for all tokens.")
    if params.seed is not None and not -_SEED_LIMIT <= _integer("seed", params.seed) < 2 * _SEED_LIMIT:
        raise RequestError(f"seed is {params.seed}; it must fit in 64 bits.")
    for name in ("presence_penalty", "frequency_penalty"):
        if not -2 <= _number(name, value := getattr(params, name)) <= 2:
            raise RequestError(f"{name} is {value}; it must be between -2 and 2.")


def _check_stops(params: SamplingParams) -> None:
    stops: tuple[object, ...] = tuple(params.stop)
    for stop in stops:
        if not isinstance(stop, str) or not stop:
            raise RequestError(f"stop has {stop!r}; each stop must be a string of at least one character.")
    for token_id in params.stop_token_ids:
        if _integer("stop_token_ids", token_id) < 0:
            raise RequestError(f"stop_token_ids has {token_id}; token ids are not negative.")


def _integer(name: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise RequestError(f"{name} is {value!r}; it must be an integer.")
    return value


def _number(name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise RequestError(f"{name} is {value!r}; it must be a finite number.")
    return value
