from typing import Any

import pytest

from chairlift.core.errors import DeviceModelError, OutOfDeviceMemory
from chairlift.core.plan import StepPlan
from chairlift.core.work import work_of
from chairlift.devices.analytic import analytic_model
from chairlift.devices.registry import find_config, find_device_model, find_sheet
from chairlift.devices.shape import StepShape
from chairlift.devices.sheet import cpu_sheet
from chairlift.devices.transformer import parse_config
from tests.core.helpers import any_outcome, make_scheduler, request, submit

MS = 1_000_000


def test_a_decode_reads_all_weights_at_the_stated_bandwidth() -> None:
    """Llama 3.1 8B on an H100: 15.0 GB at 0.85 of 3.35 TB/s and 32 layers' overhead of 30 us."""
    model = find_device_model("h100-sxm", "llama-3.1-8b")

    expected = (13_958_643_712 + 1_050_673_152) / (0.85 * 3.35e12) + 32 * 30e-6
    assert model.step.floor == pytest.approx(expected * 1e15, rel=1e-4)
    assert model.device_time(StepShape.decode(1, 1)) == pytest.approx(expected * 1e9, rel=1e-3)


def test_single_stream_decodes_are_near_what_others_measured() -> None:
    """Llama 3 8B on one H100-class device, 7.0 to 7.4 ms (vLLM PR 11000, SGLang PR 1401); Qwen 2.5 7B in bf16 on an
    L4 over 2,048 positions, 62.3 ms (arXiv 2605.30571). Within a tenth.
    """
    h100 = find_device_model("h100-sxm", "llama-3.1-8b").time(StepShape.decode(1, 128))
    l4 = find_device_model("l4", "qwen2.5-7b").time(StepShape.decode(1, 2048))

    assert h100 == pytest.approx(7.2 * MS, rel=0.1)
    assert l4 == pytest.approx(62.3 * MS, rel=0.1)


def test_a_long_prompt_is_bound_by_arithmetic() -> None:
    """Its time is what the operations of the same plan take at the stated share of the peak, attention apart."""
    model = find_device_model("h100-sxm", "llama-3.1-8b")
    scheduler = make_scheduler(num_blocks=400, max_num_batched_tokens=4096, max_model_len=4097)
    submit(scheduler, request(prompt=4096, max_tokens=1))
    plan = scheduler.plan(0)
    assert isinstance(plan, StepPlan)
    assert model.shape is not None

    work = work_of(plan, model.shape)
    pairs = 4096 * 4097 // 2 * model.shape.attention_flops_per_pair
    seconds = (work.flops - pairs) / (0.6 * 989.4e12) + pairs / (0.5 * 989.4e12)
    scheduler.commit(plan, any_outcome(plan), 1)

    assert model.device_time(StepShape.of(plan)) == pytest.approx(seconds * 1e9, rel=0.05)


def test_two_devices_share_the_work_and_pay_for_talking() -> None:
    """Weights, KV and arithmetic halve; two all-reduces a layer are added, and nothing is on one device."""
    alone, pair = (find_device_model("h200-sxm", "llama-3.1-70b", tensor_parallel=p) for p in (1, 2))

    assert pair.step.per_token == pytest.approx(alone.step.per_token / 2, rel=1e-3)
    assert pair.step.per_context == pytest.approx(alone.step.per_context / 2, rel=1e-3)
    assert alone.step.link_fixed == alone.step.link_per_token == 0
    assert pair.step.link_fixed == pytest.approx(2 * 80 * 8e-6 * 1e15, rel=1e-4)
    sent = 2 * 80 * 8192 * 2 * 2 * (1 / 2)
    assert pair.step.link_per_token == pytest.approx(sent / (0.7 * 450e9) * 1e15, rel=1e-4)
    assert alone.memory is not None
    assert pair.memory is not None
    assert pair.memory.weights == pytest.approx(alone.memory.weights / 2, rel=1e-6)


def test_key_value_heads_are_copied_where_there_are_fewer_than_devices() -> None:
    """Qwen 2.5 7B has four: on four devices each holds one (28 x 128 x 2 x 2 bytes); eight do not divide 28 heads."""
    model = find_device_model("h100-sxm", "qwen2.5-7b", tensor_parallel=4)

    assert model.memory is not None
    assert model.memory.kv_bytes_per_token == 2 * 28 * 128 * 2
    with pytest.raises(DeviceModelError, match="does not divide the 28 attention heads"):
        find_device_model("h100-sxm", "qwen2.5-7b", tensor_parallel=8)


