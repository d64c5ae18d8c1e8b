from pathlib import Path
from random import Random

import pytest

from chairlift.lab.measured import DEFINITIONS, EngineFigures, Measured, Phase, idle_time, reserved_unused
from chairlift.records.reader import Run
from tests.lab.sim_subject import sim_study
from tests.records.samples import request

TAIL = "name=tail arrivals=burst arrivals.size=8 prompt=uniform prompt.min=16 prompt.max=32 "
TAIL += "output=bimodal output.short=4 output.long=40 output.ratio=7:1 output.order=cycle"


async def measured(folder: Path, load: str = TAIL, **settings: object) -> tuple[Measured, EngineFigures]:
    """A run on the toy device."""
    run = await sim_study("t", folder).run("run", load, settings)
    assert run.engine is not None
    return run, run.engine


async def test_a_closed_batch_is_told_in_full(tmp_path: Path) -> None:
    """Seven of four tokens and one of forty: what was computed for nothing, and the forecast beside what happened."""
    run, engine = await measured(tmp_path, policy="static", batch_size=8)
    steps = Run(run.folder / "engine").steps()

    assert engine.tokens["decode"] == 7 * 3 + 39
    assert engine.tokens["dead"] == 7 * 36
    assert engine.share("dead") == engine.tokens["dead"] / engine.computed
    assert engine.steps == sum(step.repeats for step in steps) == 40
    assert engine.wall == pytest.approx(sum(step.device_time for step in steps) / 1e9)
    [batch] = engine.batches
    assert batch.forecast_blocks == batch.peak_blocks == engine.kv_peak
    assert batch.members == 8
    assert (engine.preemptions, engine.waiting_peak, engine.running_peak) == (0, 0, 8)
    assert run.figure("time_between_tokens", 99) is None
    assert not run.distribution("time_between_tokens").observable
    assert len(run.finish_times()) == 8


async def test_prompts_and_decodes_are_told_apart(tmp_path: Path) -> None:
    """By the device time of their steps."""
    _, engine = await measured(tmp_path, max_num_seqs=8)

    assert engine.prefill.device + engine.decode.device == pytest.approx(engine.wall)
    assert engine.prefill.device > 0.02
    assert (engine.decode.gflops, engine.decode.gbs) == (None, None)
    assert Phase.of([]).rows == 0


async def test_what_is_held_and_not_used_is_more_where_it_is_reserved(tmp_path: Path) -> None:
    """Held as needed only last blocks are not full; reserved for the longest and until the end, most is empty."""
    _, needed = await measured(tmp_path / "needed", policy="continuous")
    _, naive = await measured(tmp_path / "naive", policy="continuous", kv_reservation="model_len")
    _, closed = await measured(tmp_path / "closed", policy="static", batch_size=8)
    shares = [one.reserved_unused for one in (needed, closed, naive)]

    assert all(share is not None for share in shares)
    assert shares == sorted(shares, key=lambda share: share or 0)
    assert (naive.reserved_unused or 0) > 0.9


async def test_held_time_is_the_ledgers_and_idle_time_the_requests(tmp_path: Path) -> None:
    """Two bursts far apart: the device has nothing to do between, and a batch waits for its delay."""
    load = "name=two arrivals=burst arrivals.size=2 arrivals.every=10s count=4 prompt=16 output=4"
    run, engine = await measured(tmp_path, load, policy="dynamic", max_queue_delay=10**9)

    assert engine.held == pytest.approx(1.0, abs=0.01)  # the last batch leaves at once: nobody else comes
    assert engine.idle == pytest.approx(10 - min(run.finish_times()))


def test_idle_time_is_the_time_without_a_request() -> None:
    """Whatever the order and however they overlap: as counted tick by tick."""
    draw = Random(3)
    for _ in range(200):
        stays = [(start := draw.randrange(60), start + draw.randrange(1, 12)) for _ in range(draw.randint(1, 8))]
        records = [request(arrival=start, released=end) for start, end in stays]
        first, last = min(start for start, _ in stays), max(end for _, end in stays)
        ticks = sum(not any(start <= tick < end for start, end in stays) for tick in range(first, last))

        assert idle_time(records) == ticks * 10**9


def test_every_figure_without_a_definition_elsewhere_has_one_here() -> None:
    """With its unit in front."""
    assert all(text.startswith("[") for text in DEFINITIONS.values())
    assert {"idle", "held", "reserved_unused", "scheduler_us", "decode_gbs"} <= DEFINITIONS.keys()


def test_nothing_held_is_nothing_unused() -> None:
    """A share of nothing does not exist."""
    assert reserved_unused([], [], 16) is None
