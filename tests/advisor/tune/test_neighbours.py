from typing import Any

from chairlift.advisor.evaluate.pool import Pool
from chairlift.advisor.evaluate.run import evaluate
from chairlift.advisor.evaluate.targets import Targets
from chairlift.advisor.tune.neighbours import Sensitivity, beside, sensitivities
from chairlift.devices.registry import find_device_model
from tests.advisor.evaluate.making import problem, rounds

LOAD = rounds("arrivals=burst arrivals.size=24 prompt=20 output=10")
H100 = find_device_model("h100-sxm/llama-3.1-8b")


def of(settings: dict[str, Any], *names: str, targets: Targets | None = None, **more: Any) -> dict[str, Sensitivity]:
    """Half and double of each, on the toy device."""
    targets = targets or Targets()
    asked = problem(LOAD, targets, **more)
    chosen = evaluate(asked, settings, LOAD.first)
    with Pool(1) as pool:
        return {one.name: one for one in sensitivities(pool, asked, LOAD.first, targets, chosen, names)}


def test_half_and_double_of_every_kind_of_value() -> None:
    """Numbers are halved and doubled; a switch has one other side; a delay of zero only a larger one."""
    found = of(
        {"max_num_seqs": 8, "watermark": 0.02},
        "max_num_seqs", "watermark", "enable_chunked_prefill", "prefill_interval",
    )  # fmt: skip
    values = {name: tuple(c and c.value for c in (one.half, one.double)) for name, one in found.items()}
    delay = of({"policy": "dynamic", "max_queue_delay": 0}, "max_queue_delay")["max_queue_delay"]

    assert values == {
        "max_num_seqs": (4, 16),
        "watermark": (0.01, 0.04),
        "enable_chunked_prefill": (False, None),
        "prefill_interval": (None, 2),
    }
    assert delay.half is None
    assert delay.double is not None
    assert delay.double.value > 0


def test_more_sequences_are_better_until_a_limit_binds() -> None:
    """What would be gained and what is broken."""
    free = of({"max_num_seqs": 8}, "max_num_seqs")["max_num_seqs"]
    limit = of({"max_num_seqs": 8}, "max_num_seqs", targets=Targets(ttft_p99=2_000_000_000, itl_p99=200_000_000))

    assert free.half is not None
    assert free.double is not None
    assert (free.half.objective or 0) < -0.1
    assert (free.double.objective or 0) > 0.1
    assert "more is better" in free.binding
    assert limit["max_num_seqs"].spent is not None


def test_a_broken_limit_binds() -> None:
    """Named with its direction."""
    found = of({"max_num_seqs": 12}, "max_num_seqs", targets=Targets(itl_p99=23_000_000))["max_num_seqs"]

    assert found.double is not None
    assert [one.flag for one in found.double.broken] == ["--itl-p99"]  # a millisecond for each of 24 sequences
    assert found.binding == "p99 time between tokens (more breaks it)"


def test_what_does_not_run_binds() -> None:
    """Memory, the load's lengths."""
    asked = problem(LOAD, device=H100)
    asked = asked.on(asked.device, num_kv_blocks=None)
    chosen = evaluate(asked, {}, LOAD.first)
    with Pool(1) as pool:
        share, length = sensitivities(
            pool, asked, LOAD.first, Targets(), chosen, ["gpu_memory_utilization", "max_model_len"]
        )

    assert share.double is not None
    assert share.double.refusal_kind == "out_of_memory"
    assert share.binding == "memory (more does not run)"
    assert length.binding == "the load's lengths (less does not run)"


def test_what_makes_no_difference_is_said() -> None:
    """The watermark where memory is no matter."""
    assert "no difference" in of({}, "watermark")["watermark"].binding


def test_sequences_and_the_steps_tokens_give_way_to_one_another() -> None:
    """More rows than tokens in a step cannot be, and says nothing about either."""
    settings = {"policy": "continuous", "max_num_seqs": 64, "max_num_batched_tokens": 100}

    assert beside(settings, "max_num_seqs", 128)["max_num_batched_tokens"] == 128
    assert beside(settings, "max_num_batched_tokens", 50)["max_num_seqs"] == 50
    assert beside(settings, "max_num_seqs", 32) == settings | {"max_num_seqs": 32}
