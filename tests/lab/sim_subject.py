"""A toy device as a subject: 20 ms a step up to twenty tokens, a millisecond for each token above, in virtual time."""

from pathlib import Path
from typing import Any

from chairlift.devices.file import save_device_model
from chairlift.lab.studies.study import Study
from chairlift.lab.subjects import SimulatedSubject
from tests.sim.helpers import device_model


def sim_subject(folder: Path, *, device: dict[str, Any] | None = None, **settings: Any) -> SimulatedSubject:
    """The device, written to a file as a user has it."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "toy.toml"
    save_device_model(device_model(**(device or {})), path)
    return SimulatedSubject(f"sim:{path}", {"num_kv_blocks": 512, "max_model_len": 1024, **settings})


def sim_study(name: str, folder: Path, **settings: Any) -> Study:
    """A quick study of it."""
    return Study(name, sim_subject(folder, **settings), folder / "study", quick=True)
