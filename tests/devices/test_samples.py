import numpy as np
import pytest

from chairlift.core.errors import DeviceModelError
from chairlift.devices.samples import Sample, errors_by_term, noisy_samples
from chairlift.devices.shape import StepShape

DECODE = StepShape.decode(1, 10)


def test_repeats_count_by_their_median() -> None:
    """One hiccup among five repeats changes nothing."""
    assert Sample(DECODE, (10, 11, 12, 13, 900), "decode").median == 12


def test_repeats_that_disagree_are_named() -> None:
    """By the middle half of them: one hiccup is no disagreement."""
    steady = Sample(DECODE, (100, 101, 102, 103, 104, 105, 900), "decode", "steady")
    noisy = Sample(DECODE, (50, 60, 100, 110, 150, 160, 170), "decode", "noisy")

    assert [text.split(":")[0] for text in noisy_samples([steady, noisy])] == ["noisy"]


def test_errors_are_told_by_term_and_together() -> None:
    """Means and the worst."""
    samples = [Sample(DECODE, (1,), term) for term in ("decode", "decode", "prefill")]

    errors = errors_by_term(samples, np.array([0.01, 0.03, 0.2]), np.array([0.02, 0.04, 0.3]))

    assert list(errors) == ["decode", "prefill", "all"]
    assert errors["decode"].samples == 2
    assert errors["decode"].mape == pytest.approx(0.02)
    assert errors["decode"].left_out == pytest.approx(0.03)
    assert errors["all"].worst == pytest.approx(0.3)


@pytest.mark.parametrize("times", [(), (0,), (5, -1)])
def test_a_sample_without_a_positive_time_is_refused(times: tuple[int, ...]) -> None:
    """The step is named."""
    with pytest.raises(DeviceModelError, match="1 decodes over 10 positions"):
        Sample(DECODE, times, "decode")
