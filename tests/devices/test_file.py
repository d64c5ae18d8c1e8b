from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chairlift.core.errors import DeviceModelError
from chairlift.devices.file import load_device_model, parse_device_model, render_device_model, save_device_model
from chairlift.devices.model import HostTerms, Provenance, StepTerms
from chairlift.devices.registry import find_device_model
from tests.devices.helpers import COEFFICIENTS, MEMORY, device_model, step_terms

MINIMAL = """
format = 1
device = "this machine"
model = "smollm2-135m"
[provenance]
kind = "calibrated"
[step]
floor = "28.4ms"
per_token = "2.1ms"
[host]
fixed = "1.2ms"
[valid]
tokens = 512
rows = 32
context = 2048
total_context = 65536
"""


@given(step=step_terms(), host=st.builds(HostTerms, COEFFICIENTS, COEFFICIENTS))
@settings(max_examples=50)
def test_a_device_model_survives_its_file(step: StepTerms, host: HostTerms) -> None:
    """To the femtosecond, tables included."""
    model = device_model(step, host, memory=MEMORY)

    assert parse_device_model(render_device_model(model)) == model


def test_provenance_memory_and_shape_survive_too(tmp_path: Path) -> None:
    """An analytic model through a file on disk; and a calibrated one with versions and errors."""
    analytic = find_device_model("h100-sxm", "llama-3.1-70b", tensor_parallel=4)
    calibrated = Provenance(
        "calibrated", "two cores", "2026-11-29", {"openvino": "2026.4.1"}, {"decode": 0.021}, ("a",)
    )
    measured = device_model(StepTerms(floor=5)).__class__(
        "cpu", "m", 1, calibrated, StepTerms(floor=5), HostTerms(), analytic.valid
    )

    for model in (analytic, measured):
        save_device_model(model, tmp_path / "model.toml")
        assert load_device_model(tmp_path / "model.toml") == model


def test_the_least_that_a_file_needs() -> None:
    """Coefficients that are absent are zero; memory and shape may be absent."""
    model = parse_device_model(MINIMAL)

    assert model.name == "this machine/smollm2-135m"
    assert model.calibrated
    assert model.step == StepTerms(floor=284 * 10**11, per_token=21 * 10**11)
    assert model.memory is None


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("format = 1", "format = 2", "reads version 1"),
        ("per_token", "per_tokn", "step.per_tokn is unknown"),
        ('"28.4ms"', '"28.4"', "step.floor: '28.4' is not a time with a unit"),
        ('"28.4ms"', "28.4", "step.floor is 28.4"),
        ("[valid]", "[vaild]", r"section \[valid\] is missing"),
        ("rows = 32", "rows = 0", "valid.rows is 0; it must be at least 1"),
        ("[host]", '[memory]\ncapacity = "1PB"\n[host]', "memory.capacity: '1PB' is not a size"),
        ("[host]", '[step.tokens_table]\nat = [1]\ntime = ["1ms"]\n[host]', "at least 2"),
    ],
)
def test_a_wrong_file_is_refused_with_the_key(old: str, new: str, message: str) -> None:
    """An unknown version, a misspelt key, a missing unit, a missing section, and impossible values."""
    with pytest.raises(DeviceModelError, match=message):
        parse_device_model(MINIMAL.replace(old, new), "my.toml")


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    """A folder that does not exist."""
    with pytest.raises(DeviceModelError, match="cannot be written"):
        save_device_model(device_model(), tmp_path / "none" / "model.toml")


def test_the_example_of_the_documentation_is_a_device_model() -> None:
    """The page docs/devices.md shows one; it is read as it stands."""
    page = (Path(__file__).parents[2] / "docs" / "devices.md").read_text("utf-8")
    example = page.split("```toml\n")[1].split("```")[0]

    assert parse_device_model(example).name == "this machine/smollm2-135m"
