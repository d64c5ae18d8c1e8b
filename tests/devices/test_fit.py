from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chairlift.core.errors import DeviceModelError
from chairlift.devices.fit import fit_host, fit_step, predict_time, tabulate
from chairlift.devices.model import HostTerms, StepTerms
from chairlift.devices.samples import Sample
from chairlift.devices.shape import StepShape
from tests.devices.helpers import device_model, terms

TRUTH = terms(
    floor="30ms",
    prompt_floor="36ms",
    fixed="12ms",
    per_token="2ms",
    per_context="900ns",
    per_pair="3us",
    per_prompt_position="40us",
    per_sequence="600us",
)
"""A slow processor: the floor ends at 9 tokens for decodes and at 12 for prompts."""

DECODES = [StepShape.decode(rows, context) for rows in (1, 2, 4, 8, 16, 32) for context in (64, 512, 2048)]
PREFILLS = [StepShape.prefill(1, tokens) for tokens in (4, 8, 16, 32, 64, 128, 256, 512)]
PREFILLS += [StepShape.prefill(1, 64, start=start, samples=False) for start in (64, 256, 1024)]
MIXED = [
    StepShape.decode(rows, 256).beside(StepShape.prefill(1, tokens, start=128, samples=False))
    for rows, tokens in ((4, 32), (8, 64), (16, 128))
]
Noise = Callable[[], float]


def measure(truth: StepTerms, noise: Noise = lambda: 1.0, repeats: int = 5) -> list[Sample]:
    """What a device with these coefficients would show."""
    model = device_model(truth)
    return [
        Sample(shape, tuple(round(model.device_time(shape) * noise()) for _ in range(repeats)), term)
        for term, shapes in (("decode", DECODES), ("prefill", PREFILLS), ("mixed", MIXED))
        for shape in shapes
    ]


def test_coefficients_are_found_again_without_noise() -> None:
    """All eight, the places where the floors end included; no error is left."""
    fit = fit_step(measure(TRUTH))

    for name in ("floor", "prompt_floor", "fixed", "per_token", "per_context", "per_pair", "per_prompt_position"):
        assert getattr(fit.step, name) == pytest.approx(getattr(TRUTH, name), rel=1e-3), name
    assert fit.step.per_sequence == pytest.approx(TRUTH.per_sequence, rel=1e-2)
    assert fit.errors["all"].left_out < 0.001
    assert fit.outliers == fit.noisy == ()


@given(st.integers(0, 10**6))
@settings(max_examples=10)
def test_a_noisy_shared_machine_is_met_all_the_same(seed: int) -> None:
    """Three per cent of noise, and every seventh repeat up to three times too slow: medians keep the errors small."""
    random = np.random.default_rng(seed)
    samples = measure(
        TRUTH, lambda: random.normal(1, 0.03) * (random.uniform(1, 3) if random.random() < 1 / 7 else 1), 7
    )

    fit = fit_step(samples)

    exact = [predict_time(fit.step, s.shape) / device_model(TRUTH).device_time(s.shape) - 1 for s in samples]
    assert np.mean(np.abs(exact)) < 0.03
    assert fit.errors["all"].left_out < 0.08


def test_a_sample_far_from_the_others_is_left_out_and_named() -> None:
    """One decode measured while something else ran: the fit is as good as without it, and the report says so."""
    samples = measure(TRUTH)
    disturbed = samples[4]
    samples[4] = Sample(disturbed.shape, tuple(2 * time for time in disturbed.times), "decode", "the disturbed one")

    fit = fit_step(samples)

    (outlier,) = fit.outliers
    assert outlier.startswith("the disturbed one: ")
    assert "left out" in outlier
    assert samples[4] not in fit.kept
    assert fit.errors["all"].left_out < 0.001


def test_at_most_a_tenth_is_left_out() -> None:
    """Where many samples disagree, it is the model that does not fit: that must show in the errors."""
    random = np.random.default_rng(3)
    samples = measure(TRUTH, lambda: 3.0 if random.random() < 0.3 else 1.0, 1)

    fit = fit_step(samples)

    assert len(fit.outliers) <= len(samples) // 10
    assert fit.errors["all"].left_out > 0.1


