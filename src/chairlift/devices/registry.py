"""Device models by name or path: `h100-sxm` x `llama-3.1-8b`, or a file that calibration wrote."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Final

from chairlift.core.errors import DeviceModelError
from chairlift.devices.analytic import analytic_model
from chairlift.devices.file import load_device_model
from chairlift.devices.model import DeviceModel
from chairlift.devices.sheet import DeviceSheet, load_sheet, parse_sheet
from chairlift.devices.toml import load, parse
from chairlift.devices.transformer import TransformerConfig, load_config, parse_config

ALIASES: Final = {
    "a100": "a100-80gb-sxm",
    "a100-80gb": "a100-80gb-sxm",
    "a100-sxm": "a100-80gb-sxm",
    "h100": "h100-sxm",
    "h100-80gb": "h100-sxm",
    "h200": "h200-sxm",
    "4090": "rtx-4090",
    "llama2-70b": "llama-2-70b",
    "llama3.1-8b": "llama-3.1-8b",
    "llama3.1-70b": "llama-3.1-70b",
    "smollm2-135m-instruct": "smollm2-135m",
}
"""Other names of built-in devices and models."""


def device_names() -> tuple[str, ...]:
    """Built-in device sheets."""
    return _names("sheets")


def model_names() -> tuple[str, ...]:
    """Built-in models."""
    return _names("models")


def find_sheet(name: str) -> DeviceSheet:
    """A built-in sheet by name, or one by path.

    Raises:
        DeviceModelError: there is none; the message names those that there are.
    """
    if name.endswith(".toml"):
        return load_sheet(Path(name))
    text = _text("sheets", name)
    if text is None:
        raise DeviceModelError(_unknown("device", name, device_names(), "the path of a device model or sheet (.toml)"))
    return parse_sheet(text, f"built-in device {name}")


def find_config(name: str) -> TransformerConfig:
    """A built-in model's sizes by name, or those of a config.json or a model's directory by path.

    Raises:
        DeviceModelError: there is none, or it cannot be described.
    """
    text = _text("models", name)
    if text is not None:
        root = parse(text, f"built-in model {name}")
        return parse_config(root.section("config").values(), name=root.value("name", str), source=f"built-in {name}")
    path = Path(name)
    if path.is_dir() or path.suffix == ".json":
        return load_config(path)
    raise DeviceModelError(
        _unknown("model", name, model_names(), "the path of a config.json or of a model's directory")
    )


def published_parameters(name: str) -> int:
    """What a built-in model's card says of its size."""
    text = _text("models", name)
    if text is None:
        raise DeviceModelError(_unknown("model", name, model_names(), "one of the built-in models"))
    return parse(text, f"built-in model {name}").whole("parameters")


def find_device_model(
    device: str, model: str | None = None, *, tensor_parallel: int = 1, weights: str = "bf16", kv: str = "bf16"
) -> DeviceModel:
    """A device model by the names or paths of its parts.

    Args:
        device: a device model's file (then the rest must be left as it is), a device sheet's file, or a built-in
            device; `h100-sxm/llama-3.1-8b/tp2` names all parts at once.
        model: a built-in model, a config.json, or a model's directory.
        tensor_parallel: devices that work as one.
        weights: how they are stored; see analytic_model().
        kv: precision of keys and values.

    Raises:
        DeviceModelError: a part is unknown or the parts do not go together.
    """
    if device.endswith(".toml"):
        if "step" in load(Path(device)):
            return _measured(Path(device), model, tensor_parallel)
    elif "/" in device and model is None:
        device, model, tensor_parallel = _parts(device, tensor_parallel)
    if model is None:
        raise DeviceModelError(
            f"the device {device} needs a model: --model with one of {', '.join(model_names())}, a config.json or a "
            "model's directory."
        )
    sheet, config = find_sheet(device), find_config(model)
    return analytic_model(config, sheet, tensor_parallel=tensor_parallel, weights=weights, kv=kv)


def _measured(path: Path, model: str | None, tensor_parallel: int) -> DeviceModel:
    loaded = load_device_model(path)
    asked = find_config(model).name if model and ALIASES.get(model, model) in model_names() else model
    if asked not in (None, loaded.model):
        raise DeviceModelError(f"{path} was made for the model {loaded.model}, not for {asked}: leave --model out.")
    if tensor_parallel not in (1, loaded.tensor_parallel):
        raise DeviceModelError(
            f"{path} was made for {loaded.tensor_parallel} devices: leave --tensor-parallel-size {tensor_parallel} out."
        )
    return loaded


def _parts(name: str, tensor_parallel: int) -> tuple[str, str, int]:
    """h100-sxm/llama-3.1-8b/tp2 -> its parts."""
    device, model, *rest = name.split("/")
    if not rest:
        return device, model, tensor_parallel
    if len(rest) == 1 and rest[0].startswith("tp") and rest[0][2:].isdecimal():
        return device, model, int(rest[0][2:])
    raise DeviceModelError(f"{name!r} is no device model; write DEVICE/MODEL or DEVICE/MODEL/tp2.")


def _folder(kind: str) -> Traversable:
    return files("chairlift.devices") / "data" / kind


def _names(kind: str) -> tuple[str, ...]:
    return tuple(sorted(entry.name.removesuffix(".toml") for entry in _folder(kind).iterdir()))


def _text(kind: str, name: str) -> str | None:
    name = name.lower()
    name = ALIASES.get(name, name)
    return (_folder(kind) / f"{name}.toml").read_text("utf-8") if name in _names(kind) else None


def _unknown(kind: str, name: str, known: Iterable[str], other: str) -> str:
    names = tuple(known)
    near = difflib.get_close_matches(name.lower(), [*names, *ALIASES], n=1)
    meant = f" (did you mean {near[0]}?)" if near else ""
    return f"the {kind} {name!r} is unknown{meant}; built in are {', '.join(names)}. It may also be {other}."
