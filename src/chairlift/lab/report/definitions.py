"""What the words in pictures and tables mean."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from chairlift.lab.report.figures import RunFigures
from chairlift.records.usage import USAGE_DEFINITIONS

SLOT: Final = (
    "A row of the batch. A request has one from the first step in which it has a row to the last before it ends or is "
    "preempted; a member of a closed batch to the batch's end. A step's cells are as wide as it was long, from the "
    "plan to the commit; a row's tokens share that width evenly."
)
_KINDS: Final = {
    "prefill": "Prompt tokens, computed for the first time.",
    "decode": "Generated tokens, computed for the first time: one a row and step.",
    "recomputed": "Tokens computed again, since the request had lost its KV blocks to another.",
    "padding": "Right-hand padding of a closed batch's prompts to the longest: computed for nothing.",
    "dead rows": "Rows of a closed batch's members that had ended: a token a step until the last has ended.",
}
_TIMES: Final = {
    "host": "Work was there, and the device waited for the host: planning, sampling, delivering.",
    "held": "Requests waited because the policy waited: for a batch to fill, or for a delay to be over.",
    "idle": "There was nothing to do.",
    "switching": "What ran was draining for a change of policy.",
    "recoverable": "Part of the device's time: what the steps would not have cost without padding and dead rows, by "
    "the step predictor. Less than their share, since a step of eight rows costs little more than a step of one.",
}
_TIMELINES: Final = {
    "waiting": "Requests that were due and not yet admitted, or that were preempted and not yet resumed.",
    "of KV blocks": "KV blocks that requests hold / all of the pool; during a step the more of before and after it.",
}


def definitions(runs: Sequence[RunFigures], pictures: Iterable[str]) -> dict[str, str]:
    """Of every figure in a report, by name.

    Args:
        runs: that are shown.
        pictures: which of slots, ledger and timelines are in it.
    """
    told: dict[str, str] = {}
    shown = set(pictures)
    for run in runs:
        told |= run.definitions()
    told["p50, p99, …"] = "Percentiles, interpolated linearly between the two nearest of the ascending values."
    if any(run.usage is not None for run in runs):
        told |= {f"device {name}" if name == "busy" else f"tokens {name}": words
                 for name, words in USAGE_DEFINITIONS.items() if name != "saturation"}  # fmt: skip
        told["preemptions"] = "How often a request's KV blocks were taken from it."
    if "slots" in shown:
        told["slot"] = SLOT
    if shown & {"slots", "ledger"}:
        told |= _KINDS
    if "ledger" in shown:
        told["seconds by kind"] = "A step's device time, shared among its kinds of token in proportion to their number."
        told |= _TIMES
    if "timelines" in shown:
        told |= _TIMELINES
    return told
