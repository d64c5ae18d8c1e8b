"""Runs as folders: made by `bench`, listed and filtered by the store, set beside each other by `diff`.

runs/20261129-104512-chat/
    manifest.json       what was asked, of what, with which parameters, versions and machine; figures at the end
    traces, chunks, health, samples     as chairlift.lab.client.recorder writes them
    engine/             the engine's own records, where the target is a model in this process
"""

from chairlift.lab.runs.bench import Bench, BenchResult
from chairlift.lab.runs.compare import RunDiff, compare
from chairlift.lab.runs.store import Filter, RunEntry, RunStore

__all__ = ["Bench", "BenchResult", "Filter", "RunDiff", "RunEntry", "RunStore", "compare"]
