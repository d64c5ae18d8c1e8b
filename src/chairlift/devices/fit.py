"""From measured steps to a device model's coefficients: least squares on relative error, none negative.

    steps of the same shape are one sample: the median of their repeats
    every sample weighs the same, in relative error
    the maximum of floor and line is found by trying where it bends: each way is a linear problem
    samples far from all others are left out, and named
    errors are leave-one-out: each sample is predicted by a fit that did not see it

Between places where it may bend, the smallest mean relative error decides, since that is what is reported.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from chairlift.core.errors import DeviceModelError
from chairlift.core.request import Nanoseconds
from chairlift.devices.curve import Table
from chairlift.devices.model import HostTerms, StepTerms
from chairlift.devices.nonnegative import solve
from chairlift.devices.quantities import PER_NANOSECOND, femtoseconds, show_time
from chairlift.devices.samples import Sample, TermError, errors_by_term, noisy_samples
from chairlift.devices.shape import StepShape

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]

_OUTLIER_SHARE: Final = 0.1
"""At most this share of the samples is left out."""
_OUTLIER_SPREADS: Final = 6.0
"""A sample is an outlier beyond so many robust standard deviations of its term's residuals ..."""
_OUTLIER_LEAST: Final = 0.25
"""... and beyond this relative error, so that a very good fit has none."""


@dataclass(frozen=True, slots=True)
class Fit:
    """Coefficients and how far to trust them."""

    step: StepTerms
    errors: Mapping[str, TermError]
    """By term, and `all` over all of them."""
    kept: tuple[Sample, ...] = ()
    """The samples that it was fitted to."""
    outliers: tuple[str, ...] = ()
    """One sentence for each sample left out."""
    noisy: tuple[str, ...] = ()
    """One sentence for each sample whose repeats disagree; used all the same, by their median."""

    @property
    def left_out_errors(self) -> dict[str, float]:
        """Term -> leave-one-out MAPE, rounded, as a device model's provenance keeps it."""
        return {term: round(error.left_out, 4) for term, error in self.errors.items()}


_NAMES: Final = (
    "floor",
    "prompt_floor",
    "fixed",
    "per_token",
    "per_context",
    "per_pair",
    "per_prompt_position",
    "per_sequence",
)


@dataclass(frozen=True, slots=True)
class _Problem:
    """Samples as columns, with each sample's row divided by its time."""

    tokens: Vector
    prompts: NDArray[np.bool_]
    times: Vector
    rest: Matrix
    """[samples, 4]: context, pairs, prompt context, logits."""
    terms: tuple[str, ...] = field(default=_NAMES)

    @staticmethod
    def of(samples: Sequence[Sample], fitted: Iterable[str]) -> _Problem:
        shapes = [sample.shape for sample in samples]
        return _Problem(
            np.array([shape.tokens for shape in shapes], dtype=np.float64),
            np.array([shape.prompts > 0 for shape in shapes]),
            np.array([sample.median for sample in samples]),
            np.array([(s.context, s.pairs, s.prompt_context, s.logits) for s in shapes], dtype=np.float64),
            tuple(fitted),
        )

    def without(self, row: int) -> _Problem:
        keep = np.arange(len(self.times)) != row
        return _Problem(self.tokens[keep], self.prompts[keep], self.times[keep], self.rest[keep], self.terms)

    def columns(self, single_bend: float, prompt_bend: float) -> Matrix:
        """[samples, len(_NAMES)]: up to its bend a step costs the floor, beyond it the line."""
        flat = self.tokens <= np.where(self.prompts, prompt_bend, single_bend)
        columns = np.column_stack(
            [
                flat & ~self.prompts,
                flat & self.prompts,
                ~flat,
                np.where(flat, 0.0, self.tokens),
                self.rest,
            ]
        ).astype(np.float64)
        columns[:, [name not in self.terms for name in _NAMES]] = 0.0
        return columns

    def predict(self, x: Vector, tokens: Vector, prompts: NDArray[np.bool_], rest: Matrix) -> Vector:
        """Times of steps by the formula of the device model, the true maximum included."""
        least = np.where(prompts, max(x[0], x[1]), x[0])
        return np.asarray(np.maximum(least, x[2] + x[3] * tokens) + rest @ x[4:], dtype=np.float64)

    def residuals(self, x: Vector) -> Vector:
        """Relative errors of all samples."""
        return np.asarray(self.predict(x, self.tokens, self.prompts, self.rest) / self.times - 1, dtype=np.float64)

    def solve(self, bends: Iterable[tuple[float, float]]) -> tuple[Vector, tuple[float, float]]:
        """The best of the linear problems that these bends give, judged by the formula itself."""
        best: tuple[float, Vector, tuple[float, float]] | None = None
        for bend in bends:
            matrix = self.columns(*bend) / self.times[:, None]
            x = solve(matrix, np.ones(len(self.times)))
            error = float(np.abs(self.residuals(x)).sum())
            if best is None or error < best[0] * (1 - 1e-9):
                best = error, x, bend
        if best is None:
            raise DeviceModelError("nothing was measured: there is no sample to fit.")
        return best[1], best[2]

    def candidates(self) -> list[tuple[float, float]]:
        """Every pair of places where the floor may end, without and with prompt rows; 0: there is no floor."""
        single = _places(self.tokens[~self.prompts])
        prompt = _places(self.tokens[self.prompts])
        return list(product(single, prompt))

    def near(self, bend: tuple[float, float]) -> list[tuple[float, float]]:
        """The candidates beside a bend: leaving one sample out moves it no further."""
        single = _beside(_places(self.tokens[~self.prompts]), bend[0])
        prompt = _beside(_places(self.tokens[self.prompts]), bend[1])
        return list(product(single, prompt))


