from pathlib import Path

import pytest

from chairlift import demo_model
from chairlift.advisor.doctor.case import Case, config_of
from chairlift.advisor.doctor.diagnose import diagnose
from chairlift.advisor.doctor.finding import Stage
from chairlift.core.config import SchedulerConfig
from chairlift.core.errors import RecordError
from chairlift.engine.async_engine import AsyncEngine
from chairlift.engine.core import EngineCore
from chairlift.lab.loads.files import load_from_pairs
from chairlift.lab.loads.schedule import Schedule
from chairlift.lab.runs.bench import ENGINE, Bench
from chairlift.lab.targets.base import Target
from chairlift.lab.targets.model import ModelTarget
from chairlift.lab.targets.simulated import SimulatedTarget
from chairlift.runners.fake import FakeRunner
from tests.advisor.doctor.ward import SICK, simulated
from tests.engine.tiny import byte_tokenizer
from tests.lab.runs.making import write_run


async def kept(target: Target, load: str, folder: Path) -> Case:
    """A run, and what is read from its folder."""
    await Bench(target, Schedule(load_from_pairs(load.split())), folder).run()
    return Case.read(folder)


async def test_a_folder_says_what_the_run_itself_says(tmp_path: Path) -> None:
    """A simulated run that was kept: the same settings, pool, records and findings as the one in memory."""
    planted = next(one for one in SICK if one.name == "four slots")
    target = SimulatedTarget.load(planted.device, {"max_num_seqs": 4})
    case = await kept(target, planted.load, tmp_path / "run")
    memory = simulated(planted)

    assert case.config == memory.config
    assert case.capacity == memory.capacity
    assert list(case.steps) == list(memory.steps)
    assert case.described["output"] == memory.described["output"]
    assert case.schedule is not None
    assert case.complete
    assert [one.rule for one in diagnose(case).findings] == [one.rule for one in diagnose(memory).findings]


def fake(num_blocks: int, config: SchedulerConfig) -> ModelTarget:
    """The real engine over a fake runner."""
    runner = FakeRunner(vocabulary=128, num_blocks=num_blocks)
    return ModelTarget(AsyncEngine(EngineCore(config, runner, byte_tokenizer())), "fake")


async def test_preemption_thrash_on_the_real_engine(tmp_path: Path) -> None:
    """Eight answers of 60 tokens in a pool for four, without a watermark. Timing decides nothing: it is counted."""
    config = SchedulerConfig(max_model_len=128, max_num_seqs=8, watermark=0.0)
    case = await kept(fake(20, config), "arrivals=burst arrivals.size=8 prompt=20 output=60", tmp_path / "run")
    rules = [one.rule for one in diagnose(case).findings if not one.note]

    assert case.config == config
    assert "preemption_thrash" in rules


async def test_straggler_waste_on_the_real_engine(tmp_path: Path) -> None:
    """Seven of eight end after 5 tokens, the last after 60."""
    config = SchedulerConfig(max_model_len=128, policy="static", batch_size=8)
    load = "arrivals=burst arrivals.size=8 prompt=20 output=bimodal output.short=5 output.long=60 output.order=cycle"
    case = await kept(fake(100, config), load, tmp_path / "run")
    finding = next(one for one in diagnose(case).findings if one.rule == "straggler_waste")

    assert finding.weight > 0.5


@pytest.mark.model
async def test_straggler_waste_on_the_demo_model(tmp_path: Path) -> None:
    """The same on a real model and a real device: the dead rows are seen in its records."""
    settings = {"policy": "static", "batch_size": 4, "max_num_seqs": 4, "max_batch_size": 4, "max_model_len": 128,
                "num_kv_blocks": 32, "threads": 2}  # fmt: skip
    target = ModelTarget.load(str(demo_model.locate()), settings)
    load = (
        "arrivals=burst arrivals.size=4 prompt=16 output=bimodal output.short=3 output.long=30 output.ratio=3:1 "
        "output.order=cycle"
    )
    findings = diagnose(await kept(target, load, tmp_path / "run")).findings
    engines = [one.rule for one in findings if one.stage is Stage.CONFIGURATION]

    assert engines[0] == "straggler_waste"  # a busy machine may make the client late as well, which comes before


def test_a_clients_run_without_an_engine_is_enough(tmp_path: Path) -> None:
    """Its traces and its target's name; nothing is known of steps."""
    write_run(tmp_path / "run")
    case = Case.read(tmp_path / "run")

    assert (case.server, case.version, case.config) == ("vllm", "1", None)
    assert len(case.traces) == 4
    assert case.steps == ()
    assert not diagnose(case).sick


async def test_an_engines_folder_alone_is_enough(tmp_path: Path) -> None:
    """As `chairlift serve --record` leaves it."""
    config = SchedulerConfig(max_model_len=128)
    await kept(fake(100, config), "arrivals=burst arrivals.size=3 prompt=10 output=4", tmp_path / "run")
    case = Case.read(tmp_path / "run" / ENGINE)

    assert case.traces == ()
    assert len(case.requests) == 3
    assert case.config == config


def test_settings_that_cannot_be_are_an_error() -> None:
    """A record of another version, say; settings without a policy are no scheduler's."""
    assert config_of({"max_num_seqs": 4}) is None
    with pytest.raises(RecordError, match="cannot be"):
        config_of({"policy": "static", "batch_size": -1})
