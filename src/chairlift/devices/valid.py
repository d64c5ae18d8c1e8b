"""Where a device model holds, and what happens to a step outside: refused, or counted and warned about."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from chairlift.core.errors import ConfigError, OutsideValidRange
from chairlift.devices.shape import StepShape

Outside = Literal["refuse", "warn"]


@dataclass(frozen=True, slots=True)
class ValidRange:
    """The largest step that a model was made for. It holds from one token, row and position on."""

    tokens: int
    """In a step."""
    rows: int
    """In a step."""
    context: int
    """Positions of one sequence."""
    total_context: int
    """Positions read by all one-token rows of a step together."""

    def excess(self, shape: StepShape, steps: int = 1) -> tuple[tuple[str, int, int], ...]:
        """(what, value, limit) of each limit that the step, or the last of `steps` repeats, exceeds."""
        grown = steps - 1
        context = shape.context + shape.growth * grown
        longest = max(shape.longest, shape.longest_decode + grown) if shape.growth else shape.longest
        if (
            shape.tokens <= self.tokens
            and shape.rows <= self.rows
            and longest <= self.context
            and context <= self.total_context
        ):
            return ()
        sizes = (
            ("tokens in a step", shape.tokens, self.tokens),
            ("rows in a step", shape.rows, self.rows),
            ("positions of one sequence", longest, self.context),
            ("positions read by the decodes of a step", context, self.total_context),
        )
        return tuple(size for size in sizes if size[1] > size[2])


class RangeGuard:
    """Checks the steps of one simulation against a valid range."""

    def __init__(self, valid: ValidRange, device: str, outside: Outside = "refuse") -> None:
        """Take the range, the device model's name for messages, and what to do with a step outside."""
        if outside not in get_args(Outside):
            raise ConfigError(f"--outside-range is {outside!r}; it must be one of refuse, warn.")
        self.valid = valid
        self.device = device
        self.outside = outside
        self.steps_outside = 0
        self._worst: dict[str, tuple[int, int]] = {}

    def check(self, shape: StepShape, steps: int = 1) -> None:
        """Look at a step, or at `steps` repeats of it.

        Raises:
            OutsideValidRange: the step lies outside, and such steps are refused.
        """
        excess = self.valid.excess(shape, steps)
        if not excess:
            return
        if self.outside == "refuse":
            what, value, limit = excess[0]
            raise OutsideValidRange(
                f"a step has {value:,} {what}; the model {self.device} holds up to {limit:,}. Lower the load or the "
                "settings to that, calibrate a wider range, or go on with a warning by --outside-range warn."
            )
        # The first repeats of a run may still be inside: how many are outside is counted, not guessed.
        self.steps_outside += steps if self.valid.excess(shape) else self._outside_of(shape, steps)
        for what, value, limit in excess:
            self._worst[what] = (max(value, self._worst.get(what, (0, 0))[0]), limit)

    @property
    def warnings(self) -> tuple[str, ...]:
        """One sentence for each limit that was exceeded: goes into the report of the simulation."""
        return tuple(
            f"{what}: up to {value:,}, where {self.device} holds to {limit:,}; such times are extrapolated."
            for what, (value, limit) in self._worst.items()
        )

    def _outside_of(self, shape: StepShape, steps: int) -> int:
        """How many of the repeats are outside, the first being inside and the last outside: bisects."""
        inside, outside = 0, steps - 1
        while outside - inside > 1:
            middle = (inside + outside) // 2
            inside, outside = (inside, middle) if self.valid.excess(shape.after(middle)) else (middle, outside)
        return steps - outside
