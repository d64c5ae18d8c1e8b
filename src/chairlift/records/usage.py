"""How well the device was used, in three words that each mean one thing. Made from the engine's steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from chairlift.records.schema import StepRecord

USAGE_DEFINITIONS: Final = {
    "busy": "[share] device time / wall, from when the first step was planned to when the last was committed.",
    "useful": "[share] prefill and decode tokens / all tokens computed: the rest was recomputed, padding or dead rows.",
    "saturation": "[share] prefill and decode tokens a second of wall / the most that was calibrated for the device; "
    "none without a calibration.",
}


@dataclass(frozen=True, slots=True)
class Usage:
    """Shares of a run; None where there is nothing to divide by."""

    busy: float | None
    useful: float | None
    saturation: float | None


def usage(steps: Sequence[StepRecord], maximum: float | None = None) -> Usage:
    """Of a run's steps.

    Args:
        steps: in order of time.
        maximum: tokens a second that the device can do at most, as calibrated.
    """
    if not steps:
        return Usage(None, None, None)
    wall = steps[-1].committed - steps[0].planned
    good = sum(step.prefill + step.decode for step in steps)
    spent = good + sum(step.recompute + step.padding + step.dead for step in steps)
    return Usage(
        busy=sum(step.device_time for step in steps) / wall if wall else None,
        useful=good / spent if spent else None,
        saturation=good / (wall / 1e9) / maximum if wall and maximum else None,
    )
