"""How many sequences pay: throughput against concurrency on a device model, and where it bends.

Each of n sequences gets a token in a decode step; for every o tokens of answer one prompt of p tokens is computed:

    tokens/s = n / (t_decode(n) + n / o x t_prefill(p))

Every step reads all weights whatever the batch, so the first sequences are nearly free; later ones pay for their own
context and arithmetic, and the curve bends.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Literal

from chairlift.advisor.memory.lengths import Lengths
from chairlift.core.request import Nanoseconds
from chairlift.devices.model import DeviceModel
from chairlift.devices.shape import StepShape

NEARLY_ALL: Final = 0.9
"""Share of the throughput at the pool's limit that the useful number reaches."""
_STILL_RISING: Final = 1.1
"""Twice as many sequences giving more than this means that memory is what holds throughput back."""

Binding = Literal["memory", "bandwidth", "compute", "not known"]


@dataclass(frozen=True, slots=True)
class Point:
    """One concurrency."""

    sequences: int
    tokens_per_second: float
    """Output tokens, of all together."""
    between_tokens: Nanoseconds
    """ns: a decode step without prompt tokens."""


@dataclass(frozen=True, slots=True)
class Usefulness:
    """The curve up to what fits."""

    fits: int
    useful: int
    """The fewest sequences that give NEARLY_ALL of the throughput of all that fit."""
    points: tuple[Point, ...]
    """At powers of two, at `useful` and at `fits`."""
    gain_of_twice: float | None
    """Throughput of twice as many as fit over that of those that fit, if there were memory for them. None: so many are
    outside the device model's range."""
    binding: Binding
    """What holds throughput back where the pool is full: memory (more sequences would give more than a tenth more),
    or else what each further sequence costs most: bandwidth (its keys and values) or compute. Not known where the
    device model ends below twice that."""

    def at(self, sequences: int) -> Point:
        """The point of a concurrency that is in `points`."""
        return next(point for point in self.points if point.sequences == sequences)

    def to_json(self) -> dict[str, Any]:
        """Plain values; times in seconds."""
        return {
            "fits": self.fits,
            "useful": self.useful,
            "gain_of_twice": self.gain_of_twice,
            "binding": self.binding,
            "points": [
                {
                    "sequences": one.sequences,
                    "tokens_per_second": one.tokens_per_second,
                    "between_tokens_s": one.between_tokens / 1e9,
                }
                for one in self.points
            ],
        }


def usefulness(model: DeviceModel, lengths: Lengths, fits: int) -> Usefulness:
    """Walk up the curve.

    Args:
        model: the device; its valid range limits what is looked at.
        lengths: of the load.
        fits: sequences that the pool holds, at least 1.
    """
    fits = max(1, min(fits, model.valid.rows))
    best = point(model, lengths, fits).tokens_per_second
    low, high = 1, fits
    while low < high:  # throughput never falls with n on these models, so bisection finds the first that is enough
        middle = (low + high) // 2
        if point(model, lengths, middle).tokens_per_second >= NEARLY_ALL * best:
            high = middle
        else:
            low = middle + 1
    shown = {1 << i for i in range(fits.bit_length()) if 1 << i <= fits} | {low, fits}
    twice = point(model, lengths, 2 * fits).tokens_per_second / best if 2 * fits <= model.valid.rows else None
    return Usefulness(
        fits=fits,
        useful=low,
        points=tuple(point(model, lengths, n) for n in sorted(shown)),
        gain_of_twice=twice,
        binding=_binding(model, lengths, fits, twice),
    )


def point(model: DeviceModel, lengths: Lengths, sequences: int) -> Point:
    """Throughput and time between tokens of so many sequences."""
    step = model.time(StepShape.decode(sequences, lengths.context))
    prompt = max(1, round(lengths.prompt))
    prefill = sequences / lengths.output * model.time(StepShape.prefill(1, prompt))
    return Point(sequences, sequences * 1e9 / (step + prefill), step)


def _binding(model: DeviceModel, lengths: Lengths, fits: int, twice: float | None) -> Binding:
    if twice is None:
        return "not known"
    return "memory" if twice > _STILL_RISING else _dearest(model, lengths, fits)


def _dearest(model: DeviceModel, lengths: Lengths, sequences: int) -> Binding:
    """What one more sequence adds most to: reading its context, or arithmetic on its prompt and tokens."""
    shape, more = StepShape.decode(sequences, lengths.context), StepShape.decode(sequences + 1, lengths.context)
    before, after = model.parts(shape), model.parts(more)
    reading = after["attention (decode)"] - before["attention (decode)"]
    whole = model.time(more) - model.time(shape)
    prefill = model.time(StepShape.prefill(1, max(1, round(lengths.prompt)))) / lengths.output
    return "bandwidth" if reading > whole - reading + prefill else "compute"
