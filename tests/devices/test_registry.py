import json
import subprocess
import sys
from pathlib import Path

import pytest

from chairlift.core.errors import DeviceModelError
from chairlift.devices.file import save_device_model
from chairlift.devices.registry import device_names, find_config, find_device_model, find_sheet, model_names
from tests.devices.helpers import device_model


def test_every_built_in_pair_makes_a_model() -> None:
    """Each device with each model, in 16 bits on one device, whether or not it fits."""
    for device in device_names():
        for model in model_names():
            made = find_device_model(device, model)
            assert made.name == f"{device}/{model}"
            assert min(made.step.floor, made.step.per_token, made.step.per_context, made.step.per_pair) > 0


def test_the_promised_devices_and_models_are_built_in() -> None:
    """The list of the documentation."""
    assert set(device_names()) == {"a100-80gb-sxm", "h100-sxm", "h200-sxm", "l4", "l40s", "mi300x", "rtx-4090"}
    promised = {"llama-3.1-8b", "llama-3.1-70b", "mistral-7b", "smollm2-135m"}
    promised |= {f"qwen2.5-{size}" for size in ("7b", "14b", "32b")} | {
        f"qwen3-{size}" for size in ("8b", "14b", "32b")
    }
    assert promised <= set(model_names())


def test_one_name_can_hold_all_parts() -> None:
    """DEVICE/MODEL and DEVICE/MODEL/tp2, by other names too."""
    assert find_device_model("h100-sxm/llama-3.1-70b/tp2") == find_device_model(
        "H100", "Llama3.1-70b", tensor_parallel=2
    )
    assert find_device_model("l4/qwen3-8b").tensor_parallel == 1


def test_a_device_model_is_found_by_its_file(tmp_path: Path) -> None:
    """It needs no model beside it, and refuses one that it was not made for."""
    path = tmp_path / "mine.toml"
    save_device_model(device_model(), path)

    assert find_device_model(str(path)) == find_device_model(str(path), "model") == device_model()
    with pytest.raises(DeviceModelError, match="made for the model model, not for qwen3-8b"):
        find_device_model(str(path), "qwen3-8b")
    with pytest.raises(DeviceModelError, match="made for 1 devices"):
        find_device_model(str(path), tensor_parallel=2)


def test_a_sheet_and_a_config_are_found_by_their_paths(tmp_path: Path) -> None:
    """A person's own device and model."""
    text = "\n".join(
        f"[figure.{name}]\nvalue = {figure.value!r}\nsource = 'mine'"
        for name, figure in find_sheet("l4").figures.items()
    )
    (tmp_path / "mine.toml").write_text(f"name = 'mine'\ntitle = 'Mine'\n{text}\n", "utf-8")
    config = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 100}
    (tmp_path / "config.json").write_text(json.dumps(config), "utf-8")

    made = find_device_model(str(tmp_path / "mine.toml"), str(tmp_path))

    assert made.device == "mine"
    assert made.model == tmp_path.name


@pytest.mark.parametrize(
    ("device", "model", "message"),
    [
        ("h1000", "qwen3-8b", r"device 'h1000' is unknown \(did you mean h100\?\)"),
        ("h100", "qwen3-9b", r"model 'qwen3-9b' is unknown \(did you mean qwen3-8b\?\)"),
        ("h100", None, "needs a model: --model"),
        ("h100/qwen3-8b/two", None, "DEVICE/MODEL/tp2"),
        ("gone.toml", None, "gone.toml cannot be read"),
    ],
)
def test_an_unknown_part_is_named_with_what_there_is(device: str, model: str | None, message: str) -> None:
    """Near names are offered."""
    with pytest.raises(DeviceModelError, match=message):
        find_device_model(device, model)


def test_names_do_not_depend_on_case() -> None:
    """As people write them."""
    assert find_config("Qwen3-8B") == find_config("qwen3-8b")
    assert find_sheet("H100") == find_sheet("h100-sxm")


def test_what_a_simulation_touches_is_standard_library() -> None:
    """Models, files, memory and names work where numpy cannot be imported; only fitting needs it."""
    code = (
        "import sys; sys.modules['numpy'] = None\n"
        "from chairlift.devices.registry import find_device_model\n"
        "from chairlift.devices.shape import StepShape\n"
        "from chairlift.devices.valid import RangeGuard\n"
        "print(find_device_model('h100/qwen3-8b').time(StepShape.decode(8, 100), 50))"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 0
