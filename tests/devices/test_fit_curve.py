import numpy as np
import pytest

from chairlift.core.errors import DeviceModelError
from chairlift.devices.curve import Table
from chairlift.devices.fit import fit_step
from chairlift.devices.fit_curve import fit_curve
from chairlift.devices.model import StepTerms
from chairlift.devices.quantities import PER_NANOSECOND
from chairlift.devices.samples import Sample
from chairlift.devices.shape import StepShape
from tests.devices.helpers import device_model

MS = 10**6 * PER_NANOSECOND
TRUTH = StepTerms(
    tokens_table=Table((1, 4, 5, 16, 64, 256), (12 * MS, 14 * MS, 24 * MS, 30 * MS, 80 * MS, 300 * MS)),
    per_context=2 * MS // 1000,
    per_pair=MS // 4000,
    per_prompt_position=MS // 100,
    per_sequence=MS // 2,
)
"""A processor whose kernels change between four rows and five."""


def measured(noise: float = 0.0, repeats: int = 5) -> list[Sample]:
    """Steps of it: decodes over batch and context, prompts over tokens and start, and some of both."""
    draw, model = np.random.default_rng(1), device_model(TRUTH)
    shapes = [
        ("decode", StepShape.decode(rows, context)) for rows in (1, 2, 4, 5, 8, 16, 32) for context in (64, 512, 900)
    ]
    shapes += [("prefill", StepShape.prefill(1, tokens)) for tokens in (4, 5, 8, 16, 32, 64, 128, 256)]
    shapes += [("prefill", StepShape.prefill(n, 32, start=start)) for n in (1, 2, 4) for start in (128, 512)]
    shapes += [
        ("mixed", StepShape.decode(rows, 200).beside(StepShape.prefill(1, tokens)))
        for rows in (2, 8, 30)
        for tokens in (24, 60, 200)
    ]
    return [
        Sample(shape, tuple(round(model.device_time(shape) * draw.lognormal(0, noise)) for _ in range(repeats)), term)
        for term, shape in shapes
    ]


def test_a_curve_with_a_jump_is_found_where_no_line_can_follow() -> None:
    """Steps that it has not seen are met within two per cent; floor and line are four times as far off."""
    samples = measured()
    curve, formula = fit_curve(samples), fit_step(samples)

    assert curve.errors["all"].mape < 0.015
    assert curve.errors["all"].left_out < 0.04
    assert formula.errors["all"].left_out > 2 * curve.errors["all"].left_out
    assert curve.step.per_context == pytest.approx(TRUTH.per_context, rel=0.1)
    assert set(curve.errors) == {"decode", "prefill", "mixed", "all"}


def test_noise_is_no_disaster() -> None:
    """Five per cent of it on each repeat leaves the true times within four on average."""
    samples, exact = measured(0.05), device_model(TRUTH)
    model = device_model(fit_curve(samples).step)
    off = [abs(model.device_time(s.shape) / exact.device_time(s.shape) - 1) for s in samples]

    assert float(np.mean(off)) < 0.04


def test_a_point_with_one_sample_is_held_by_its_neighbours_when_that_is_left_out() -> None:
    """So its left-out error is what the curve around it says, and not the whole time."""
    samples = measured()
    lonely = next(i for i, s in enumerate(samples) if s.shape == StepShape.prefill(1, 256))
    without = [s for i, s in enumerate(samples) if i == lonely or s.shape.tokens < 200]

    assert fit_curve(without).errors["prefill"].worst < 0.5


def test_too_few_samples_are_refused() -> None:
    """With the number."""
    with pytest.raises(DeviceModelError, match="5 samples are too few"):
        fit_curve(measured()[::10])


def test_outliers_found_before_stay_in_the_report() -> None:
    """And samples whose repeats disagree are named."""
    fit = fit_curve(measured(0.4, repeats=8), ("a step: left out.",))

    assert fit.outliers == ("a step: left out.",)
    assert fit.noisy
