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


_NEARLY_ALL: Final = 0.985


def device_memory_full(case: Case, facts: Facts) -> Iterator[Finding]:
    """The device has no memory left beside what is reserved: the next large step, or another process, may fail."""
    full = [one for one in case.gpus if one.memory >= _NEARLY_ALL]
    if not full:
        return
    one = max(full, key=lambda gpu: gpu.memory)
    yield Finding(
        "device_memory_full",
        Stage.RESOURCES,
        "The device's memory is nearly all in use: what is taken outside the budget has no room left.",
        (
            Seen(
                "memory in use", f"{share(one.memory)} of {one.memory_total / 2**30:.1f} GiB", "by all processes, NVML"
            ),
            Seen("devices", f"{len(full)} of {len(case.gpus)}"),
        ),
        weight=0.06,
        confidence=Confidence.LIKELY,
        advice="Lower --gpu-memory-utilization by a few hundredths, or find out what else runs on the device.",
        note=True,
    )


_ASLEEP: Final = 0.4


def device_idle(case: Case, facts: Facts) -> Iterator[Finding]:
    """Requests wait and the device does not work: the host, or a setting, holds them back."""
    known = [one.utilization for one in case.gpus if one.utilization is not None]
    if not known or max(known) >= _ASLEEP or (facts.waiting_mean or 0) < 1:
        return
    yield Finding(
        "device_idle",
        Stage.RESOURCES,
        "Requests wait while the device is idle: the host or a setting holds them back.",
        (
            Seen("utilisation of the busiest device", share(max(known)), "share of time in which a kernel ran, NVML"),
            Seen("waiting, mean", f"{facts.waiting_mean or 0:.1f}"),
        ),
        weight=0.3,
        confidence=Confidence.LIKELY,
        advice="Look at the server's processor time first, then at its limits on sequences and tokens.",
    )
