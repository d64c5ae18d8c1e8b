"""Figures that others published, beside what is reckoned here."""

from typing import Any

import pytest

from chairlift.devices.analytic import analytic_model
from chairlift.devices.memory import MemoryModel
from chairlift.devices.registry import find_config, find_sheet
from chairlift.devices.transformer import WEIGHT_FORMATS, parse_config

GIB = 1 << 30


@pytest.mark.parametrize(
    ("model", "tokens", "gib"),
    [
        ("llama-3.1-8b", 1_024, 0.125),
        ("llama-3.1-8b", 16_000, 1.95),
        ("llama-3.1-8b", 128_000, 15.62),
        ("llama-3.1-70b", 1_024, 0.313),
        ("llama-3.1-70b", 16_000, 4.88),
        ("llama-3.1-70b", 128_000, 39.06),
    ],
)
def test_kv_cache_of_llama_3_1(model: str, tokens: int, gib: float) -> None:
    """Hugging Face's announcement of Llama 3.1 has this table in 16 bits (huggingface.co/blog/llama31)."""
    assert find_config(model).kv_bytes_per_token(2) * tokens / GIB == pytest.approx(gib, abs=0.006)


def test_kv_cache_of_qwen_2_5_7b_in_llama_cpp() -> None:
    """A log of llama.cpp with a model of these sizes: 8,192 tokens in f16 take 448.00 MiB (ollama issue 8990)."""
    assert find_config("qwen2.5-7b").kv_bytes_per_token(2) * 8_192 == 448 * (1 << 20)


def test_kv_cache_of_qwen3_235b_on_four_gpus_in_sglang() -> None:
    """SGLang's log: 367,404 tokens, keys 8.23 GB on each of four (vllm issue 21348). One key-value head each."""
    sizes: dict[str, Any] = {
        "model_type": "qwen3_moe",
        "num_hidden_layers": 94,
        "hidden_size": 4096,
        "num_attention_heads": 64,
        "num_key_value_heads": 4,
        "head_dim": 128,
        "moe_intermediate_size": 1536,
        "num_experts": 128,
        "num_experts_per_tok": 8,
        "vocab_size": 151_936,
    }
    config = parse_config(sizes, name="qwen3-235b-a22b")

    keys = config.kv_bytes_per_token(2) // 4 // 2 * 367_404

    assert keys / GIB == pytest.approx(8.23, abs=0.006)
    assert config.parameters == pytest.approx(235e9, rel=0.002)


def test_weights_of_llama_3_1_70b_in_8_bits() -> None:
    """VLLM's log: loading took 67.7229 GB, which are GiB (vllm PR 12569, w8a8)."""
    size = find_config("llama-3.1-70b").weight_bytes(WEIGHT_FORMATS["int8"])

    assert size / GIB == pytest.approx(67.7229, rel=0.001)


def test_weights_of_a_14b_on_two_gpus() -> None:
    """VLLM's log: 13.9476 GB on each of two (vllm issue 13061, Qwen 2.5 14B's sizes); ours are 1.4% below."""
    sheet = find_sheet("rtx-4090")
    memory = analytic_model(find_config("qwen2.5-14b"), sheet, tensor_parallel=2).memory

    assert memory is not None
    assert memory.weights / GIB == pytest.approx(13.9476, rel=0.015)


def test_blocks_of_llama_3_1_70b_in_8_bits_on_one_h100() -> None:
    """VLLM's log: 1,381 blocks of 16 at a share of 0.98 (vllm PR 12569; the GPU is not named). What is left after 67.7
    GiB of weights is a small difference of large numbers: runtime and activations that nobody published decide it.
    """
    model = analytic_model(find_config("llama-3.1-70b"), find_sheet("h100-sxm"), weights="int8")
    assert model.memory is not None
    plan = model.memory.plan(gpu_memory_utilization=0.98, block_size=16, max_num_batched_tokens=2048, max_rows=1024)

    assert plan.num_blocks == pytest.approx(1_381, rel=0.25)


def test_why_a_longer_max_model_len_left_fewer_blocks() -> None:
    """Vllm issue 2509: at max_model_len 20,480 there were 4,485 blocks, at 50,000 only 758. Without chunked prefill the
    largest step is as long as max_model_len, and its activations come out of the pool: a line through both points. Its
    slope, in blocks a token, is what an activation of 129 KiB a token gives with blocks of 1 MiB.
    """
    block, slope = 1 << 20, (4_485 - 758) / (50_000 - 20_480)
    per_token = int(slope * block)
    memory = MemoryModel(
        capacity=24 * GIB,
        weights=0,
        runtime=24 * GIB - (4_485 + 1) * block - 20_480 * per_token,
        kv_bytes_per_token=block // 16,
        activation_per_token=per_token,
    )

    def blocks(length: int) -> int:
        settings: dict[str, Any] = {"gpu_memory_utilization": 1.0, "block_size": 16, "max_rows": 1}
        return memory.plan(max_num_batched_tokens=length, **settings).num_blocks

    assert per_token // 1024 == 129
    assert (blocks(20_480), blocks(50_000)) == (4_485, 758)
