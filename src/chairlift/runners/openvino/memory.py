"""Memory: what this process may take, what it takes, and what is left for the KV pool."""

from __future__ import annotations

import ctypes
import os
import resource
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class AllowedMemory:
    """Bytes that this process and what runs beside it may use together."""

    total: int
    """The machine's memory, or the tightest limit of a control group above this process."""
    available: int
    """What could be taken now without pushing anything out but file cache."""
    limited_by: str
    """machine, or control group."""


def allowed_memory(root: Path = Path("/")) -> AllowedMemory:
    """Read /proc/meminfo and the limits of control groups, version 1 and 2; elsewhere ask the system for its size.

    Args:
        root: where /proc and /sys are looked for.
    """
    meminfo = _fields(root / "proc/meminfo")
    if "MemTotal" not in meminfo:
        total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        return AllowedMemory(total, total, "machine")
    total = meminfo["MemTotal"] * 1024
    available = meminfo.get("MemAvailable", meminfo.get("MemFree", 0)) * 1024
    limited_by = "machine"
    for limit, used in _group_limits(root):
        if limit < total:
            total, limited_by = limit, "control group"
        available = min(available, max(0, limit - used))
    return AllowedMemory(total, available, limited_by)


def _group_limits(root: Path) -> Iterator[tuple[int, int]]:
    """Limit and use, less file cache that can be dropped, of each memory control group above this process."""
    try:
        lines = (root / "proc/self/cgroup").read_text("utf-8").splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            base, names = root / "sys/fs/cgroup", ("memory.max", "memory.current", "inactive_file")
        elif "memory" in controllers.split(","):
            base = root / "sys/fs/cgroup/memory"
            names = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
        else:
            continue
        group = base / path.lstrip("/")
        # Inside a container the path may be the host's: then the container's own group is mounted at the base.
        for folder in (group, *group.parents):
            limit, used = _integer(folder / names[0]), _integer(folder / names[1])
            if limit is not None and used is not None:
                yield limit, max(0, used - _fields(folder / "memory.stat").get(names[2], 0))
            if folder == base:
                break


def _integer(path: Path) -> int | None:
    """The file's number, None when it is absent or no number (memory.max says `max`)."""
    try:
        return int(path.read_text("ascii"))
    except (OSError, ValueError):
        return None


def _fields(path: Path) -> dict[str, int]:
    """Lines of a name and a number, with or without a colon and a unit; empty when the file is absent."""
    try:
        lines = path.read_text("utf-8").splitlines()
    except OSError:
        return {}
    words = (line.replace(":", " ").split() for line in lines)
    return {word[0]: int(word[1]) for word in words if len(word) > 1 and word[1].isdecimal()}


def resident_bytes() -> int:
    """Memory of this process that lies in RAM, file maps included. Where that is not told: its peak."""
    fields = _fields(Path("/proc/self/status"))
    return fields["VmRSS"] * 1024 if "VmRSS" in fields else _peak_by_rusage()


def peak_resident_bytes() -> int:
    """The largest resident_bytes() since start or reset_peak()."""
    fields = _fields(Path("/proc/self/status"))
    return fields["VmHWM"] * 1024 if "VmHWM" in fields else _peak_by_rusage()


def _peak_by_rusage() -> int:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def reset_peak() -> bool:
    """Let peak_resident_bytes() start anew. False where the system does not offer that (Linux does)."""
    try:
        Path("/proc/self/clear_refs").write_text("5", "ascii")
    except OSError:
        return False
    return True


def return_freed_memory() -> None:
    """Give memory that was freed, but kept for reuse by glibc's allocator, back to the system; elsewhere nothing."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def format_bytes(count: int) -> str:
    """MiB below 10 GiB, else GiB: `1,440 MiB`, `11.7 GiB`."""
    return f"{count / MIB:,.0f} MiB" if count < 10 * 1024 * MIB else f"{count / MIB / 1024:,.1f} GiB"


@dataclass(frozen=True, slots=True)
class MemoryReport:
    """Where the memory goes. Bytes; before + weights + activations + kv_pool <= budget when the share decides."""

    allowed: AllowedMemory
    share: float
    """gpu_memory_utilization."""
    before: int
    """What the process took before the model was opened."""
    stored_weights: int
    """The model's tensors as stored on disk, for comparison."""
    weights_and_runtime: int
    """Measured: growth by the compiled model, its packed weights and the runtime, after single-token and longer
    steps."""
    activations: int
    """Measured: growth of the peak by the largest permitted step."""
    largest_step: str
    """Which step that was, in words."""
    block_size: int
    block_bytes: int
    num_blocks: int
    """Usable blocks."""
    decided_by: str
    """The setting that gave num_blocks."""
    kv_dtype: str

    @property
    def budget(self) -> int:
        """The share of the allowed memory."""
        return int(self.allowed.total * self.share)

    @property
    def kv_pool(self) -> int:
        """All blocks, the scratch block included."""
        return (self.num_blocks + 1) * self.block_bytes

    @property
    def total(self) -> int:
        return self.before + self.weights_and_runtime + self.activations + self.kv_pool

    def __str__(self) -> str:
        """The sum as start-up prints it."""
        tokens = self.num_blocks * self.block_size
        token_kib = self.block_bytes / self.block_size / 1024
        pool = (
            f"{self.num_blocks:,} blocks of {self.block_size} = {tokens:,} tokens in {self.kv_dtype}, "
            f"{token_kib:.1f} KiB a token; by {self.decided_by}"
        )
        rows = (
            ("process before the model", self.before, ""),
            ("weights and runtime", self.weights_and_runtime, f"{format_bytes(self.stored_weights)} as stored"),
            ("activations", self.activations, self.largest_step),
            ("KV cache", self.kv_pool, pool),
            ("in all", self.total, f"of {format_bytes(self.budget)}"),
        )
        head = (
            f"memory: {format_bytes(self.allowed.total)} allowed ({self.allowed.limited_by}), "
            f"{format_bytes(self.allowed.available)} available at start, share {self.share:.2f}"
        )
        return "\n".join(
            [head, *(f"  {name:<26}{format_bytes(size):>11}   {note}".rstrip() for name, size, note in rows)]
        )
