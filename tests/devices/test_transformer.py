import json
from pathlib import Path
from typing import Any

import pytest

from chairlift.core.errors import DeviceModelError
from chairlift.devices.registry import find_config, model_names, published_parameters
from chairlift.devices.transformer import KV_BYTES, WEIGHT_FORMATS, load_config, parse_config

LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 96,
    "vocab_size": 100,
    "max_position_embeddings": 512,
    "tie_word_embeddings": False,
}
GPT2: dict[str, Any] = {
    "model_type": "gpt2",
    "n_embd": 768,
    "n_layer": 12,
    "n_head": 12,
    "n_positions": 1024,
    "vocab_size": 50257,
}
OPT: dict[str, Any] = {
    "model_type": "opt",
    "hidden_size": 768,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "ffn_dim": 3072,
    "max_position_embeddings": 2048,
    "vocab_size": 50272,
}


@pytest.mark.parametrize("name", model_names())
def test_a_built_in_model_has_as_many_parameters_as_its_card_says(name: str) -> None:
    """To the last one, norms and biases included."""
    assert find_config(name).parameters == published_parameters(name)


MIXTRAL: dict[str, Any] = {
    "model_type": "mixtral",
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "intermediate_size": 14336,
    "num_local_experts": 8,
    "num_experts_per_tok": 2,
    "vocab_size": 32000,
    "tie_word_embeddings": False,
}
QWEN3_30B: dict[str, Any] = {
    "model_type": "qwen3_moe",
    "hidden_size": 2048,
    "num_hidden_layers": 48,
    "num_attention_heads": 32,
    "num_key_value_heads": 4,
    "head_dim": 128,
    "intermediate_size": 6144,
    "moe_intermediate_size": 768,
    "num_experts": 128,
    "num_experts_per_tok": 8,
    "decoder_sparse_step": 1,
    "mlp_only_layers": [],
    "vocab_size": 151936,
    "tie_word_embeddings": False,
}


@pytest.mark.parametrize(
    ("config", "parameters", "active"),
    [(MIXTRAL, 46_702_792_704, 12.9e9), (QWEN3_30B, 30_532_122_624, 3.3e9)],
)
def test_a_mixture_of_experts_has_all_of_them_and_multiplies_with_few(
    config: dict[str, Any], parameters: int, active: float
) -> None:
    """Mixtral 8x7B and Qwen3 30B-A3B: their cards' totals, and as many active parameters as was announced."""
    mixture = parse_config(config, name="mixture")

    assert mixture.parameters == parameters
    assert mixture.active_weights + 2 * mixture.head_weights == pytest.approx(active, rel=0.02)


def test_a_step_reads_the_experts_that_its_tokens_choose() -> None:
    """One token reads what it is multiplied with; thousands read everything; never less for more."""
    mixture = parse_config(QWEN3_30B, name="mixture")
    read = [mixture.read_weights(1 << i) for i in range(14)]

    assert read[0] == pytest.approx(mixture.active_weights)
    assert read[-1] == pytest.approx(mixture.layer_matrix_weights)
    assert read == sorted(read)
    assert find_config("qwen3-8b").read_weights(1) == find_config("qwen3-8b").layer_matrix_weights


@pytest.mark.parametrize(("config", "parameters"), [(GPT2, 124_439_808), (OPT, 125_239_296)])
def test_older_families_are_counted_by_their_own_names_and_parts(config: dict[str, Any], parameters: int) -> None:
    """GPT-2 and OPT-125M: other keys, two matrices in the feed-forward, biases, learned positions, a tied head."""
    assert parse_config(config, name="old").parameters == parameters


def test_keys_and_values_of_a_token() -> None:
    """Llama 3.1 8B: 128 KiB in 16 bits (32 layers x 8 heads x 128 x 2 x 2 bytes), half of it in 8."""
    config = find_config("llama-3.1-8b")

    assert config.kv_bytes_per_token(KV_BYTES["bf16"]) == 128 << 10
    assert config.kv_bytes_per_token(KV_BYTES["f8"]) == 64 << 10
    assert find_config("smollm2-135m").kv_bytes_per_token(KV_BYTES["f16"]) == 23_040


def test_quantized_weights_leave_embeddings_in_16_bits() -> None:
    """A tiny model: 2 layers of 64 x (8 + 4) x 16 and 3 x 64 x 96 weights, two tables of 100 x 64, five norms of 64."""
    config = parse_config(LLAMA, name="tiny")
    layers = 2 * (64 * 16 * (2 * 4 + 2 * 2) + 3 * 64 * 96)
    rest = 2 * 100 * 64 + 5 * 64

    assert config.parameters == layers + rest
    assert config.weight_bytes(WEIGHT_FORMATS["bf16"]) == 2 * (layers + rest)
    assert config.weight_bytes(WEIGHT_FORMATS["f8"]) == layers + 2 * rest
    assert config.weight_bytes(WEIGHT_FORMATS["int4"]) == layers * 133 // 256 + 2 * rest
    assert config.weight_bytes(WEIGHT_FORMATS["f32"]) == 4 * (layers + rest)


def test_the_shape_for_counting_work_multiplies_as_much() -> None:
    """An ungated feed-forward is given two thirds of its width, so that three matrices stand for two."""
    bloom = find_config("bloom-176b")
    shape = bloom.shape(WEIGHT_FORMATS["bf16"], 2)

    assert shape.linear_flops_per_token == pytest.approx(2 * bloom.layer_matrix_weights, rel=1e-4)
    assert shape.kv_bytes_per_token == bloom.kv_bytes_per_token(2)
    assert shape.layer_weight_bytes == 2 * bloom.layer_matrix_weights


def test_a_config_is_read_from_a_file_or_a_models_directory(tmp_path: Path) -> None:
    """The directory gives the model its name; a config for several media has the text's inside."""
    folder = tmp_path / "my-model"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"model_type": "some_vlm", "text_config": LLAMA}), "utf-8")

    config = load_config(folder)

    assert config.name == "my-model"
    assert config == load_config(folder / "config.json")
    assert config.num_kv_heads == 2


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        ({"num_experts": 8, "num_experts_per_tok": 2, "decoder_sparse_step": 2}, "only some layers have experts"),
        ({"num_experts": 8}, "num_experts_per_tok is None"),
        ({"num_experts": "eight"}, "number of experts is 'eight'"),
        ({"n_routed_experts": 64}, "a mixture of experts"),
        ({"kv_lora_rank": 512}, "latent attention"),
        ({"hidden_size": None}, "hidden_size is None"),
        ({"vocab_size": "many"}, "vocab_size is 'many'"),
        ({"num_hidden_layers": 0}, "num_hidden_layers is 0"),
    ],
)
def test_what_cannot_be_described_is_refused_by_name(extra: dict[str, Any], message: str) -> None:
    """Other kinds of layers, and sizes that are missing or impossible."""
    with pytest.raises(DeviceModelError, match=message):
        parse_config({**LLAMA, **extra}, name="other")


@pytest.mark.parametrize("text", ["{", "[]"])
def test_a_file_that_is_no_config_is_refused(text: str, tmp_path: Path) -> None:
    """Broken JSON, and JSON that is no object."""
    (tmp_path / "config.json").write_text(text, "utf-8")

    with pytest.raises(DeviceModelError, match=r"config\.json"):
        load_config(tmp_path)
