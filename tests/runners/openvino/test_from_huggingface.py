import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from safetensors.numpy import load_file, save_file

from chairlift.core.errors import CorruptModel, UnsupportedModel
from chairlift.runners.openvino.architecture import inverse_frequencies
from chairlift.runners.openvino.from_huggingface import read_directory
from chairlift.runners.openvino.safetensors_files import SINGLE
from chairlift.runners.openvino.tensors import Encoding
from tests.runners.openvino.helpers import MODELS


def changed(folder: Path, changes: dict[str, Any], source: str = "llama-mha") -> Path:
    """A tiny model with another config.json; None removes a key."""
    target = folder / source
    shutil.copytree(MODELS / source, target)
    path = target / "config.json"
    config = {**json.loads(path.read_text()), **changes}
    path.write_text(json.dumps({key: value for key, value in config.items() if value is not None}))
    return target


def test_sizes_come_from_the_config() -> None:
    """The tiny tied Llama: two heads of 32 on one key-value head, wider than hidden / heads."""
    arch = read_directory(MODELS / "llama-tied").architecture

    sizes = (arch.family, arch.num_layers, arch.hidden_size, arch.num_heads, arch.num_kv_heads, arch.head_dim)
    assert sizes == ("llama", 2, 32, 2, 1, 32)


@pytest.mark.parametrize(
    ("model", "encoding"),
    [("llama-mha", Encoding.F32), ("llama-rope3", Encoding.F16), ("llama-tied", Encoding.BF16)],
)
def test_weights_keep_their_encoding(model: str, encoding: Encoding) -> None:
    """F32, F16 (in shards) and BF16 stay what they are."""
    assert {tensor.encoding for tensor in read_directory(MODELS / model).layers[1]} == {encoding}


def test_biases_and_tied_embeddings_show_in_the_tensors() -> None:
    """Qwen2 has query, key and value biases, and its embedding is its head."""
    qwen2 = read_directory(MODELS / "qwen2")

    assert qwen2.head is None
    assert qwen2.layers[0].key.bias is not None
    assert qwen2.layers[0].down.bias is None


def test_the_tokenizer_is_described_by_the_folder() -> None:
    """The directory is handed on."""
    assert read_directory(MODELS / "qwen2").tokenizer == MODELS / "qwen2"


def test_an_old_config_says_theta_and_scaling_apart(tmp_path: Path) -> None:
    """rope_theta and rope_scaling, as transformers wrote them before version 5."""
    old = {"rope_parameters": None, "rope_theta": 500.0, "rope_scaling": {"type": "linear", "factor": 2.0}}

    frequencies = read_directory(changed(tmp_path, old)).architecture.inverse_frequencies

    assert frequencies.tolist() == pytest.approx((inverse_frequencies(16, 500.0) / 2).tolist())


@pytest.mark.parametrize(
    ("model", "changes", "window"),
    [
        ("mistral", {}, 128),
        ("mistral", {"sliding_window": None}, None),
        ("qwen2", {"sliding_window": 64}, None),
        ("qwen2", {"sliding_window": 64, "use_sliding_window": True}, 64),
        ("llama-mha", {"sliding_window": 64}, None),
    ],
)
def test_a_sliding_window_counts_where_the_family_uses_it(
    tmp_path: Path, model: str, changes: dict[str, Any], window: int | None
) -> None:
    """Mistral whenever one is given, Qwen2 when told so, Llama never."""
    assert read_directory(changed(tmp_path, changes, model)).architecture.sliding_window == window


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model_type": "mixtral"}, "architecture is 'mixtral'"),
        ({"model_type": None}, "LlamaForCausalLM"),
        ({"num_local_experts": 4}, "mixture of 4 experts"),
        ({"quantization_config": {"quant_method": "gptq"}}, "quantised by 'gptq'.*GGUF"),
        ({"hidden_act": "gelu"}, "activation is 'gelu'"),
        ({"rope_parameters": {"rope_type": "dynamic", "rope_theta": 1e4}}, "rotary positions by 'dynamic'"),
        ({"partial_rotary_factor": 0.5}, "rotates 8 of 16 dimensions"),
        ({"num_hidden_layers": 1}, r"tensors that family does not know: model.layers.1"),
    ],
)
def test_what_is_not_supported_is_refused_by_name(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    """Other architectures, experts, quantisations, activations, rope types, partial rotation, unknown tensors."""
    with pytest.raises(UnsupportedModel, match=message):
        read_directory(changed(tmp_path, changes))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hidden_size": None}, "hidden_size is missing"),
        ({"hidden_size": "32"}, "hidden_size is '32', not a number"),
        ({"num_attention_heads": 0}, "has 0 attention heads"),
        ({"rope_parameters": [1]}, r"rope_parameters is \[1\], not a group of settings"),
        ({"rope_parameters": {"rope_theta": -1}}, "rope_theta is -1"),
        ({"intermediate_size": 65}, r"gate_proj.weight has the shape \[64, 32\], but .* needs \[65, 32\]"),
        ({"num_hidden_layers": 3}, r"no tensor model.layers.2"),
    ],
)
def test_what_contradicts_itself_is_damage(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    """Missing or wrong settings, and tensors that do not fit them, are named."""
    with pytest.raises(CorruptModel, match=message):
        read_directory(changed(tmp_path, changes))


def test_a_folder_without_config_is_no_model(tmp_path: Path) -> None:
    """The message says what a model directory holds."""
    with pytest.raises(CorruptModel, match=r"has no config.json.*GGUF file, or a folder with config.json"):
        read_directory(tmp_path)


@pytest.mark.parametrize(("text", "message"), [("{", "cannot be read"), ("[]", "holds no settings")])
def test_a_damaged_config_is_named(tmp_path: Path, text: str, message: str) -> None:
    """JSON that breaks off, or is no object."""
    (tmp_path / "config.json").write_text(text)

    with pytest.raises(CorruptModel, match=message):
        read_directory(tmp_path)


def test_an_untied_model_needs_its_head(tmp_path: Path) -> None:
    """A file without lm_head.weight belongs to a tied model."""
    folder = changed(tmp_path, {})
    weights = load_file(folder / SINGLE)
    del weights["lm_head.weight"]
    save_file(weights, folder / SINGLE)

    with pytest.raises(CorruptModel, match=r"no tensor lm_head.weight"):
        read_directory(folder)
    assert read_directory(changed(tmp_path / "tied", {"tie_word_embeddings": True})).head is None
