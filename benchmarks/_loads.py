"""The loads of the benchmarks: seeded token ids, exact lengths. Standard library only: peers' environments import it.

    W1   one stream: prompt of 128, answer of 128
    W2   a mixed tail: 32 requests at once, prompts of 16 to 256, answers of 20 and each eighth of 200
    W3   uniform: 32 requests at once, prompts of 128, answers of 64
    W4   one prompt of 1,024, one token of answer

The answers' lengths are exact: end-of-sequence tokens count as any other.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

LOWEST_ID, HIGHEST_ID = 1000, 40_000
"""Ordinary tokens of any vocabulary in question: control tokens lie elsewhere."""


@dataclass(frozen=True, slots=True)
class Job:
    """One request."""

    prompt: tuple[int, ...]
    answer: int
    """Tokens to generate, exactly."""


def prompt(draw: random.Random, length: int) -> tuple[int, ...]:
    """Token ids that no other prompt begins with."""
    return tuple(draw.randrange(LOWEST_ID, HIGHEST_ID) for _ in range(length))


def _one_stream() -> list[Job]:
    return [Job(prompt(random.Random(1), 128), 128)]


def _mixed_tail() -> list[Job]:
    draw = random.Random(0)
    return [Job(prompt(draw, draw.randint(16, 256)), 200 if i % 8 == 7 else 20) for i in range(32)]


def _uniform() -> list[Job]:
    draw = random.Random(3)
    return [Job(prompt(draw, 128), 64) for _ in range(32)]


def _one_prompt() -> list[Job]:
    return [Job(prompt(random.Random(4), 1024), 1)]


def _warm_up() -> list[Job]:
    """Every shape that the loads have: one row, many rows, a long prompt."""
    draw = random.Random(99)
    return [Job(prompt(draw, 40), 8) for _ in range(31)] + [Job(prompt(draw, 600), 12)]


LOADS: dict[str, Callable[[], list[Job]]] = {
    "W1": _one_stream,
    "W2": _mixed_tail,
    "W3": _uniform,
    "W4": _one_prompt,
    "warm-up": _warm_up,
}