def fit_step(samples: Sequence[Sample], *, fitted: Iterable[str] | None = None) -> Fit:
    """Fit the coefficients of a step's time.

    Args:
        samples: at least as many as coefficients are to be told apart; a coefficient that no sample exercises gets 0.
        fitted: the coefficients to fit, by their names in StepTerms; others are 0. Default: all that the samples can
            tell apart.

    Raises:
        DeviceModelError: fewer than three samples.
    """
    if len(samples) < 3:
        raise DeviceModelError(f"{len(samples)} samples are too few for a fit; measure at least 3 different steps.")
    names = _told_apart(samples) if fitted is None else tuple(fitted)
    kept, outliers = _without_outliers(list(samples), names)
    problem = _Problem.of(kept, names)
    x, bend = problem.solve(problem.candidates())
    left_out = np.array([_left_out(problem, row, bend) for row in range(len(kept))])
    errors = errors_by_term(kept, np.abs(problem.residuals(x)), left_out)
    return Fit(_terms(x), errors, tuple(kept), outliers, noisy_samples(kept))


def tabulate(fit: Fit, samples: Sequence[Sample]) -> Fit:
    """The same fit with the maximum of floor and line replaced by a table over tokens, interpolated linearly.

    Each point is the median over samples of equal tokens of what the other terms leave of the time. Better where steps
    of some sizes are faster than a line through all (tiles of a matrix product), worse where steps of equal tokens
    differ by what they are; the left-out errors of both tell.

    Args:
        fit: gives the other coefficients, which are kept.
        samples: without the outliers of the fit, if they are to count for nothing.

    Raises:
        DeviceModelError: fewer than three different numbers of tokens.
    """
    others = replace(fit.step, floor=0, prompt_floor=0, fixed=0, per_token=0)
    left = [max(0.0, sample.median - predict_time(others, sample.shape)) for sample in samples]
    points: dict[int, list[tuple[int, float]]] = {}
    for row, (sample, time) in enumerate(zip(samples, left, strict=True)):
        points.setdefault(sample.shape.tokens, []).append((row, time))
    if len(points) < 3:
        raise DeviceModelError(f"samples of {len(points)} different sizes are too few for a table; measure at least 3.")

    def error(row: int, *, without: bool) -> float:
        table = _table({x: [time for at, time in group if not (without and at == row)] for x, group in points.items()})
        sample = samples[row]
        predicted = predict_time(others, sample.shape) + table.at(sample.shape.tokens) / PER_NANOSECOND
        return abs(predicted / sample.median - 1)

    rows = range(len(samples))
    inside = np.array([error(row, without=False) for row in rows])
    left_out = np.array([error(row, without=True) for row in rows])
    table = _table({x: [time for _, time in group] for x, group in points.items()})
    return replace(fit, step=replace(others, tokens_table=table), errors=errors_by_term(samples, inside, left_out))


