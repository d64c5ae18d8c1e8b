import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chairlift.devices.nonnegative import solve


@given(st.integers(0, 10**6), st.integers(3, 12), st.integers(1, 6))
def test_the_solution_is_the_optimum(seed: int, rows: int, columns: int) -> None:
    """The conditions of Karush, Kuhn and Tucker: no negative coefficient, nothing to gain by raising a zero one, and
    nothing to gain either way by a positive one.
    """
    random = np.random.default_rng(seed)
    matrix = random.normal(size=(rows, columns)) * 10.0 ** random.integers(-6, 7, size=columns)
    target = random.normal(size=rows)

    x = solve(matrix, target)

    norms = np.sqrt((matrix * matrix).sum(axis=0))
    gradient = matrix.T @ (target - matrix @ x) / norms
    assert (x >= 0).all()
    assert (gradient <= 1e-7).all()
    assert (np.abs(gradient[x > 0]) <= 1e-7).all()


def test_coefficients_that_are_there_are_found() -> None:
    """Sizes that differ by ten orders of magnitude."""
    random = np.random.default_rng(0)
    matrix = random.uniform(1, 2, size=(20, 3)) * [1.0, 1e5, 1e10]

    assert solve(matrix, matrix @ [3.0, 0.0, 2e-10]) == pytest.approx([3.0, 0.0, 2e-10], abs=1e-9)


def test_a_column_of_zeros_costs_nothing() -> None:
    """A feature that no sample exercises gets coefficient zero."""
    assert solve(np.array([[1.0, 0.0], [2.0, 0.0]]), np.array([1.0, 2.0])) == pytest.approx([1.0, 0.0])
