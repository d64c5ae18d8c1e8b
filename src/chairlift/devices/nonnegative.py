"""Least squares without negative coefficients.

A negative cost per token would make some step faster by being larger, and a fit on noisy data finds one readily. This
is the active-set method of C. Lawson and R. Hanson, Solving Least Squares Problems (1974), chapter 23, which ends at
the unique optimum of the constrained problem when the columns are independent.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.float64]
Vector = NDArray[np.float64]


def solve(matrix: Matrix, target: Vector) -> Vector:
    """The x >= 0 with the smallest |matrix x - target|.

    Args:
        matrix: [rows, columns]. Columns may differ in size by any factor: they are scaled inside. One of zeros gets 0.
        target: [rows].

    Returns:
        [columns].
    """
    size = matrix.shape[1]
    norms = np.sqrt((matrix * matrix).sum(axis=0))
    scaled = matrix / np.where(norms > 0, norms, 1.0)
    solution = np.zeros(size)
    used = np.zeros(size, dtype=bool)
    tolerance = 1e-10 * float(np.sqrt(target @ target) + 1e-300)
    # Each round frees one column, and a set of free columns never comes back; more rounds would mean rounding errors.
    for _ in range(3 * size):
        gradient = scaled.T @ (target - scaled @ solution)
        gradient[used] = -np.inf
        best = int(np.argmax(gradient))
        if gradient[best] <= tolerance:
            break
        used[best] = True
        solution = _inside(scaled, target, solution, used)
    return np.asarray(solution / np.where(norms > 0, norms, 1.0), dtype=np.float64)


def _inside(matrix: Matrix, target: Vector, solution: Vector, used: NDArray[np.bool_]) -> Vector:
    """Solve for the free columns; where one would turn negative, go as far as zero, fix it there and solve again."""
    while True:
        free = np.flatnonzero(used)
        wanted = np.zeros_like(solution)
        wanted[free] = np.linalg.lstsq(matrix[:, free], target, rcond=None)[0]
        negative = free[wanted[free] <= 0]
        if not len(negative):
            return wanted
        steps = solution[negative] / (solution[negative] - wanted[negative])
        solution = solution + float(steps.min()) * (wanted - solution)
        used[negative[steps <= steps.min()]] = False
        solution[~used] = 0.0