def fit_host(samples: Sequence[tuple[int, Nanoseconds]]) -> HostTerms:
    """Fit host time = fixed + per_sequence x rows from (rows, host time) of many steps.

    Medians over steps of equal rows, least squares on relative error. Steps without host time count as one nanosecond.

    Raises:
        DeviceModelError: no sample.
    """
    if not samples:
        raise DeviceModelError("no step with its host time was measured.")
    by_rows: dict[int, list[int]] = {}
    for rows, time in samples:
        by_rows.setdefault(rows, []).append(max(1, time))
    rows_of = np.array(list(by_rows), dtype=np.float64)
    times = np.array([statistics.median(group) for group in by_rows.values()])
    matrix = np.column_stack([np.ones(len(times)), rows_of]) / times[:, None]
    fixed, each = solve(matrix, np.ones(len(times)))
    return HostTerms(femtoseconds(fixed * 1e-9), femtoseconds(each * 1e-9))


def predict_time(terms: StepTerms, shape: StepShape) -> float:
    """Nanoseconds by the coefficients, unrounded: for comparing with a measurement. Tables are not looked at."""
    least = max(terms.floor, terms.prompt_floor) if shape.prompts else terms.floor
    total = max(least, terms.fixed + terms.per_token * shape.tokens)
    total += terms.per_context * shape.context + terms.per_pair * shape.pairs
    total += terms.per_prompt_position * shape.prompt_context + terms.per_sequence * shape.logits
    return total / PER_NANOSECOND


def _told_apart(samples: Sequence[Sample]) -> tuple[str, ...]:
    """Coefficients whose features differ between the samples: prompts computed in one piece read as many positions as
    they have tokens, and then only per_token can be told.
    """
    shapes = [sample.shape for sample in samples]
    whole = all(s.prompt_context == s.tokens - (s.rows - s.prompts) for s in shapes)
    return tuple(name for name in _NAMES if not (whole and name == "per_prompt_position"))


def _table(points: Mapping[int, Sequence[float]]) -> Table:
    """Medians in order of position; positions without a value are left out."""
    found = sorted((x, femtoseconds(statistics.median(times) * 1e-9)) for x, times in points.items() if times)
    return Table(tuple(x for x, _ in found), tuple(y for _, y in found))


def _without_outliers(samples: list[Sample], fitted: tuple[str, ...]) -> tuple[list[Sample], tuple[str, ...]]:
    """Leave out what is far off, the worst first, fitting anew each time."""
    named: list[str] = []
    allowed = int(_OUTLIER_SHARE * len(samples))
    while len(named) < allowed:
        problem = _Problem.of(samples, fitted)
        x, _ = problem.solve(problem.candidates())
        residuals = problem.residuals(x)
        terms = np.array([sample.term for sample in samples])
        typical = {term: float(np.median(np.abs(residuals[terms == term]))) for term in set(terms.tolist())}
        limits = np.array([max(_OUTLIER_LEAST, _OUTLIER_SPREADS * 1.4826 * typical[term]) for term in terms.tolist()])
        worst = int(np.argmax(np.abs(residuals) / limits))
        if abs(residuals[worst]) <= limits[worst]:
            break
        sample = samples.pop(worst)
        expected = sample.median * (1 + float(residuals[worst]))
        named.append(
            f"{sample.name}: {show_time(sample.median)} measured, about {show_time(expected)} expected from the "
            "others; left out."
        )
    return samples, tuple(named)


def _left_out(problem: _Problem, row: int, bend: tuple[float, float]) -> float:
    """Absolute relative error of one sample by a fit of the others."""
    rest = problem.without(row)
    x, _ = rest.solve(rest.near(bend))
    at = slice(row, row + 1)
    predicted = problem.predict(x, problem.tokens[at], problem.prompts[at], problem.rest[at])
    return abs(float(predicted[0]) / float(problem.times[row]) - 1)


def _terms(x: Vector) -> StepTerms:
    values: dict[str, Any] = {name: femtoseconds(float(v) * 1e-9) for name, v in zip(_NAMES, x, strict=True)}
    return StepTerms(**values)


def _places(tokens: Vector) -> list[float]:
    """Where a floor may end: nowhere, or at any number of tokens that occurs."""
    return [0.0, *(float(place) for place in np.unique(tokens))]


def _beside(places: list[float], place: float) -> list[float]:
    at = min(range(len(places)), key=lambda i: abs(places[i] - place))
    return places[max(0, at - 1) : at + 2]
