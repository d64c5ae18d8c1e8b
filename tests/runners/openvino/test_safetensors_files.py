import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from safetensors.numpy import save_file

from chairlift.core.errors import CorruptModel, UnsupportedModel
from chairlift.runners.openvino.safetensors_files import INDEX, SINGLE, SafetensorsDirectory
from chairlift.runners.openvino.tensors import Encoding

WEIGHTS: dict[str, NDArray[Any]] = {"a": np.arange(6, dtype=np.float32).reshape(2, 3), "b": np.ones(3, np.float16)}


def shards(folder: Path, weight_map: Any) -> Path:
    """Two shards and an index that says where the tensors are."""
    save_file({"a": WEIGHTS["a"]}, folder / "one.safetensors")
    save_file({"b": WEIGHTS["b"]}, folder / "two.safetensors")
    (folder / INDEX).write_text(json.dumps({"weight_map": weight_map}))
    return folder


def test_tensors_of_one_file_are_views(tmp_path: Path) -> None:
    """Names, types, shapes and values come back without a copy."""
    save_file(WEIGHTS, tmp_path / SINGLE, {"format": "pt"})

    files = SafetensorsDirectory(tmp_path)

    assert files.names == {"a", "b"}
    assert files.tensor("a").data.tolist() == WEIGHTS["a"].tolist()
    assert not files.tensor("a").data.flags.owndata
    assert files.tensor("b").encoding is Encoding.F16


def test_an_index_gathers_the_shards(tmp_path: Path) -> None:
    """Tensors are found in whichever shard has them."""
    files = SafetensorsDirectory(shards(tmp_path, {"a": "one.safetensors", "b": "two.safetensors"}))

    assert files.names == {"a", "b"}
    assert files.tensor("b").data.tolist() == [1, 1, 1]


def test_released_pages_are_read_again(tmp_path: Path) -> None:
    """A view shows the same values after its pages were given back."""
    save_file(WEIGHTS, tmp_path / SINGLE)
    files = SafetensorsDirectory(tmp_path)
    tensor = files.tensor("a")

    files.release_pages()

    assert tensor.data.tolist() == WEIGHTS["a"].tolist()


def test_data_that_is_not_aligned_is_copied(tmp_path: Path) -> None:
    """A tensor at an odd offset is still read right."""
    header = {"x": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]}}
    header["y"] = {"dtype": "F32", "shape": [1], "data_offsets": [1, 5]}
    raw = json.dumps(header).encode()
    (tmp_path / SINGLE).write_bytes(struct.pack("<Q", len(raw)) + raw + b"\x07" + struct.pack("<f", 2.5))

    assert SafetensorsDirectory(tmp_path).tensor("y").data.tolist() == [2.5]


@pytest.mark.parametrize("length", [0, 4, 60, -1])
def test_a_truncated_file_is_damage(tmp_path: Path, length: int) -> None:
    """Wherever it is cut, the file is refused by name."""
    save_file(WEIGHTS, tmp_path / SINGLE)
    raw = (tmp_path / SINGLE).read_bytes()
    (tmp_path / SINGLE).write_bytes(raw[:length])

    with pytest.raises(CorruptModel, match=r"model.safetensors is truncated or damaged .*Fetch it again"):
        SafetensorsDirectory(tmp_path)


def test_a_missing_shard_is_named(tmp_path: Path) -> None:
    """The index lists a file that is not there."""
    with pytest.raises(CorruptModel, match=r"lacks three.safetensors, which model.safetensors.index.json lists"):
        SafetensorsDirectory(shards(tmp_path, {"a": "one.safetensors", "c": "three.safetensors"}))


def test_a_shard_outside_the_folder_is_refused(tmp_path: Path) -> None:
    """An index may not lead elsewhere."""
    with pytest.raises(CorruptModel, match="no file of its own folder"):
        SafetensorsDirectory(shards(tmp_path, {"a": "../one.safetensors"}))


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"weight_map": 3}'])
def test_a_damaged_index_is_named(tmp_path: Path, text: str) -> None:
    """An index without a map of weights is damage."""
    (tmp_path / INDEX).write_text(text)

    with pytest.raises(CorruptModel, match="is no index of safetensors shards"):
        SafetensorsDirectory(tmp_path)


def test_pickled_weights_are_refused_with_the_way_out(tmp_path: Path) -> None:
    """A folder with pytorch_model.bin only."""
    (tmp_path / "pytorch_model.bin").touch()

    with pytest.raises(UnsupportedModel, match=r"pickled weights \(pytorch_model.bin\).*safe_serialization=True"):
        SafetensorsDirectory(tmp_path)


def test_a_folder_without_weights_says_so(tmp_path: Path) -> None:
    """Neither one file nor an index."""
    with pytest.raises(CorruptModel, match=r"neither model.safetensors nor model.safetensors.index.json"):
        SafetensorsDirectory(tmp_path)


def test_an_unsupported_type_is_named(tmp_path: Path) -> None:
    """int8 weights are refused when they are wanted."""
    save_file({"w": np.zeros((2, 2), np.int8)}, tmp_path / SINGLE)

    with pytest.raises(UnsupportedModel, match=r"tensor w in model\.safetensors is stored as I8; supported are F32"):
        SafetensorsDirectory(tmp_path).tensor("w")


def test_a_missing_tensor_is_named(tmp_path: Path) -> None:
    """Asking for what is not there says so."""
    save_file(WEIGHTS, tmp_path / SINGLE)

    with pytest.raises(CorruptModel, match=r"has no tensor lm_head.weight"):
        SafetensorsDirectory(tmp_path).tensor("lm_head.weight")
