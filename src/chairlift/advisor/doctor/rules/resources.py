"""Device, host and machine."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import fmean
from typing import Final

from chairlift.advisor.doctor.case import Case
from chairlift.advisor.doctor.facts import Facts
from chairlift.advisor.doctor.finding import Confidence, Finding, Seen, Stage, share

_HOST: Final = 0.3
"""Share of the wall in which the device waits for the host in the middle of steps."""


def host_bound(case: Case, facts: Facts) -> Iterator[Finding]:
    """The device waits for the host: scheduling, sampling, sending."""
    if facts.host is None or facts.host < _HOST or facts.busy is None:
        return
    if facts.host < 0.4 * (facts.host + facts.busy):
        return
    yield Finding(
        "host_bound",
        Stage.RESOURCES,
        "The device waits for the host between its steps.",
        (
            Seen("host", share(facts.host), "time of steps that was not the device's / wall"),
            Seen("busy", share(facts.busy), "device time / wall"),
        ),
        weight=min(0.9, facts.host),
        confidence=Confidence.SURE,
        advice="Fewer, larger steps; a processor of its own for the server; less work for each token.",
        expected="the device is busy for more of the time",
    )


_PRESSURE: Final = 0.3


def machine_starved(case: Case, facts: Facts) -> Iterator[Finding]:
    """Tasks of the machine found no processor: something else runs beside the server."""
    known = [one.pressure for one in case.health if one.pressure is not None]
    if not known or fmean(known) < _PRESSURE or case.client is None:
        return
    yield Finding(
        "machine_starved",
        Stage.RESOURCES,
        "The machine has too few processors for what runs on it.",
        (Seen("tasks that found no processor", share(fmean(known)), "share of the time, from /proc/pressure/cpu"),),
        weight=0.05,
        confidence=Confidence.POSSIBLE,
        advice="Where client and server share a machine this is usual; keep others away while measuring.",
        note=True,
    )
