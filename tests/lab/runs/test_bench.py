import time
from pathlib import Path

import pytest
from pyarrow import parquet

from chairlift.core.config import SchedulerConfig
from chairlift.core.errors import ConfigError, RecordError
from chairlift.engine.async_engine import AsyncEngine
from chairlift.engine.core import EngineCore
from chairlift.lab.client.options import Stop
from chairlift.lab.loads.files import load_from_pairs
from chairlift.lab.loads.schedule import Schedule
from chairlift.lab.runs.bench import Bench, BenchResult
from chairlift.lab.runs.store import RunEntry
from chairlift.lab.targets.model import ModelTarget
from chairlift.records.client_rates import Limits
from chairlift.records.manifest import Manifest
from chairlift.records.reader import Run
from chairlift.runners.fake import FakeRunner
from tests.engine.tiny import byte_tokenizer

SIX = "name=six arrivals=constant arrivals.rate=200 count=6 prompt=40 output=5"


def model_target() -> ModelTarget:
    """An engine over a fake runner."""
    runner = FakeRunner(vocabulary=128, num_blocks=256)
    return ModelTarget(AsyncEngine(EngineCore(SchedulerConfig(max_model_len=512), runner, byte_tokenizer())), "fake")


def bench(folder: Path, pairs: str = SIX, limits: Limits | None = None) -> Bench:
    """A load against it."""
    return Bench(model_target(), Schedule(load_from_pairs(pairs.split())), folder, limits=limits)


async def run(folder: Path, pairs: str = SIX) -> BenchResult:
    """Run it with a wide limit."""
    return await bench(folder, pairs, Limits(ttft=3600 * 10**9)).run()


async def test_a_run_is_a_folder_that_says_everything(tmp_path: Path) -> None:
    """Load, target, settings, machine, versions, definitions and figures; the rest as tables."""
    result = await run(tmp_path / "run")
    manifest = Manifest.read(tmp_path / "run")

    assert (manifest.source, manifest.status) == ("client", "complete")
    assert manifest.load["load"]["name"] == "six"
    assert len(manifest.load["fingerprint"]) == 64
    assert manifest.target["kind"] == "model"
    assert len(manifest.settings["salt"]) == 8
    assert manifest.machine["cpus"] >= 1
    assert "numpy" in manifest.versions
    summary = manifest.results["summary"]
    assert summary["requests"]["answered"] == 6
    assert summary["goodput"]["value"] == 1
    assert set(summary["metrics"]) | set(summary["rates"]) <= set(manifest.definitions)
    tables = {
        name: parquet.read_table(tmp_path / "run" / f"{name}.parquet")
        for name in ("traces", "chunks", "samples", "health")
    }
    assert tables["traces"].num_rows == 6
    assert sum(tables["chunks"].column("tokens").to_pylist()) == 30
    assert not result.summary.errors


async def test_the_engines_records_lie_beside_the_clients(tmp_path: Path) -> None:
    """Complete, with the last step, and of the same requests."""
    result = await run(tmp_path)
    engine = Run(tmp_path / "engine")

    assert engine.complete
    assert engine.manifest.source == "engine"
    assert sum(record.output_tokens for record in engine.requests()) == 30
    assert sum(step.samples for step in engine.steps()) == 30
    assert len(result.traces) == len(engine.requests())
    assert engine.manifest.results["counters"]["output_tokens"] == 30
    assert result.usage is not None
    assert result.usage.useful == 1
    assert Manifest.read(tmp_path).results["usage"]["busy"] == result.usage.busy


async def test_the_figures_can_be_reckoned_again_from_the_folder(tmp_path: Path) -> None:
    """And are the same, so that a limit may be put to a run afterwards."""
    result = await run(tmp_path)

    again = RunEntry.read(tmp_path).summary(Limits(ttft=3600 * 10**9))
    assert again.to_json() == result.entry.manifest.results["summary"]


async def test_the_manifest_knows_when_the_clients_clock_was_zero(tmp_path: Path) -> None:
    """After the run was begun, and before it was over."""
    begun = time.time()
    await run(tmp_path)

    assert begun <= Manifest.read(tmp_path).clock_zero <= time.time()


async def test_a_stopped_run_says_so(tmp_path: Path) -> None:
    """What was under way is cut, and the record is whole."""
    stop = Stop()
    stop.request()
    result = await bench(tmp_path, f"{SIX} time_scale=1000").run(stop)

    assert result.stopped
    assert result.flawed
    assert Manifest.read(tmp_path).results["stopped"] is True


async def test_a_load_that_cannot_fit_is_refused_before_anything_is_sent(tmp_path: Path) -> None:
    """With both numbers and the way out, and without a folder."""
    with pytest.raises(ConfigError, match=r"longest request has 605 tokens .* the target takes 512: .*--max-model-len"):
        await run(tmp_path / "run", SIX.replace("prompt=40", "prompt=600"))
    assert not (tmp_path / "run").exists()


async def test_a_run_is_not_written_over(tmp_path: Path) -> None:
    """The second one in a folder is refused."""
    await run(tmp_path)

    with pytest.raises(RecordError, match="holds a client's records already"):
        await run(tmp_path)
