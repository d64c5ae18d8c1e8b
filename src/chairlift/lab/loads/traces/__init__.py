"""Recorded traffic: readers for public traces and for one's own logs."""

from chairlift.lab.loads.traces.reading import read_trace
from chairlift.lab.loads.traces.ticks import Ticks, find_ticks, spread
from chairlift.lab.loads.traces.trace import Blocks, Trace

__all__ = ["Blocks", "Ticks", "Trace", "find_ticks", "read_trace", "spread"]
