"""An online predictor of step time, fed by every commit.

    time = fixed + per_prompt_token x prompt tokens + per_row x one-token rows + per_context x context read

Least squares on relative error (each step weighs 1 / time squared), with old steps forgotten slowly, so that a machine
that gets slower is followed and one slow outlier does not matter much. Floating point, but a pure function of the steps
fed to it: a replay predicts the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from chairlift.core.request import Nanoseconds

_SCALES = (1.0, 128.0, 8.0, 4096.0)
"""Typical sizes of the features, to keep the equations well conditioned."""
_SIZE = len(_SCALES)
_NO_LIMIT = 2**31
_MIN_STEPS = 8
"""Steps before a prediction is given: twice the unknowns."""
_FORGET = 0.995
"""Weight of a step after each later one: half after about 140 steps."""
_RIDGE = 1e-6
"""Share of the diagonal added to it: a feature that never varied gets the smallest cost that explains the rest."""


@dataclass(frozen=True, slots=True)
class StepFeatures:
    """What a step costs by."""

    prompt_tokens: int
    """Tokens of rows with prompt tokens, padding included."""
    rows: int
    """Rows of one token, decode and dead."""
    context: int
    """Positions read by attention, summed over the one-token rows."""


@dataclass(frozen=True, slots=True)
class StepCost:
    """The fitted line, in nanoseconds (float): a snapshot."""

    fixed: float
    per_prompt_token: float
    per_row: float
    per_context: float

    def time(self, features: StepFeatures) -> Nanoseconds:
        """Predicted duration of one step, never below zero."""
        cost = self.fixed + self.per_prompt_token * features.prompt_tokens
        cost += self.per_row * features.rows + self.per_context * features.context
        return max(0, round(cost))

    def femtoseconds(self, features: StepFeatures, growth: int, first: int, count: int) -> int:
        """Of `count` steps from the `first`-th of a run on, in which the context grows by `growth` a step: an exact
        sum, whatever the stretches it is asked for in.
        """
        step = _femtoseconds(self.fixed) + _femtoseconds(self.per_prompt_token) * features.prompt_tokens
        step += _femtoseconds(self.per_row) * features.rows
        positions = features.context * count + growth * (count * first + count * (count - 1) // 2)
        return step * count + _femtoseconds(self.per_context) * positions

    def decode_run(self, *, rows: int, context: int, steps: int) -> Nanoseconds:
        """Duration of `steps` steps of so many rows whose summed context is `context` at the first and grows by `rows`
        each.
        """
        grown = rows * steps * (steps - 1) // 2
        each = self.fixed + self.per_row * rows
        return max(0, round(each * steps + self.per_context * (context * steps + grown)))

    def prompt_tokens_within(self, target: Nanoseconds, *, rows: int, context: int) -> int:
        """Most prompt tokens beside these decodes that keep a step within `target`; 0 when the decodes alone exceed
        it.
        """
        left = target - self.time(StepFeatures(0, rows, context))
        if left <= 0:
            return 0
        # A cost next to nothing limits nothing, and dividing by it may be too much for a float.
        return _NO_LIMIT if self.per_prompt_token * _NO_LIMIT <= left else int(left / self.per_prompt_token)


class StepTimePredictor:
    """Feed it with observe(); ask cost() for the line, which is None until it has seen enough steps.

    What cost() says depends on what was observed alone, not on when it was asked.
    """

    def __init__(self) -> None:
        self.steps = 0
        self._moments = [[0.0] * _SIZE for _ in range(_SIZE)]
        self._targets = [0.0] * _SIZE
        self._unfitted: tuple[list[list[float]], list[float]] | None = None
        """Moments and targets as they were when the next fit was due; solving waits until somebody asks."""
        self._cost: StepCost | None = None

    def observe(self, features: StepFeatures, duration: Nanoseconds) -> None:
        """One step took so long. Durations of zero tell nothing and are dropped."""
        if duration <= 0:
            return
        self.steps += 1
        # Dividing the row by the duration makes every target 1, and the squared error relative.
        a, b, c, d = (
            1.0 / duration,
            features.prompt_tokens / (_SCALES[1] * duration),
            features.rows / (_SCALES[2] * duration),
            features.context / (_SCALES[3] * duration),
        )
        row = (a, b, c, d)
        for i, x in enumerate(row):
            line = self._moments[i]
            line[0] = line[0] * _FORGET + x * a
            line[1] = line[1] * _FORGET + x * b
            line[2] = line[2] * _FORGET + x * c
            line[3] = line[3] * _FORGET + x * d
            self._targets[i] = self._targets[i] * _FORGET + x
        if self.steps % _MIN_STEPS == 0:
            self._unfitted = [line.copy() for line in self._moments], self._targets.copy()

    def cost(self) -> StepCost | None:
        """The line as fitted after the last full eight steps, since solving costs more than observing."""
        if self._unfitted is not None:
            self._cost = _fit(*self._unfitted)
            self._unfitted = None
        return self._cost


def _fit(moments: list[list[float]], targets: list[float]) -> StepCost:
    """Least squares with no negative cost: the most negative term is left out and the rest solved again."""
    active = [i for i in range(_SIZE) if moments[i][i] > 0]
    while True:
        solution = _solve(
            [[moments[i][j] * (1 + _RIDGE * (i == j)) for j in active] for i in active],
            [targets[i] for i in active],
        )
        worst = min(range(len(active)), key=solution.__getitem__)
        if solution[worst] >= 0:
            break
        del active[worst]
    by_term = dict(zip(active, solution, strict=True))
    return StepCost(*(by_term.get(i, 0.0) / _SCALES[i] for i in range(_SIZE)))


def _femtoseconds(nanoseconds: float) -> int:
    return round(nanoseconds * 1e6)


def _solve(matrix: list[list[float]], right: Sequence[float]) -> list[float]:
    """Gaussian elimination with partial pivoting on a system of at most four unknowns; a singular direction gets 0."""
    size = len(right)
    rows = [[*line, value] for line, value in zip(matrix, right, strict=True)]
    tiny = 1e-12 * max(abs(value) for line in matrix for value in line)
    for column in range(size):
        pivot = max(range(column, size), key=lambda i: abs(rows[i][column]))
        rows[column], rows[pivot] = rows[pivot], rows[column]
        if abs(rows[column][column]) <= tiny:
            rows[column] = [0.0] * (size + 1)
            rows[column][column] = 1.0
            continue
        for below in range(column + 1, size):
            factor = rows[below][column] / rows[column][column]
            for k in range(column, size + 1):
                rows[below][k] -= factor * rows[column][k]
    solution = [0.0] * size
    for i in range(size - 1, -1, -1):
        rest = sum(rows[i][k] * solution[k] for k in range(i + 1, size))
        solution[i] = (rows[i][size] - rest) / rows[i][i]
    return solution