def test_narrower_weights_are_read_faster() -> None:
    """f8 halves the layers' bytes and doubles the arithmetic; int4 is multiplied in 16 bits; 8-bit KV takes half."""
    plain, f8, int4 = (find_device_model("h100-sxm", "qwen3-8b", weights=w) for w in ("bf16", "f8", "int4"))

    assert f8.step.floor < 0.7 * plain.step.floor
    assert f8.step.per_token == pytest.approx(plain.step.per_token / 2, rel=1e-3)
    assert int4.step.floor < f8.step.floor
    assert int4.step.per_token == plain.step.per_token
    small = find_device_model("h100-sxm", "qwen3-8b", kv="f8")
    assert small.memory is not None
    assert plain.memory is not None
    assert small.memory.kv_bytes_per_token * 2 == plain.memory.kv_bytes_per_token


def test_a_70b_model_fits_two_80_gb_devices_and_not_one() -> None:
    """141 GB of weights: refused on one at start, with words; on two there is room for KV."""
    settings: dict[str, Any] = {
        "gpu_memory_utilization": 0.95,
        "block_size": 16,
        "max_num_batched_tokens": 2048,
        "max_rows": 64,
    }
    one, two = (find_device_model("h100-sxm", "llama-3.1-70b", tensor_parallel=p).memory for p in (1, 2))
    assert one is not None
    assert two is not None

    with pytest.raises(OutOfDeviceMemory, match=r"131\.4 GiB of weights"):
        one.plan(**settings)
    assert two.plan(**settings).num_blocks > 500


def test_the_demo_model_on_a_processor() -> None:
    """Two cores that read 17.5 GB/s and multiply 128 GFLOP/s decode SmolLM2 in f32 at 20 to 33 tokens a second."""
    sheet = cpu_sheet(memory=8 << 30, bandwidth=17.5e9, flops_f32=128e9)
    model = analytic_model(find_config("smollm2-135m"), sheet, weights="f32", kv="f32")

    assert 20 < 1e9 / model.time(StepShape.decode(1, 128)) < 33
    assert model.step.link_fixed == 0


def test_an_analytic_model_says_that_it_is_one_and_names_its_figures() -> None:
    """Every figure with its value and source; no error is claimed."""
    model = find_device_model("a100", "mistral-7b")

    assert model.provenance.kind == "analytic, not calibrated"
    assert not model.calibrated
    assert model.provenance.errors == {}
    assert any(note.startswith("bandwidth = 2.039e+12: NVIDIA A100") for note in model.provenance.notes)


@pytest.mark.parametrize(
    ("weights", "kv", "parallel", "message"),
    [
        ("f7", "bf16", 1, "weights in 'f7'"),
        ("bf16", "f7", 1, "keys and values in 'f7'"),
        ("bf16", "bf16", 16, "1 to 8"),
    ],
)
def test_what_the_device_cannot_do_is_refused(weights: str, kv: str, parallel: int, message: str) -> None:
    """Unknown precisions, and more devices than stand together."""
    with pytest.raises(DeviceModelError, match=message):
        analytic_model(find_config("mistral-7b"), find_sheet("h100"), tensor_parallel=parallel, weights=weights, kv=kv)


def test_a_mixture_of_experts_slows_down_with_its_batch() -> None:
    """Two tokens choose nearly twice as many experts as one; a dense model reads the same for both."""
    config = parse_config(
        {
            "hidden_size": 2048,
            "num_hidden_layers": 48,
            "num_attention_heads": 32,
            "num_key_value_heads": 4,
            "moe_intermediate_size": 768,
            "num_experts": 128,
            "num_experts_per_tok": 8,
            "vocab_size": 151_936,
        },
        name="mixture",
    )
    model = analytic_model(config, find_sheet("h100"))
    assert model.step.tokens_table is not None

    one, two, many = (model.parts(StepShape.decode(rows, 1))["matrix products"] for rows in (1, 2, 256))
    assert 1.2 < two / one < 1.8
    assert many == pytest.approx(model.step.floor / 10**6, rel=0.01), "at 256 tokens nearly every expert is read"
    assert model.time(StepShape.prefill(1, 8192)) > model.time(StepShape.decode(256, 1))
