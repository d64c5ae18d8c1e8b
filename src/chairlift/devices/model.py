"""A device model: how long a step takes, exactly, in integers.

    device = max(floor, fixed + per_token x tokens)    matrix products; prompt_floor when prompt rows are in it
           + per_context x context                     attention of one-token rows: reads keys and values
           + per_pair x pairs + per_prompt_position x prompt_context    attention of prompt rows
           + per_sequence x logits                     output head and sampling
           + link_fixed + link_per_token x tokens      communication between tensor-parallel devices
    host   = host_fixed + host_per_sequence x rows

A step's time does not depend on the step before it, but for `settling`, which whoever makes the steps adds.

The maximum may be replaced by a table over tokens, and the attention of one-token rows by a table over context. Both
times are rounded down to nanoseconds in every step, and the time of n repeats of which only lengths grow is the sum of
those roundings, found without stepping.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from chairlift.core.errors import ContractError, DeviceModelError
from chairlift.core.request import Nanoseconds
from chairlift.core.work import ModelShape
from chairlift.devices.curve import Curve, Line, Piece, Table, rounded_sum
from chairlift.devices.memory import MemoryModel
from chairlift.devices.quantities import PER_NANOSECOND, Femtoseconds
from chairlift.devices.shape import StepShape
from chairlift.devices.valid import ValidRange


@dataclass(frozen=True, slots=True)
class StepTerms:
    """Coefficients of a step's time on the device, femtoseconds each, none negative."""

    floor: Femtoseconds = 0
    """The least that the matrix products take: every weight is read once, whatever the batch."""
    prompt_floor: Femtoseconds = 0
    """The same for a step with prompt rows, where that takes more (no captured graph, other kernels). The larger of the
    two counts."""
    fixed: Femtoseconds = 0
    """Beside the tokens' own time when they exceed the floor."""
    per_token: Femtoseconds = 0
    tokens_table: Table | None = None
    """Femtoseconds over tokens in the step; given, it stands for the maximum of floor and line."""
    per_context: Femtoseconds = 0
    """Each position that a one-token row reads."""
    context_table: Table | None = None
    """Femtoseconds over the summed context of one-token rows; given, it stands for per_context."""
    per_pair: Femtoseconds = 0
    """Each (prompt token, position it looks at)."""
    per_prompt_position: Femtoseconds = 0
    """Each position whose keys and values a prompt row reads, once a row and step."""
    per_sequence: Femtoseconds = 0
    """Each row whose logits are computed."""
    settling: Femtoseconds = 0
    """Beside all that, the first step of decodes alone after one with prompts or with another number of rows: caches
    and kernels are still another's. A simulated device adds it, since it knows the step before."""
    link_fixed: Femtoseconds = 0
    """Communication of a step, whatever its size: latency of all collectives."""
    link_per_token: Femtoseconds = 0

    def __post_init__(self) -> None:
        """Raises DeviceModelError on a negative coefficient."""
        _refuse_negative(self, self.__slots__)


@dataclass(frozen=True, slots=True)
class HostTerms:
    """Coefficients of the time between steps in which the device waits for the host: scheduling, sampling's results,
    sending.
    """

    fixed: Femtoseconds = 0
    per_sequence: Femtoseconds = 0
    """Each row of the step."""

    def __post_init__(self) -> None:
        """Raises DeviceModelError on a negative coefficient."""
        _refuse_negative(self, self.__slots__)


@dataclass(frozen=True, slots=True)
class Provenance:
    """Where a model's figures come from."""

    kind: str
    """`calibrated` (measured on the machine named), `fitted to a table`, or `analytic, not calibrated`."""
    machine: str = ""
    date: str = ""
    """ISO 8601."""
    versions: Mapping[str, str] = field(default_factory=dict)
    errors: Mapping[str, float] = field(default_factory=dict)
    """Term -> leave-one-out MAPE, as a share. Empty when nothing was measured."""
    notes: tuple[str, ...] = ()
    """Sources, assumptions, outliers left out: one sentence each."""


