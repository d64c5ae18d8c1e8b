"""Keeps Python's garbage collector from stopping the step loop.

Almost everything a step makes is freed by reference counting. The cyclic collector still walks over all live objects
from time to time, and those walks are most of a scheduler's slowest steps (docs/performance.md). So what is alive after
loading is set aside, and the collector runs after many more allocations than by default; it is not switched off,
because HTTP libraries do make cycles.
"""

from __future__ import annotations

import gc

_YOUNG = 50_000
"""Container allocations, less deallocations, between two collections of the youngest (default 700 to 2,000)."""


def calm_collector() -> None:
    """Call once, when the model is loaded and before the first request is served."""
    gc.collect()
    gc.freeze()
    _, middle, old = gc.get_threshold()
    gc.set_threshold(_YOUNG, middle, old)
