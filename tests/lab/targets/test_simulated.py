from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from chairlift.core.errors import ConfigError, DeviceModelError, OutsideValidRange
from chairlift.devices.file import save_device_model
from chairlift.devices.model import Provenance
from chairlift.devices.valid import ValidRange
from chairlift.lab.client.options import Stop
from chairlift.lab.loads.files import load_from_pairs
from chairlift.lab.loads.schedule import Schedule
from chairlift.lab.runs.bench import Bench, BenchResult
from chairlift.lab.runs.store import RunEntry
from chairlift.lab.targets.named import is_simulated, target_named
from chairlift.lab.targets.simulated import SimulatedTarget, trust
from chairlift.records.manifest import Manifest
from chairlift.records.reader import Run
from chairlift.runners.simulated import SimulatorSettings
from tests.sim.helpers import device_model

LOAD = "name=some arrivals=poisson arrivals.rate=30 prompt=40 output=12 count=30"
H100 = "sim:h100-sxm/llama-3.1-8b"


def target(**more: Any) -> SimulatedTarget:
    """The toy device."""
    return SimulatedTarget(device_model(**more), settings=SimulatorSettings(num_kv_blocks=256))


async def bench(one: SimulatedTarget, folder: Path, pairs: str = LOAD, stop: Stop | None = None) -> BenchResult:
    """A load against it."""
    return await Bench(one, Schedule(load_from_pairs(pairs.split())), folder).run(stop)


async def test_a_run_in_virtual_time_is_kept_like_any_other(tmp_path: Path) -> None:
    """Records of client and engine, a clock from 0, figures that can be reckoned again, no client to blame."""
    result = await bench(target(), tmp_path)
    manifest, engine = Manifest.read(tmp_path), Run(tmp_path / "engine")

    assert (manifest.target["kind"], manifest.clock_zero) == ("simulator", 0)
    assert not result.flawed
    assert [one.value for one in result.client.evidence if one.value is not None] == [0, 0]
    assert (engine.manifest.source, engine.manifest.clock_zero, engine.complete) == ("simulator", 0, True)
    assert sum(record.output_tokens for record in engine.requests()) == 30 * 12
    assert engine.manifest.capacity["num_blocks"] == 256
    assert engine.manifest.results["counters"]["output_tokens"] == 30 * 12
    assert engine.manifest.results["simulation"]["steps_outside"] == 0
    assert result.usage is not None
    assert result.usage.useful == 1
    assert RunEntry.read(tmp_path).summary().to_json() == manifest.results["summary"]


async def test_the_same_run_twice_is_the_same(tmp_path: Path) -> None:
    """To the last byte of every trace, on one target or on two: nothing is left of the run before."""
    one = target()
    await bench(one, tmp_path / "a")
    await bench(one, tmp_path / "b")
    await bench(target(), tmp_path / "c")
    traces = {name: (tmp_path / name / "traces.jsonl").read_bytes() for name in "abc"}

    assert traces["a"] == traces["b"] == traces["c"]
    assert len(traces["a"]) > 1000


async def test_a_run_that_was_asked_to_stop_says_so(tmp_path: Path) -> None:
    """With a whole record."""
    stop = Stop()
    stop.request()
    result = await bench(target(), tmp_path, stop=stop)

    assert result.stopped
    assert Run(tmp_path / "engine").complete


async def test_a_step_outside_the_range_breaks_the_run_off_with_the_way_out(tmp_path: Path) -> None:
    """By the simulator's own error."""
    narrow = target(valid=ValidRange(tokens=10_000, rows=1, context=10_000, total_context=10**6))
    with pytest.raises(OutsideValidRange, match="--outside-range warn"):
        await bench(narrow, tmp_path)


async def test_a_name_has_all_parts() -> None:
    """Device, model, how many work as one; and settings by name find their places."""
    named = target_named(f"{H100}/tp2", engine={"max_num_seqs": 64, "block_size": 32, "max_seq_len": 4096})
    info = await named.open()

    assert isinstance(named, SimulatedTarget)
    assert (named.config.max_num_seqs, named.settings.block_size, info.max_model_len) == (64, 32, 4096)
    assert (info.name, info.model, info.virtual_time) == ("h100-sxm/llama-3.1-8b/tp2", "llama-3.1-8b", True)
    assert "not calibrated" in info.notes[0]


async def test_a_file_is_a_device(tmp_path: Path) -> None:
    """With max_model_len no longer than it was measured, if nobody asked for more."""
    model = device_model(valid=ValidRange(tokens=512, rows=8, context=300, total_context=2400))
    save_device_model(model, tmp_path / "mine.toml")

    named = target_named(f"sim:{tmp_path}/mine.toml", engine={"num_kv_blocks": 9})
    assert isinstance(named, SimulatedTarget)
    assert named.config.max_model_len == 300
    assert is_simulated("sim:x")
    assert not is_simulated("model.gguf")


def test_what_only_a_real_device_has_is_refused() -> None:
    """By its flag; and so is a device that is nowhere."""
    with pytest.raises(ConfigError, match=r"--threads cannot be set: sim:h100.* is a simulated device"):
        target_named(H100, engine={"threads": 2})
    with pytest.raises(DeviceModelError, match="did you mean h100"):
        target_named("sim:h1000/llama-3.1-8b")


def test_trust_is_told_in_a_sentence() -> None:
    """An estimate is called one; a calibration says where, when and how well."""
    provenance = Provenance("calibrated", "two cores", "2026-01-02", errors={"decode": 0.021, "prefill": 0.034})
    calibrated = replace(device_model(), provenance=provenance)

    assert trust(device_model()) == "toy/tiny is analytic, not calibrated: its times are estimates from data sheets."
    assert trust(calibrated) == (
        "toy/tiny is calibrated on two cores (2026-01-02); left-out errors of a step's time: decode 2.1%, prefill 3.4%."
    )
