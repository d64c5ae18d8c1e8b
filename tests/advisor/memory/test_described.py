import json
from pathlib import Path

import pytest

from chairlift import demo_model
from chairlift.advisor.memory.described import describe_model
from chairlift.core.errors import CorruptModel, DeviceModelError
from chairlift.devices.registry import published_parameters


@pytest.mark.model
def test_a_gguf_file_says_what_the_built_in_sizes_say() -> None:
    """The demo model: the same layers, heads and parameters, and its bytes as the runner counts them."""
    from chairlift.runners.openvino.formats import open_checkpoint  # noqa: PLC0415

    path = demo_model.locate()
    described, built_in = describe_model(str(path)), describe_model("smollm2-135m")

    assert described.config.parameters == published_parameters("smollm2-135m")
    assert described.config.kv_bytes_per_token(2) == built_in.config.kv_bytes_per_token(2)
    assert described.config.context_length == built_in.config.context_length
    assert described.stored == open_checkpoint(path).weight_bytes
    assert described.weights == "int4"
    assert (built_in.stored, built_in.weights) == (None, "bf16")


def test_a_config_json_is_as_good(tmp_path: Path) -> None:
    """A model's directory, or the file in it."""
    config = {"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
    (tmp_path / "config.json").write_text(json.dumps(config | {"vocab_size": 100, "intermediate_size": 128}))

    for name in (str(tmp_path), str(tmp_path / "config.json")):
        assert describe_model(name).config.num_layers == 2


def test_what_is_no_model_is_refused(tmp_path: Path) -> None:
    """A file that is not there, a file that is no GGUF, and a name nobody knows."""
    with pytest.raises(DeviceModelError, match="there is no file"):
        describe_model(str(tmp_path / "none.gguf"))
    (tmp_path / "text.gguf").write_text("no model")
    with pytest.raises(CorruptModel, match="no GGUF file"):
        describe_model(str(tmp_path / "text.gguf"))
    with pytest.raises(DeviceModelError, match=r"did you mean llama-3\.1-8b"):
        describe_model("llama-3.1-8")
