from pathlib import Path
from typing import Any

import pytest

from chairlift.core.config import SchedulerConfig
from chairlift.core.errors import ConfigError
from chairlift.runners.openvino.settings import DEFAULT_SHARE, RunnerSettings, StepLimits, allowed_threads


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("threads", -1, "--threads is -1"),
        ("kv_cache_dtype", "u8", "--kv-cache-dtype is 'u8'; it must be one of f16, f32"),
        ("gpu_memory_utilization", 0.0, r"--gpu-memory-utilization is 0.0; it is a share"),
        ("gpu_memory_utilization", 1.5, "above 0, at most 1"),
        ("kv_cache_memory", 0, "--kv-cache-memory is 0"),
        ("num_kv_blocks", -4, "--num-kv-blocks is -4"),
    ],
)
def test_a_setting_that_cannot_be_names_its_flag(field: str, value: Any, message: str) -> None:
    """Each refusal names the flag and what would do."""
    with pytest.raises(ConfigError, match=message):
        RunnerSettings(**{field: value})


def test_the_default_share_applies_until_another_is_given() -> None:
    """Half of the memory, or what was asked for."""
    assert RunnerSettings().share == DEFAULT_SHARE
    assert RunnerSettings(gpu_memory_utilization=0.9).share == 0.9


def test_a_cache_element_takes_two_or_four_bytes() -> None:
    """f16 and f32."""
    assert [RunnerSettings(kv_cache_dtype=kind).kv_element_bytes for kind in ("f16", "f32")] == [2, 4]


def test_the_largest_step_of_any_policy_is_reserved_for() -> None:
    """Rows: the most of the three policies, cut by the tokens of a step."""
    config = SchedulerConfig(
        max_num_seqs=4, batch_size=8, max_batch_size=16, max_num_batched_tokens=64, max_model_len=99
    )

    assert StepLimits.of(config) == StepLimits(max_model_len=99, max_tokens=64, max_rows=16)
    assert StepLimits.of(SchedulerConfig(max_num_seqs=4, batch_size=80, max_num_batched_tokens=64)).max_rows == 64


def test_threads_follow_affinity(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without quotas: the CPUs the process may run on."""
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(12)), raising=False)

    assert allowed_threads(tmp_path) == 12


@pytest.mark.parametrize(
    ("quota", "threads"), [("max 100000", 12), ("250000 100000", 3), ("50000 100000", 1), ("", 12)]
)
def test_threads_follow_a_quota_of_version_2(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quota: str, threads: int
) -> None:
    """2.5 CPUs are worth 3 threads; half of one is worth one; no limit or a damaged file limits nothing."""
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(12)), raising=False)
    folder = tmp_path / "sys/fs/cgroup"
    folder.mkdir(parents=True)
    (folder / "cpu.max").write_text(quota)

    assert allowed_threads(tmp_path) == threads


@pytest.mark.parametrize(("quota", "threads"), [("-1", 12), ("400000", 4)])
def test_threads_follow_a_quota_of_version_1(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quota: str, threads: int
) -> None:
    """-1 is no limit."""
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(12)), raising=False)
    folder = tmp_path / "sys/fs/cgroup/cpu"
    folder.mkdir(parents=True)
    (folder / "cpu.cfs_quota_us").write_text(quota)
    (folder / "cpu.cfs_period_us").write_text("100000")

    assert allowed_threads(tmp_path) == threads