@dataclass(frozen=True, slots=True)
class DeviceModel:
    """One model on one device (or on `tensor_parallel` of them that work as one)."""

    device: str
    model: str
    tensor_parallel: int
    provenance: Provenance
    step: StepTerms
    host: HostTerms
    valid: ValidRange
    memory: MemoryModel | None = None
    """None when nothing is known of it: then the number of KV blocks must be given."""
    shape: ModelShape | None = None
    """For counting operations and bytes; of the whole model, not of one tensor-parallel part."""

    @property
    def name(self) -> str:
        """`h100-sxm/llama-3.1-8b`, with `/tp2` where two devices share the model."""
        parallel = f"/tp{self.tensor_parallel}" if self.tensor_parallel > 1 else ""
        return f"{self.device}/{self.model}{parallel}"

    @property
    def calibrated(self) -> bool:
        """Whether the figures were measured rather than computed from data sheets."""
        return not self.provenance.kind.startswith("analytic")

    def device_time(self, shape: StepShape, steps: int = 1) -> Nanoseconds:
        """What the device takes for a step, or for `steps` repeats of it in which only lengths grow.

        Equal to the sum of device_time(shape.after(k)) for k < steps, in O(log) operations per point of a table.

        Raises:
            ContractError: steps > 1 of a shape with prompt rows, which cannot be repeated.
        """
        constant = self._constant(shape)
        curve = self._context_curve()
        if steps == 1:
            return (constant + curve.at(shape.context)) // PER_NANOSECOND
        if shape.prompts and steps > 1:
            raise ContractError(f"{shape.describe()}: a step with prompt rows cannot be repeated {steps} times.")
        return rounded_sum(curve.pieces(shape.context, shape.growth, steps), constant, PER_NANOSECOND)

    def repeats(self, shape: StepShape, steps: int) -> Iterator[Piece]:
        """The device's time in each of `steps` repeats, in nanoseconds, as pieces: (start + k x step) // divisor."""
        constant = self._constant(shape)
        for piece in self._context_curve().pieces(shape.context, shape.growth, steps):
            start = constant * piece.divisor + piece.start
            yield Piece(piece.steps, start, piece.step, PER_NANOSECOND * piece.divisor)

    def host_time(self, shape: StepShape, steps: int = 1) -> Nanoseconds:
        """What the device waits for the host, for one step or for `steps` repeats."""
        return (self.host.fixed + self.host.per_sequence * shape.rows) // PER_NANOSECOND * steps

    def time(self, shape: StepShape, steps: int = 1) -> Nanoseconds:
        """Device and host."""
        return self.device_time(shape, steps) + self.host_time(shape, steps)

    def steps_within(self, shape: StepShape, budget: Nanoseconds, most: int) -> int:
        """The largest n <= most with time(shape, n) <= budget: 0 when not even one step fits.

        Guessed as if the steps grew evenly, which is nearly always right to one step; then looked for around the guess.
        """
        constant, curve, host = self._constant(shape), self._context_curve(), self.host_time(shape)
        context, growth = shape.context, shape.growth

        def time(steps: int) -> Nanoseconds:
            """As self.time(shape, steps)."""
            return rounded_sum(curve.pieces(context, growth, steps), constant, PER_NANOSECOND) + host * steps

        first = (constant + curve.at(context)) // PER_NANOSECOND + host
        if most < 1 or first > budget:
            return 0
        last = (constant + curve.at(context + growth * most)) // PER_NANOSECOND + host
        guess, stride = _guess_steps(first, (last - first) / most, budget, most), 1
        low, high = 1, most + 1  # low fits; high does not, or is not allowed
        while high - low > 1:
            at = min(max(guess, low + 1), high - 1)
            if time(at) <= budget:
                low, guess = at, at + stride
            else:
                high, guess = at, at - stride
            stride *= 2
        return low

    def ends(self, shape: StepShape, steps: int) -> Iterator[Nanoseconds]:
        """When each of `steps` repeats ends, counted from the start of the first; the last is time(shape, steps)."""
        constant, curve, host = self._constant(shape), self._context_curve(), self.host_time(shape)
        now = 0
        context = shape.context
        for _ in range(steps):
            now += (constant + curve.at(context)) // PER_NANOSECOND + host
            context += shape.growth
            yield now

    def parts(self, shape: StepShape) -> dict[str, Nanoseconds]:
        """One step's time by term, for people: rounded each, so that the sum may be a few nanoseconds off."""
        terms = self.step
        return {
            "matrix products": self._products(shape) // PER_NANOSECOND,
            "attention (decode)": self._context_curve().at(shape.context) // PER_NANOSECOND,
            "attention (prefill)": (terms.per_pair * shape.pairs + terms.per_prompt_position * shape.prompt_context)
            // PER_NANOSECOND,
            "head and sampling": terms.per_sequence * shape.logits // PER_NANOSECOND,
            "communication": self._link(shape) // PER_NANOSECOND,
            "host": self.host_time(shape),
        }

    def _context_curve(self) -> Curve:
        return self.step.context_table or Line(self.step.per_context)

    def _products(self, shape: StepShape) -> Femtoseconds:
        terms = self.step
        if terms.tokens_table is not None:
            return terms.tokens_table.at(shape.tokens)
        least = max(terms.floor, terms.prompt_floor) if shape.prompts else terms.floor
        return max(least, terms.fixed + terms.per_token * shape.tokens)

    def _link(self, shape: StepShape) -> Femtoseconds:
        return self.step.link_fixed + self.step.link_per_token * shape.tokens

    def _constant(self, shape: StepShape) -> Femtoseconds:
        """All that does not change when only lengths grow."""
        terms = self.step
        return (
            self._products(shape)
            + self._link(shape)
            + terms.per_pair * shape.pairs
            + terms.per_prompt_position * shape.prompt_context
            + terms.per_sequence * shape.logits
        )


def _guess_steps(first: Nanoseconds, growth: float, budget: Nanoseconds, most: int) -> int:
    """Solve n x first + growth x n (n - 1) / 2 = budget, with the mean growth over `most` steps."""
    linear = first - growth / 2
    root = linear * linear + 2 * growth * budget
    return int(2 * budget / (linear + math.sqrt(root))) if root > 0 and linear > 0 else most


def _refuse_negative(terms: object, names: tuple[str, ...]) -> None:
    for name in names:
        value = getattr(terms, name)
        if isinstance(value, int) and value < 0:
            raise DeviceModelError(f"the coefficient {name} is {value} fs; none may be negative.")
