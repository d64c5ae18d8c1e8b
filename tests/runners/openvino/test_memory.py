from pathlib import Path

import numpy as np
import pytest

from chairlift.runners.openvino.memory import (
    MIB,
    AllowedMemory,
    MemoryReport,
    allowed_memory,
    format_bytes,
    peak_resident_bytes,
    reset_peak,
    resident_bytes,
    return_freed_memory,
)

GIB = 1024 * MIB


def machine(root: Path, groups: str = "") -> Path:
    """A file system that tells of 8 GiB, 6 of them available, and of these control groups."""
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/meminfo").write_text(f"MemTotal: {8 * GIB // 1024} kB\nMemAvailable: {6 * GIB // 1024} kB\n")
    (root / "proc/self/cgroup").write_text(groups)
    return root


def write_group(root: Path, folder: str, names: tuple[str, str, str], limit: str, used: int, cached: int = 0) -> None:
    """A memory control group: limit, use, and how much of the use is file cache that can be dropped."""
    group = root / "sys/fs/cgroup" / folder
    group.mkdir(parents=True, exist_ok=True)
    (group / names[0]).write_text(limit)
    (group / names[1]).write_text(str(used))
    (group / "memory.stat").write_text(f"anon 1\n{names[2]} {cached}\n")


V2 = ("memory.max", "memory.current", "inactive_file")
V1 = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")


def test_without_control_groups_the_machine_decides(tmp_path: Path) -> None:
    """MemTotal and MemAvailable."""
    assert allowed_memory(machine(tmp_path)) == AllowedMemory(8 * GIB, 6 * GIB, "machine")


def test_a_group_of_version_2_limits(tmp_path: Path) -> None:
    """The tightest limit on the way up counts, and droppable file cache is not used memory."""
    root = machine(tmp_path, "0::/a/b\n")
    write_group(root, "a/b", V2, "max", GIB)
    write_group(root, "a", V2, str(4 * GIB), 2 * GIB, cached=GIB)

    assert allowed_memory(root) == AllowedMemory(4 * GIB, 3 * GIB, "control group")


def test_a_group_of_version_1_limits(tmp_path: Path) -> None:
    """The controller's own tree is read; "unlimited" there is a huge number."""
    root = machine(tmp_path, "5:cpu:/x\n4:memory:/job\n")
    write_group(root, "memory/job", V1, str(2 * GIB), GIB // 2)
    write_group(root, "memory", V1, str(1 << 62), 7 * GIB)

    assert allowed_memory(root) == AllowedMemory(2 * GIB, 2 * GIB - GIB // 2, "control group")


def test_inside_a_container_the_mounted_group_counts(tmp_path: Path) -> None:
    """The path in /proc/self/cgroup is the host's and is not there: the limit lies at the mount's root."""
    root = machine(tmp_path, "0::/docker/abc\n")
    write_group(root, ".", V2, str(GIB), GIB // 4)

    assert allowed_memory(root) == AllowedMemory(GIB, GIB - GIB // 4, "control group")


def test_a_group_that_is_full_leaves_nothing(tmp_path: Path) -> None:
    """More used than allowed is not a negative amount."""
    root = machine(tmp_path, "0::/a\n")
    write_group(root, "a", V2, str(GIB), 2 * GIB)

    assert allowed_memory(root).available == 0


def test_a_system_without_proc_tells_its_size(tmp_path: Path) -> None:
    """Where /proc is absent, the size comes from the system's configuration."""
    allowed = allowed_memory(tmp_path)

    assert allowed.total == allowed.available > 0


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="the peak can be reset on Linux only")
def test_the_peak_remembers_what_was_freed_until_it_is_reset() -> None:
    """64 MiB taken and freed show in the peak, not in what is resident."""
    assert reset_peak()
    block = np.ones(64 * MIB, np.uint8)
    assert block[-1] == 1
    del block
    return_freed_memory()
    assert peak_resident_bytes() - resident_bytes() > 48 * MIB

    assert reset_peak()

    assert peak_resident_bytes() - resident_bytes() < 16 * MIB


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 MiB"), (1440 * MIB, "1,440 MiB"), (10 * GIB, "10.0 GiB"), (12 * GIB, "12.0 GiB")]
)
def test_bytes_are_written_in_mib_until_ten_gib(count: int, text: str) -> None:
    """Small sums in MiB, large in GiB."""
    assert format_bytes(count) == text


def test_the_report_prints_the_sum() -> None:
    """Every part, the sum and the budget it has to stay under."""
    report = MemoryReport(
        allowed=AllowedMemory(16 * GIB, 12 * GIB, "machine"),
        share=0.5,
        before=50 * MIB,
        stored_weights=90 * MIB,
        weights_and_runtime=300 * MIB,
        activations=40 * MIB,
        largest_step="512 tokens in 32 rows, context 2,048",
        block_size=32,
        block_bytes=MIB,
        num_blocks=99,
        decided_by="--x",
        kv_dtype="f16",
    )

    assert report.kv_pool == 100 * MIB
    assert report.total == 490 * MIB
    assert str(report).splitlines() == [
        "memory: 16.0 GiB allowed (machine), 12.0 GiB available at start, share 0.50",
        "  process before the model       50 MiB",
        "  weights and runtime           300 MiB   90 MiB as stored",
        "  activations                    40 MiB   512 tokens in 32 rows, context 2,048",
        "  KV cache                      100 MiB   99 blocks of 32 = 3,168 tokens in f16, 32.0 KiB a token; by --x",
        "  in all                        490 MiB   of 8,192 MiB",
    ]
