from dataclasses import replace
from typing import Any

import pytest

from chairlift.advisor.memory.advice import MemoryQuestion, advise, alternatives
from chairlift.advisor.memory.described import DescribedModel
from chairlift.advisor.memory.lengths import Lengths
from chairlift.advisor.memory.report import advice_lines, alternative_lines
from chairlift.core.config import SchedulerConfig
from chairlift.core.errors import OutOfDeviceMemory
from chairlift.devices.registry import find_config, find_device_model, find_sheet
from tests.devices.helpers import MEMORY

H100 = find_device_model("h100-sxm", "llama-3.1-8b")


def question(**changes: Any) -> MemoryQuestion:
    """Llama 3.1 8B on an H100, prompts of 1,000 and answers of 250."""
    settings: dict[str, Any] = {"max_num_seqs": 256, "max_model_len": 8192, "max_num_batched_tokens": 2048}
    config = SchedulerConfig(**(settings | changes))
    assert H100.memory is not None
    return MemoryQuestion(H100.memory, config, Lengths.fixed(1000, 250), device=H100, name=H100.name)


def test_the_plan_is_the_device_models_own() -> None:
    """Nothing is reckoned a second time."""
    asked = question()
    assert H100.memory is not None
    plan = H100.memory.plan(gpu_memory_utilization=0.9, block_size=16, max_num_batched_tokens=2048, max_rows=256)

    assert advise(asked, 131_072).plan == plan


def test_what_fits_is_not_what_pays() -> None:
    """Some 400 sequences fit; fewer give nine tenths of their throughput, at less than half of the time between
    tokens.
    """
    advice = advise(question(), 131_072)
    useful = advice.useful

    assert useful is not None
    assert 350 < advice.fitting.nearly_always < 450
    assert useful.useful < advice.fitting.nearly_always / 2
    assert useful.at(useful.useful).between_tokens < useful.at(useful.fits).between_tokens / 2


def test_the_curve_of_the_share_ends_where_more_changes_nothing() -> None:
    """From there on all that may run fit, below it not; the first share that starts holds one full sequence."""
    advice = advise(question(), 131_072)
    by_share = {one.share: one for one in advice.curve}

    assert advice.enough_at is not None
    assert advice.starts_at is not None
    assert by_share[advice.enough_at].sequences >= 256
    assert by_share[round(advice.enough_at - 0.05, 2)].sequences < 256
    assert by_share[advice.starts_at].blocks * 16 >= 8192
    assert by_share[0.05].blocks == 0
    assert by_share[0.05].blocks == 0
    started = [one.blocks for one in advice.curve if one.blocks]
    assert started == sorted(started)
    assert by_share[1.0].blocks == 0  # pool, weights and what the budget does not see exceed the device
    assert "from 1.00 on it does not start" in "\n".join(advice_lines(advice))


def test_a_share_close_to_one_starts_and_fails_later() -> None:
    """MEMORY at 1.0: a pool of 478 MiB leaves 42 of the 72 that the largest step needs."""
    config = SchedulerConfig(max_num_seqs=8, max_model_len=2048, max_num_batched_tokens=512)
    curve = advise(replace(question(), memory=MEMORY, device=None, config=config), 4096).curve

    assert [one.share for one in curve if one.fails_later] == [1.0]


def test_a_setting_below_what_pays_is_named() -> None:
    """16 sequences may run, more would pay."""
    assert advise(question(max_num_seqs=16), 131_072).binding == "max_num_seqs"
    assert advise(question(max_num_seqs=1024), 131_072).binding == "compute"


def test_the_largest_max_model_len_is_the_pool_or_the_model() -> None:
    """Whichever is shorter; without chunked prefill a longer step leaves a smaller pool."""
    asked = replace(question(), memory=MEMORY, device=None, share=0.9)
    asked = replace(asked, config=SchedulerConfig(max_num_seqs=8, max_model_len=2048, max_num_batched_tokens=512))
    advice = advise(asked, 131_072)

    assert advice.longest == 377 * 16
    assert advise(asked, 4096).longest == 4096
    unchunked = advice.longest_unchunked
    # 900 - 450 MiB for L / 8 MiB of activations, 8 MiB of logits and (L / 16 + 1) blocks of 1 MiB
    assert unchunked == 2352
    points = {one.max_model_len: one for one in advice.by_length}
    assert points[2048].whole == 377 // 128
    assert points[2048].blocks_unchunked == 450 - 256 - 8 - 1
    assert points[131_072].blocks_unchunked is None


def test_without_a_device_model_nothing_is_said_of_what_pays() -> None:
    """Memory alone is known: it is then what binds."""
    advice = advise(replace(question(), device=None), 131_072)

    assert advice.useful is None
    assert advice.binding == "max_num_seqs"
    assert advice.to_json()["useful"] is None


def test_a_model_too_large_is_refused_with_what_would_do() -> None:
    """70 billion parameters in 16 bits on one device of 80 GB."""
    device = find_device_model("h100-sxm", "llama-3.1-70b")
    assert device.memory is not None
    asked = replace(question(), memory=device.memory, device=device)

    with pytest.raises(OutOfDeviceMemory, match="--tensor-parallel-size"):
        advise(asked, 131_072)


def test_other_precisions_and_numbers_of_devices() -> None:
    """The same model twice on two devices has more than twice the pool; half the KV precision doubles it."""
    model = DescribedModel(find_config("llama-3.1-70b"), None, "")
    found = {
        (one.weights, one.kv, one.tensor_parallel): one
        for one in alternatives(question(), model, find_sheet("h100-sxm"))
    }

    assert found["bf16", "bf16", 1].tokens == 0
    assert found["bf16", "bf16", 4].tokens > 2 * found["bf16", "bf16", 2].tokens
    assert found["bf16", "f8", 4].tokens == pytest.approx(2 * found["bf16", "bf16", 4].tokens, rel=0.001)
    assert found["int8", "bf16", 1].sequences > 0
    assert "does not fit" in "\n".join(alternative_lines(list(found.values())))


def test_lines_for_people_name_the_flags() -> None:
    """What fits, what pays, the share, the length and the warning."""
    text = "\n".join(advice_lines(advise(question(), 131_072), ["a note"]))

    for expected in (
        "h100-sxm/llama-3.1-8b (analytic, not calibrated)",
        "a note",
        "sequences 99% of the time",
        "useful: 90% of what all that fit give",
        "a larger share changes nothing",
        "largest --max-model-len: 131,072",
        "warning: --max-num-seqs 256 and --max-model-len 8,192 together",
    ):
        assert expected in text
