"""A fit whose matrix products are a curve over tokens instead of a floor and a line, found together with the rest.

    time = curve(tokens) + per_context x context + per_pair x pairs + per_prompt_position x prompt context
         + per_sequence x logits

The curve is straight between its points, so its values there are coefficients like the others: one linear problem, by
least squares on relative error, none negative. On a processor a step of five rows can take twice one of four, which no
line follows. Where a point hangs on few samples, its neighbours hold it: each point's distance from the line between
the two beside it counts as a small error of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np

from chairlift.core.errors import DeviceModelError
from chairlift.devices.curve import Table
from chairlift.devices.fit import Fit, Matrix, Vector
from chairlift.devices.model import StepTerms
from chairlift.devices.nonnegative import solve
from chairlift.devices.quantities import femtoseconds
from chairlift.devices.samples import Sample, errors_by_term, noisy_samples

_CLOSEST: Final = 1.15
"""A point is at least so many times as far as the one before it."""
SHARP: Final = 0.1
"""Follows jumps from one size to the next, and noise."""
SMOOTH: Final = 1.0
"""Follows neither."""
_REST: Final = ("per_context", "per_pair", "per_prompt_position", "per_sequence")


def fit_curve(samples: Sequence[Sample], outliers: tuple[str, ...] = (), *, smooth: float = SHARP) -> Fit:
    """Fit a curve over tokens, and what attention and sampling take beside it.

    Points are put where steps of one kind were measured (decodes or prompts alone): steps with both are between them,
    and tell how well the curve serves.

    Args:
        samples: without outliers.
        outliers: what was left out before, for the fit's report.
        smooth: what a point's relative distance from its neighbours' line weighs, against the same relative error of a
            sample.

    Raises:
        DeviceModelError: too few samples for the points.
    """
    points = _points(samples)
    matrix = _columns(samples, points)
    if len(points) < 2 or len(samples) < len(points) + len(_REST):
        raise DeviceModelError(
            f"{len(samples)} samples are too few for a curve of {len(points)} points; measure more different steps."
        )
    times = np.array([sample.median for sample in samples])
    bends = smooth * _bends(samples, points)
    x = _solve(matrix, times, bends)
    rows = np.arange(len(samples))
    left_out = np.array([matrix[row] @ _solve(matrix[rows != row], times[rows != row], bends) for row in rows])
    errors = errors_by_term(samples, np.abs(matrix @ x / times - 1), np.abs(left_out / times - 1))
    curve, rest = x[: len(points)], x[len(points) :]
    others: dict[str, Any] = {name: _fs(value) for name, value in zip(_REST, rest, strict=True)}
    step = replace(StepTerms(**others), tokens_table=Table(tuple(points), tuple(map(_fs, curve))))
    return Fit(step, errors, tuple(samples), outliers, noisy_samples(samples))


def _points(samples: Sequence[Sample]) -> list[int]:
    alone = sorted({s.shape.tokens for s in samples if s.shape.prompts in (0, s.shape.rows)})
    points: list[int] = []
    for tokens in alone:
        if not points or tokens >= points[-1] * _CLOSEST:
            points.append(tokens)
        elif tokens == alone[-1]:
            points[-1] = tokens
    return points


def _columns(samples: Sequence[Sample], points: Sequence[int]) -> Matrix:
    """[samples, points + 4]: each sample's weights on the two points around it, and what else it costs by.

    Below the first point its value holds; beyond the last the last line goes on, as in Table.
    """
    rows = []
    for sample in samples:
        shape = sample.shape
        weights = [0.0] * len(points)
        tokens = max(shape.tokens, points[0])
        at = min(int(np.searchsorted(points, tokens, side="right")), len(points) - 1)
        share = (tokens - points[at - 1]) / (points[at] - points[at - 1]) if len(points) > 1 else 0.0
        weights[at - 1], weights[at] = 1 - share, share
        rows.append([*weights, shape.context, shape.pairs, shape.prompt_context, shape.logits])
    return np.array(rows, dtype=np.float64)


def _bends(samples: Sequence[Sample], points: Sequence[int]) -> Matrix:
    """[points - 2, points + 4]: each inner point's distance from the line between its neighbours, over its time."""
    rows = []
    for i in range(1, len(points) - 1):
        typical = np.median([sample.median for sample in samples if sample.shape.tokens == points[i]])
        share = (points[i] - points[i - 1]) / (points[i + 1] - points[i - 1])
        row = [0.0] * (len(points) + len(_REST))
        row[i - 1], row[i], row[i + 1] = share - 1, 1.0, -share
        rows.append([value / typical for value in row])
    return np.array(rows, dtype=np.float64).reshape(-1, len(points) + len(_REST))


def _solve(matrix: Matrix, times: Vector, smooth: Matrix) -> Vector:
    left = np.vstack([matrix / times[:, None], smooth])
    return solve(left, np.concatenate([np.ones(len(times)), np.zeros(len(smooth))]))


def _fs(nanoseconds: float) -> int:
    return femtoseconds(float(nanoseconds) * 1e-9)
