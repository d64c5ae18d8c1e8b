from pathlib import Path

import pytest

from chairlift.core.errors import DeviceModelError
from chairlift.devices.file import parse_device_model, render_device_model
from chairlift.devices.from_table import GroupFit, fit_group, main
from chairlift.devices.shape import StepShape
from chairlift.devices.table import MeasuredGroup, MeasuredTable, read_table
from chairlift.devices.valid import ValidRange
from tests.devices.helpers import EXCERPT

GROUPS = (("a100-80gb", 2), ("h100-80gb", 2), ("h100-80gb", 4), ("a100-80gb", 8))


@pytest.fixture(scope="module")
def table() -> MeasuredTable:
    """The excerpt of splitwise-sim's table."""
    return read_table(EXCERPT)


@pytest.fixture(scope="module")
def fits(table: MeasuredTable) -> dict[tuple[str, int], GroupFit]:
    """Its measured groups, fitted once."""
    return {key: fit_group(table.group("llama2-70b", *key)) for key in GROUPS}


@pytest.mark.parametrize(
    ("group", "most"),
    [(("a100-80gb", 2), 0.04), (("h100-80gb", 2), 0.02), (("h100-80gb", 4), 0.03), (("a100-80gb", 8), 0.03)],
)
def test_decode_is_a_line_over_the_batch(
    fits: dict[tuple[str, int], GroupFit], group: tuple[str, int], most: float
) -> None:
    """The line a + b x batch meets the published decode times within 2 to 4 per cent."""
    fit = fits[group].decode

    assert fit.errors["decode"].mape < most
    assert fit.step.floor > 0
    assert fit.step.per_sequence > 0


@pytest.mark.parametrize(
    ("group", "most"),
    [(("a100-80gb", 2), 0.06), (("h100-80gb", 2), 0.04), (("h100-80gb", 4), 0.06), (("a100-80gb", 8), 0.14)],
)
def test_prefill_is_a_floor_and_a_slope(
    fits: dict[tuple[str, int], GroupFit], group: tuple[str, int], most: float
) -> None:
    """max(floor, slope x tokens) within 4 to 6 per cent, 14 where time grows faster than tokens."""
    fit = fits[group].prefill

    assert fit.errors["prefill"].mape < most
    assert fit.step.prompt_floor > 0
    assert fit.step.fixed == 0


@pytest.mark.parametrize("group", GROUPS)
def test_both_phases_together_are_met_by_the_better_of_formula_and_table(
    fits: dict[tuple[str, int], GroupFit], group: tuple[str, int]
) -> None:
    """Within 8 per cent of steps it did not see; the decode alone within 4."""
    better = fits[group].better

    assert better.errors["all"].left_out < 0.08
    assert better.errors["decode"].left_out < 0.04
    assert better.errors["all"].left_out == min(
        fits[group].formula.errors["all"].left_out, fits[group].tabulated.errors["all"].left_out
    )


def test_a_group_becomes_a_device_model_with_its_range_and_its_errors(fits: dict[tuple[str, int], GroupFit]) -> None:
    """Range and findings from the rows that were used; the file holds all of it."""
    fit = fits["a100-80gb", 2]

    model = fit.model(source="perf_model.csv of splitwise-sim, MIT", date="2026-11-29")

    assert model.valid == ValidRange(tokens=16_384, rows=32, context=8192 + 64, total_context=32 * (512 + 64))
    assert model.provenance.errors == fit.better.left_out_errors
    assert any("batch 64" in note for note in model.provenance.notes)
    assert model.calibrated
    assert model.memory is None
    assert parse_device_model(render_device_model(model)) == model
    assert model.time(StepShape.decode(1, 576)) == pytest.approx(54.9e6, rel=0.1)


def test_too_few_experiments_are_refused(table: MeasuredTable) -> None:
    """Two of each phase."""
    group = table.group("llama2-70b", "h100-80gb", 4)
    small = MeasuredGroup(group.group, dict(list(group.times.items())[:2]), ())

    with pytest.raises(DeviceModelError, match="2 decode and 2 prefill steps are too few"):
        fit_group(small)


def test_the_command_prints_findings_and_errors(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What is wrong with the table first, then one line for each group; a file that is not there is named."""
    assert main([str(EXCERPT)]) == 0

    out = capsys.readouterr().out
    assert "3 rows repeat another one" in out
    assert out.count("| llama2-70b on ") == 5
    assert main([str(tmp_path / "gone.csv")]) == 2
    assert "gone.csv" in capsys.readouterr().err
