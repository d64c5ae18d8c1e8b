"""A device sheet: what a device can do at most, how much of that is reached, and where each figure is from.

    name = "h100-sxm"
    title = "NVIDIA H100 SXM 80 GB"
    most_devices = 8

    [figure.bandwidth]      # bytes a second between the device's memory and its cores
    value = 3.35e12
    source = "NVIDIA H100 data sheet"

Figures are peaks (of vendors' data sheets, dense, without sparsity), efficiencies (the share of a peak that a serving
step reaches) and overheads. A sheet is an assumption about a device, not a measurement of one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from chairlift.core.errors import DeviceModelError
from chairlift.devices.toml import Section, load, parse

MEANINGS: Final = {
    "memory": "bytes that the driver reports",
    "bandwidth": "bytes a second between memory and cores, peak",
    "flops_f32": "operations a second on f32, peak",
    "flops_bf16": "operations a second on bf16 and f16 with f32 sums, peak, dense",
    "flops_f8": "operations a second on 8-bit floats, peak, dense",
    "flops_int8": "operations a second on 8-bit integers, peak, dense",
    "link_bandwidth": "bytes a second from one device to the others, one direction, peak",
    "bandwidth_efficiency": "share of the bandwidth that reading weights and KV reaches",
    "compute_efficiency": "share of the peak that a step's matrix products reach",
    "attention_efficiency": "share of the peak that attention over a prompt reaches",
    "link_efficiency": "share of the link's bandwidth that an all-reduce reaches",
    "link_latency": "seconds of one small all-reduce",
    "layer_overhead": "seconds a layer loses between its kernels, in every step",
    "layer_launch": "seconds in which the host launches a layer, without captured graphs the least that it takes",
    "host_fixed": "seconds between steps that the device waits for the host",
    "host_per_sequence": "seconds of the same for each row",
    "runtime": "bytes of context, libraries and buffers, seen by the memory budget",
    "unseen": "bytes taken beside the memory budget",
}
"""Every figure that a sheet may have, with its unit."""

_OPTIONAL: Final = frozenset(name for name in MEANINGS if name.startswith(("flops_", "link_", "layer_launch")))
_SHARES: Final = tuple(name for name in MEANINGS if name.endswith("_efficiency"))


@dataclass(frozen=True, slots=True)
class Figure:
    """One number and where it is from."""

    value: float
    source: str


@dataclass(frozen=True, slots=True)
class DeviceSheet:
    """One kind of device."""

    name: str
    title: str
    most_devices: int
    """How many work as one under tensor parallelism in a usual machine."""
    figures: Mapping[str, Figure]

    def __post_init__(self) -> None:
        """Raises DeviceModelError when a figure is missing, unknown or impossible."""
        for name in MEANINGS:
            if name not in self.figures and name not in _OPTIONAL:
                raise DeviceModelError(f"the device sheet {self.name} lacks the figure {name}: {MEANINGS[name]}.")
        for name, figure in self.figures.items():
            if name not in MEANINGS:
                raise DeviceModelError(f"the device sheet {self.name} has an unknown figure {name}.")
            if not figure.value >= 0 or (name in _SHARES and not 0 < figure.value <= 1):
                raise DeviceModelError(f"the device sheet {self.name}: {name} is {figure.value}; {MEANINGS[name]}.")

    def __getitem__(self, name: str) -> float:
        """A figure's value. Raises DeviceModelError when the sheet lacks it."""
        if name == "layer_launch" and name not in self.figures:
            return 0.0  # graphs are captured: nothing waits for the host's launches
        if name not in self.figures:
            raise DeviceModelError(f"the device sheet {self.name} lacks the figure {name}: {MEANINGS[name]}.")
        return self.figures[name].value

    def flops(self, precision: str) -> float:
        """Peak operations a second on f32, bf16, f8 or int8.

        Raises:
            DeviceModelError: the device has no arithmetic of that precision (or the sheet does not know it).
        """
        if f"flops_{precision}" not in self.figures:
            known = sorted(name.removeprefix("flops_") for name in self.figures if name.startswith("flops_"))
            raise DeviceModelError(
                f"{self.title} multiplies in {', '.join(known)}, not in {precision}: choose other weights."
            )
        return self[f"flops_{precision}"]

    def with_figures(self, source: str, **values: float) -> DeviceSheet:
        """A copy with other values, each said to be from `source`."""
        changed = {name: Figure(float(value), source) for name, value in values.items()}
        return DeviceSheet(self.name, self.title, self.most_devices, {**self.figures, **changed})


def load_sheet(path: Path) -> DeviceSheet:
    """Read a sheet. Raises DeviceModelError when it cannot be used."""
    return _sheet(load(path))


def parse_sheet(text: str, source: str) -> DeviceSheet:
    """The same from a text."""
    return _sheet(parse(text, source))


def cpu_sheet(
    *, memory: int, bandwidth: float, flops_f32: float, name: str = "cpu", source: str = "given by the user"
) -> DeviceSheet:
    """A sheet for a processor, from what a person knows or measures of it.

    Args:
        memory: bytes that the process may use.
        bandwidth: bytes a second that reading memory reaches with all threads (STREAM, not the data sheet).
        flops_f32: operations a second that a large f32 matrix product reaches.
        name: of the sheet.
        source: where the three are from.
    """
    reached = "the peaks given are measured ones, which leaves what a step loses around its matrix products: assumed"
    assumed = "assumed"
    return DeviceSheet(
        name,
        "processor, parameters given",
        1,
        {
            "memory": Figure(float(memory), source),
            "bandwidth": Figure(bandwidth, source),
            "flops_f32": Figure(flops_f32, source),
            # bf16 weights are widened to f32 where the processor has no arithmetic for them.
            "flops_bf16": Figure(flops_f32, source),
            "bandwidth_efficiency": Figure(0.9, reached),
            "compute_efficiency": Figure(0.8, reached),
            "attention_efficiency": Figure(0.3, reached),
            "layer_overhead": Figure(50e-6, assumed),
            "host_fixed": Figure(0.5e-3, assumed),
            "host_per_sequence": Figure(10e-6, assumed),
            "runtime": Figure(float(300 << 20), assumed),
            "unseen": Figure(float(100 << 20), assumed),
        },
    )


def _sheet(root: Section) -> DeviceSheet:
    figures = root.section("figure")
    read: dict[str, Figure] = {}
    for name in figures:
        figure = figures.section(name)
        read[name] = Figure(figure.value("value", float), figure.value("source", str))
        figure.done()
    sheet = DeviceSheet(root.value("name", str), root.value("title", str), root.whole("most_devices", 1, least=1), read)
    root.done()
    return sheet
