"""What sequences of a load hold in the KV cache, on average and at their peak.

A running sequence of p prompt tokens and o output tokens holds p + u of them, with u growing evenly from 0 to o. It
runs for about o steps, so that of the sequences seen at any moment those with long answers are more than their share:

    mean held   = sum of o (p + o / 2)             / sum of o
    mean square = sum of o (p^2 + p o + o^2 / 3)   / sum of o

(length-biased sampling; the time a prompt takes is left out, which counts waiting for it as not yet running).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from chairlift.core.config import KVReservation
from chairlift.core.errors import ConfigError

_NEARLY_ALWAYS: Final = 2.326
"""Standard deviations above the mean that a normal variable stays below 99% of the time."""


@dataclass(frozen=True, slots=True)
class Lengths:
    """Prompt and output tokens of one request or many, and what that means for memory."""

    prompt: float
    """Mean prompt tokens."""
    output: float
    """Mean output tokens."""
    longest: int
    """Most tokens of prompt and permitted answer together."""
    held: float
    """Mean tokens that a running sequence holds, at a moment chosen at random."""
    deviation: float
    """Standard deviation of the same."""
    reserved: float
    """Mean of prompt and permitted answer of running sequences: what full reservation holds for each."""
    requests: int
    """How many requests this was reckoned from."""

    @classmethod
    def of(cls, requests: Iterable[tuple[int, int, int]]) -> Lengths:
        """From (prompt tokens, output tokens, most output tokens) of each request.

        Raises:
            ConfigError: there is none, or none has output.
        """
        rows = [row for row in requests if row[1] > 0]
        if not rows:
            raise ConfigError("the load has no request with an answer: there are no lengths to reckon with.")
        weight = sum(output for _, output, _ in rows)
        held = sum(output * (prompt + output / 2) for prompt, output, _ in rows) / weight
        square = sum(o * (p * p + p * o + o * o / 3) for p, o, _ in rows) / weight
        return cls(
            prompt=sum(prompt for prompt, _, _ in rows) / len(rows),
            output=weight / len(rows),
            longest=max(prompt + most for prompt, _, most in rows),
            held=held,
            deviation=math.sqrt(max(0.0, square - held * held)),
            reserved=sum(output * (prompt + most) for prompt, output, most in rows) / weight,
            requests=len(rows),
        )

    @classmethod
    def fixed(cls, prompt: int, output: int) -> Lengths:
        """Every request alike."""
        if prompt < 1 or output < 1:
            raise ConfigError(f"--prompt {prompt} and --output {output} must both be at least 1 token.")
        return cls.of([(prompt, output, output)])

    @property
    def context(self) -> int:
        """Positions that a decode reads on average."""
        return max(1, round(self.held))

    def blocks(self, block_size: int, reservation: KVReservation, max_model_len: int) -> float:
        """Mean KV blocks that a running sequence holds; of the last one, half is empty on average."""
        if reservation == "model_len":
            return float(-(-max_model_len // block_size))
        tokens = self.held if reservation == "prompt" else self.reserved
        return tokens / block_size + 0.5 * (1 - 1 / block_size)

    def fitting(self, num_blocks: int, block_size: int, reservation: KVReservation, max_model_len: int) -> Fitting:
        """How many sequences a pool holds.

        With n of them together they hold n x mean on average; 99% of the time no more than that and 2.326 x sqrt(n)
        x deviation (normal approximation, requests independent). What is reserved does not vary while they run.
        """
        mean = self.blocks(block_size, reservation, max_model_len)
        spread = self.deviation / block_size if reservation == "prompt" else 0.0
        on_average = math.floor(num_blocks / mean)
        root = (math.sqrt((_NEARLY_ALWAYS * spread) ** 2 + 4 * mean * num_blocks) - _NEARLY_ALWAYS * spread) / 2 / mean
        return Fitting(on_average=on_average, nearly_always=min(on_average, math.floor(root * root + 1e-9)))


@dataclass(frozen=True, slots=True)
class Fitting:
    """Sequences that a pool holds at once."""

    on_average: int
    """As many as fill it if each holds the mean: about half of the time there would be too little."""
    nearly_always: int
    """As many as stay within it 99% of the time."""


def sample(requests: Sequence[tuple[int, int, int]], most: int = 10_000) -> Sequence[tuple[int, int, int]]:
    """An evenly spaced part of a long list, so that a trace of a million requests takes no time."""
    stride = max(1, -(-len(requests) // most))
    return requests[::stride]
