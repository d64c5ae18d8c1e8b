"""Runs on disk without running anything."""

from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from chairlift.lab.client.recorder import ClientRecorder
from chairlift.lab.loads.compare import LoadRecord
from chairlift.lab.loads.files import load_from_pairs
from chairlift.lab.loads.schedule import Schedule
from chairlift.lab.runs.store import RunEntry
from chairlift.lab.targets.base import TargetInfo
from chairlift.records.client import ServerSample
from chairlift.records.client_summary import definitions, summarize
from chairlift.records.manifest import Manifest
from tests.records.traces import trace

LOAD = "name=even arrivals=constant arrivals.rate=10 count=4 prompt=10 output=3"


def write_run(
    folder: Path, pairs: str = LOAD, delay: int = 0, samples: Iterable[ServerSample] = (), **fields: Any
) -> RunEntry:
    """A closed run of four answers, each so many ms later than usual.

    Args:
        folder: of the run.
        pairs: its load.
        delay: added to all chunks of all requests.
        samples: of the server.
        fields: of the manifest.
    """
    traces = [
        trace(i, i * 100, chunks=[(i * 100 + 30 + delay, 1), (i * 100 + 40 + delay, 1), (i * 100 + 54 + delay, 1)])
        for i in range(4)
    ]
    with ClientRecorder(folder) as recorder:
        for one in traces:
            recorder.write(one)
        for sample in samples:
            recorder.write(sample)
    given = {
        "source": "client",
        "started": "2026-01-01T00:00:00.000+00:00",
        "clock_zero": 0.0,
        "chairlift": "0",
        "status": "complete",
        "target": asdict(TargetInfo("vllm", "http://host:8000", "a-model", version="1")),
        "settings": {"salt": folder.name, "keep_text": False},
        "load": LoadRecord.of(Schedule(load_from_pairs(pairs.split()))).to_json(),
        "versions": {"numpy": "2"},
        "machine": {"cpus": 2},
        "results": {"summary": summarize(traces).to_json(), "client": {"bottleneck": False}, "stopped": False},
        "definitions": definitions(),
    }
    Manifest(**{**given, **fields}).write(folder)
    return RunEntry.read(folder)
