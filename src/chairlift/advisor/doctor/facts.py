"""The figures that rules are made of. None: not known. Shares are between 0 and 1, times are seconds.

Made from an engine's records and a client's traces in `reckon`, or from a server's metrics pages in `server`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

STALL: Final = 0.2
"""s: a pause that a reader notices."""
SOON: Final = 0.15
"""Of a batch's duration: who comes within this would have cost less to wait for than it costs to miss it. Of requests
that come evenly while batches run, no more than this share does."""
DEFINITIONS: Final[Mapping[str, str]] = {
    "busy": "device time / wall",
    "useful": "prefill and decode tokens / all tokens computed",
    "at_limit": "share of the wall in which as many ran as the setting lets and others waited",
    "kv_peak": "most KV blocks held / all",
    "kv_mean": "KV blocks held / all, mean over time",
    "recompute": "tokens computed again after a preemption / all tokens computed",
    "padding_time": "device time at average cost of padding tokens / device time",
    "dead_time": "device time at average cost of rows whose request had ended / device time",
    "held": "time that a request waited while the device did nothing, mean",
    "blocked": "share of the wall in which a request at the head of the queue waited for that reason",
    "host": "time of steps that was not the device's / wall",
    "reserved_unused": "KV positions held that no computed token of a request in progress was in, mean over time",
}


@dataclass(frozen=True)
class Facts:
    """All figures of a case."""

    wall: float | None = None
    """From the first plan to the last commit, or the window in which a server was watched."""
    busy: float | None = None
    useful: float | None = None
    recompute: float | None = None
    padding_time: float | None = None
    dead_time: float | None = None
    host: float | None = None
    running_mean: float | None = None
    running_peak: float | None = None
    waiting_mean: float | None = None
    waiting_peak: float | None = None
    waiting_end: float | None = None
    """Requests in the queue at the end, and how many at the middle: a queue that grows."""
    waiting_middle: float | None = None
    at_limit: float | None = None
    rows_limit: int | None = None
    """Most sequences at once, by setting."""
    kv_peak: float | None = None
    kv_mean: float | None = None
    reserved_unused: float | None = None
    requests: int | None = None
    """Ended in the time looked at."""
    preemptions: float | None = None
    output_rate: float | None = None
    """Output tokens a second."""
    ttft_mean: float | None = None
    ttft_p99: float | None = None
    end_to_end_mean: float | None = None
    queue_mean: float | None = None
    """From arrival to admission."""
    held: float | None = None
    itl_p50: float | None = None
    itl_p99: float | None = None
    stalls: float | None = None
    """Times between tokens of three medians and STALL or more / all."""
    decode_step: float | None = None
    """Median of steps without prompt tokens."""
    mixed_step: float | None = None
    """90th percentile of steps with prompt tokens beside decodes."""
    mixed_steps: int = 0
    blocked: Mapping[str, float] = field(default_factory=dict)
    """Reason -> see DEFINITIONS."""
    members: tuple[int, ...] = ()
    """Of each closed batch."""
    batch_reasons: Mapping[str, int] = field(default_factory=dict)
    late: float | None = None
    """Share of the requests that came soon after a batch had left and would have had room in it."""
    late_within: float | None = None
    """s: within which nine tenths of those came."""
    cached: float | None = None
    """Prompt tokens found in the prefix cache / all prompt tokens."""
    output_mean: float | None = None
    """Tokens of an answer."""
    prompt_mean: float | None = None
    step_by_rows: Mapping[int, float] = field(default_factory=dict)
    """Sequences in a step without prompt tokens -> median of its device time, s."""
    stretches: Mapping[int, int] = field(default_factory=dict)
    """The same sizes -> in how many separate stretches of the run they were seen: one long stretch may be a bad moment
    of the machine."""
    errors: Mapping[str, int] = field(default_factory=dict)
    """Class or word -> how often."""
    error_text: str = ""
    """What the first failed request was told."""
    in_flight_peak: int | None = None
    """Most requests of the client at once."""
    details: Mapping[str, Any] = field(default_factory=dict)