def test_no_coefficient_is_negative_even_where_the_data_falls() -> None:
    """Prompts that get faster with length are no reason to pay for tokens backwards."""
    falling = [Sample(StepShape.prefill(1, t), (10_000_000 - 1000 * t,), "prefill") for t in (16, 64, 256, 1024)]

    fit = fit_step(falling)

    assert min(fit.step.floor, fit.step.prompt_floor, fit.step.fixed, fit.step.per_token, fit.step.per_pair) >= 0


def test_leave_one_out_tells_of_guesses_that_the_fit_itself_hides() -> None:
    """The largest prefill costs twice what its line says: fitted it is half met, unseen it is missed."""
    samples = [Sample(StepShape.prefill(1, t), (1_000_000 * t,), "prefill") for t in (64, 128, 256, 512)]
    samples.append(Sample(StepShape.prefill(1, 2048), (2_048_000_000 * 2,), "prefill"))

    error = fit_step(samples, fitted=("per_token",)).errors["prefill"]

    assert error.worst > 0.45
    assert error.left_out > error.mape


def test_prompts_computed_whole_cannot_tell_positions_from_tokens() -> None:
    """Then the cost goes to the tokens."""
    whole = [
        s for s in measure(TRUTH) if s.term != "mixed" and s.shape.prompt_context == s.shape.tokens * s.shape.prompts
    ]

    assert fit_step(whole).step.per_prompt_position == 0


def test_a_table_meets_what_no_line_does() -> None:
    """Steps that are cheap up to 32 tokens, dear at 64 and cheap again: the table's points are the medians."""
    steps = {1: 10, 8: 11, 16: 11, 32: 12, 64: 40, 128: 44, 256: 45, 512: 90}
    samples = [
        Sample(StepShape.prefill(1, tokens), (time * 1_000_000,) * 3, "prefill") for tokens, time in steps.items()
    ]
    line = fit_step(samples, fitted=("prompt_floor", "fixed", "per_token"))

    table = tabulate(line, samples)

    assert table.step.tokens_table is not None
    assert dict(zip(table.step.tokens_table.xs, table.step.tokens_table.ys, strict=True)) == {
        tokens: time * 10**12 for tokens, time in steps.items()
    }
    assert table.errors["all"].mape == pytest.approx(0, abs=1e-9)
    assert table.errors["all"].left_out > 0.05, "unseen points are interpolated, and that is what the error says"
    assert line.errors["all"].mape > 0.1


def test_a_table_keeps_the_other_terms() -> None:
    """Attention is taken off before the points are made."""
    samples = measure(TRUTH)
    fit = fit_step(samples)

    table = tabulate(fit, samples)

    assert table.step.per_context == fit.step.per_context
    assert table.step.floor == table.step.per_token == 0


def test_too_little_to_fit_is_refused() -> None:
    """Two samples; a table of two sizes."""
    samples = measure(TRUTH)
    with pytest.raises(DeviceModelError, match="2 samples are too few"):
        fit_step(samples[:2])
    with pytest.raises(DeviceModelError, match="1 different sizes"):
        tabulate(fit_step(samples), samples[:3])


def test_host_time_is_fitted_by_rows() -> None:
    """2 ms and 30 us a row, with a tenth of noise on fifty steps each."""
    random = np.random.default_rng(1)
    samples = [
        (rows, round((2_000_000 + 30_000 * rows) * random.normal(1, 0.1))) for rows in (1, 4, 16, 32) for _ in range(50)
    ]

    host = fit_host(samples)

    assert host.fixed == pytest.approx(2e12, rel=0.05)
    assert host.per_sequence == pytest.approx(30e9, rel=0.15)
    assert fit_host([(1, 0), (8, 0)]).fixed == pytest.approx(10**6)
    with pytest.raises(DeviceModelError, match="host time"):
        fit_host([])


def test_a_prediction_is_what_the_device_model_says() -> None:
    """But for the rounding."""
    for sample in measure(TRUTH):
        assert predict_time(TRUTH, sample.shape) == pytest.approx(
            device_model(TRUTH).device_time(sample.shape), rel=1e-6
        )


def test_the_host_of_nothing_costs_nothing() -> None:
    """HostTerms are zero unless they are given."""
    assert device_model(TRUTH, HostTerms()).host_time(StepShape.decode(8, 10), 100) == 0
