"""Writes docs/pictures/slots.svg: the demo's staggered load under the three policies, simulated on a device whose steps
take 20 ms and a millisecond a token. With --check it only says whether the picture is up to date.
"""

import argparse
import sys
from dataclasses import dataclass, field
from pathlib import Path

from chairlift.core.config import POLICIES, KVCapacity, PolicyName, SchedulerConfig
from chairlift.core.request import Request
from chairlift.core.runs import Run, TokenRuns
from chairlift.devices.model import DeviceModel, HostTerms, Provenance, StepTerms
from chairlift.devices.quantities import PER_NANOSECOND
from chairlift.devices.valid import ValidRange
from chairlift.lab.report.grid import grid
from chairlift.lab.report.slots import Panel, slot_picture
from chairlift.records.observer import Observer
from chairlift.records.schema import DecisionRecord, ShareRecord, StepRecord
from chairlift.runners.simulated import SimulatedRunner
from chairlift.sim.events import Arrival, OpenLoop
from chairlift.sim.loop import simulate

TARGET = Path(__file__).parents[1] / "docs" / "pictures" / "slots.svg"

_MILLISECOND = 1_000_000
_SLOTS = 8


@dataclass
class _Kept(Observer):
    """What the picture is made of."""

    steps: list[StepRecord] = field(default_factory=list)
    shares: list[ShareRecord] = field(default_factory=list)
    decisions: list[DecisionRecord] = field(default_factory=list)

    def on_step(self, record: StepRecord) -> None:
        self.steps.append(record)

    def on_share(self, record: ShareRecord) -> None:
        self.shares.append(record)

    def on_decision(self, record: DecisionRecord) -> None:
        self.decisions.append(record)


def picture() -> str:
    """As SVG."""
    panels = [_panel(policy) for policy in POLICIES]
    return slot_picture(panels, 0, max(panel.end for panel in panels)).svg + "\n"


def _panel(policy: PolicyName) -> Panel:
    kept = _Kept()
    config = SchedulerConfig(
        policy=policy, batch_size=_SLOTS, max_batch_size=_SLOTS, max_num_seqs=_SLOTS, max_model_len=512
    )
    result = simulate(config, _device(), OpenLoop(_staggered()), observers=[kept])
    found = grid(kept.steps, kept.shares, kept.decisions)
    if found is None:
        raise RuntimeError(f"nothing was computed under {policy}.")
    return Panel(policy, found, 0, result.ended, _SLOTS)


def _device() -> SimulatedRunner:
    millisecond = _MILLISECOND * PER_NANOSECOND
    model = DeviceModel(
        device="example",
        model="example",
        tensor_parallel=1,
        provenance=Provenance("an example, not calibrated"),
        step=StepTerms(floor=20 * millisecond, per_token=millisecond),
        host=HostTerms(),
        valid=ValidRange(tokens=10**9, rows=10**9, context=10**9, total_context=10**12),
    )
    return SimulatedRunner(model, KVCapacity(block_size=16, num_blocks=256, scratch_block=256))


def _staggered() -> list[Arrival]:
    """24 requests, one every quarter of a second; each eighth has a long answer."""
    arrivals = []
    for i in range(24):
        time, prompt = i * 250 * _MILLISECOND, TokenRuns.of(Run((i + 1) << 24, 1, 24 + (29 * i) % 73))
        arrivals.append(Arrival(time, Request(f"request-{i}", prompt, 160 if i % 8 == 4 else 20)))
    return arrivals


def main() -> int:
    """Write or check."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true")
    if not parser.parse_args().check:
        TARGET.parent.mkdir(exist_ok=True)
        TARGET.write_text(picture(), encoding="utf-8")
        return 0
    if not TARGET.exists() or TARGET.read_text(encoding="utf-8") != picture():
        print(f"{TARGET} is out of date: run python scripts/draw_slots.py", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
