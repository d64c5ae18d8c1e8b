"""The most that a device can do: what saturation is measured against."""

from __future__ import annotations

from chairlift.devices.model import DeviceModel
from chairlift.devices.shape import StepShape


def most_tokens_per_second(model: DeviceModel) -> float:
    """Tokens a second of the best steps that the model holds for, one after the other.

    Those are steps of one prompt from its beginning, which read little and compute much. Sizes that are powers of two
    and the largest valid one are tried, host included. No load can keep it up: answers have to be decoded.
    """
    largest = min(model.valid.tokens, model.valid.context)
    sizes = {min(1 << power, largest) for power in range(largest.bit_length() + 1)}
    return max(tokens / model.time(_prompt(tokens)) for tokens in sizes) * 1e9


def _prompt(tokens: int) -> StepShape:
    return StepShape(
        tokens=tokens,
        rows=1,
        logits=1,
        pairs=tokens * (tokens + 1) // 2,
        prompt_context=tokens,
        prompts=1,
        longest=tokens,
    )
