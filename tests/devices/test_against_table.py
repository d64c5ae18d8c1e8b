from pathlib import Path

import pytest

from chairlift.core.errors import DeviceModelError
from chairlift.devices.against_table import compare, main
from chairlift.devices.table import measured_table, read_table
from tests.devices.helpers import EXCERPT


def test_analytic_models_are_compared_where_the_table_has_their_device_and_model() -> None:
    """Llama 2 70B on A100 and H100, both phases; the power-capped H100 is no built-in device."""
    found = compare(read_table(EXCERPT))

    assert {(c.group.hardware, c.group.tensor_parallel, c.phase) for c in found} == {
        (hardware, parallel, phase)
        for hardware, parallel in (("a100-80gb", 2), ("a100-80gb", 8), ("h100-80gb", 2), ("h100-80gb", 4))
        for phase in ("decode", "prefill")
    }


def test_the_error_is_as_documented() -> None:
    """On two devices, prefill within a fifth and decode a quarter too fast; on eight, decode two thirds: the table's
    software launched every kernel from the host, which no further device makes faster.
    """
    found = {(c.group.hardware, c.group.tensor_parallel, c.phase): c for c in compare(read_table(EXCERPT))}

    assert found["a100-80gb", 2, "prefill"].mape < 0.15
    assert found["h100-80gb", 2, "prefill"].mape < 0.22
    assert -0.3 < found["a100-80gb", 2, "decode"].median < -0.2
    assert -0.3 < found["h100-80gb", 2, "decode"].median < -0.2
    assert -0.72 < found["a100-80gb", 8, "decode"].median < -0.6


def test_with_the_launches_of_the_table_the_decode_error_shrinks() -> None:
    """On two A100, with the time a layer taken from eight; the group that it is taken from is not compared."""
    found = {
        (c.group.hardware, c.group.tensor_parallel, c.phase): c for c in compare(read_table(EXCERPT), launches=True)
    }

    assert found["h100-80gb", 2, "decode"].mape < 0.2
    assert ("h100-80gb", 4, "decode") not in found
    assert ("a100-80gb", 8, "decode") not in found


def test_the_command_prints_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    """One line for each group and phase, and one for all."""
    assert main([str(EXCERPT)]) == 0

    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2 + 8 + 2
    assert lines[0].startswith("| model | hardware | TP | phase |")
    assert lines[-1].startswith("| all | | | prefill |")


def test_the_command_says_what_it_cannot_do(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A file that is not there."""
    assert main([str(tmp_path / "gone.csv")]) == 2

    assert "gone.csv" in capsys.readouterr().err


def test_a_table_of_other_devices_is_refused() -> None:
    """What is built in is named."""
    row = dict.fromkeys(
        ("tensor_parallel", "prompt_size", "batch_size", "token_size", "prompt_time", "token_time"), "1"
    )

    with pytest.raises(DeviceModelError, match="h100-sxm"):
        compare(measured_table([{**row, "model": "m", "hardware": "abacus"}], "t"))
