import struct
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chairlift.core.errors import CorruptModel, UnsupportedModel
from chairlift.runners.openvino.gguf import GgufFile
from tests.runners.openvino.helpers import MODELS, GgufTensor, gguf_bytes, gguf_string

WHOLE = (MODELS / "llama-gqa.Q4_0.gguf").read_bytes()


def write(folder: Path, raw: bytes) -> Path:
    """A file with these bytes."""
    path = folder / "m.gguf"
    path.write_bytes(raw)
    return path


def test_metadata_of_every_kind_comes_back(tmp_path: Path) -> None:
    """Strings, numbers, booleans, lists and lists of lists are read as Python values."""
    metadata = {"a": "höhe", "b": 7, "c": 0.5, "d": True, "e": [1, 2], "f": ["x", ""], "g": [[1], [2, 3]], "h": []}

    file = GgufFile(write(tmp_path, gguf_bytes(metadata, [])))

    assert file.metadata == metadata
    assert not file.tensors


@pytest.mark.parametrize("version", [2, 3])
def test_a_tensor_is_a_view_in_rows_first_order(tmp_path: Path, version: int) -> None:
    """A 2 x 3 matrix written row by row is read as [2, 3]."""
    values = np.arange(6, dtype=np.float32)
    raw = gguf_bytes({}, [GgufTensor("w", (2, 3), "F32", values.tobytes())], version)

    tensor = GgufFile(write(tmp_path, raw)).tensor("w")

    assert tensor.data.tolist() == [[0, 1, 2], [3, 4, 5]]
    assert not tensor.data.flags.owndata


def test_the_alignment_of_the_file_is_obeyed(tmp_path: Path) -> None:
    """general.alignment moves the start of the data."""
    raw = gguf_bytes({"general.alignment": 128}, [GgufTensor("w", (1,), "F32", struct.pack("<f", 9.0))])
    head = raw[: -len(raw) % 32 - 32 or None]
    padded = head + bytes(-len(head) % 128) + raw[len(head) :]

    assert GgufFile(write(tmp_path, padded)).tensor("w").data.tolist() == [9.0]


@pytest.mark.parametrize("alignment", [0, 3, 48, "big"])
def test_an_impossible_alignment_is_damage(tmp_path: Path, alignment: object) -> None:
    """general.alignment has to be a power of two."""
    raw = gguf_bytes({"general.alignment": alignment}, [])

    with pytest.raises(CorruptModel, match=r"general\.alignment is"):
        GgufFile(write(tmp_path, raw))


def test_an_empty_file_is_no_gguf(tmp_path: Path) -> None:
    """A file of three bytes is refused before it is mapped."""
    with pytest.raises(CorruptModel, match="has 3 bytes: it is no GGUF file"):
        GgufFile(write(tmp_path, b"GGU"))


def test_another_magic_number_is_named(tmp_path: Path) -> None:
    """The message shows what the file begins with."""
    with pytest.raises(CorruptModel, match=r"begins with b'PK.*no GGUF file"):
        GgufFile(write(tmp_path, b"PK\x03\x04" + bytes(64)))


@pytest.mark.parametrize(("version", "hint"), [(1, "version is 1;"), (3 << 24, "big-endian")])
def test_other_versions_are_refused(tmp_path: Path, version: int, hint: str) -> None:
    """Version 1 and a version of reversed byte order are refused by name."""
    with pytest.raises(CorruptModel, match=hint):
        GgufFile(write(tmp_path, b"GGUF" + struct.pack("<IQQ", version, 0, 0)))


@pytest.mark.parametrize(
    ("tensors", "keys", "message"),
    [(1 << 60, 0, "number of tensors is 1,152,921"), (0, 1 << 60, "number of keys is 1,152,921")],
)
def test_absurd_counts_end_in_an_error_at_once(tmp_path: Path, tensors: int, keys: int, message: str) -> None:
    """A count of 2^60 is refused before anything is allocated for it."""
    with pytest.raises(CorruptModel, match=message):
        GgufFile(write(tmp_path, b"GGUF" + struct.pack("<IQQ", 3, tensors, keys)))


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (struct.pack("<IQ", 8, 1 << 50) + b"x", "key at byte .* takes 1,125,899,906,842,624 bytes, 1 are left"),
        (struct.pack("<IIQ", 9, 5, 1 << 50), "length of key is 1,125,899,906,842,624, more than 0"),
        (struct.pack("<IIQQ", 9, 8, 1, 99), "key at byte .* takes 107 bytes"),
        (struct.pack("<IIQIQIQI", 9, 9, 1, 9, 1, 9, 0, 4), "nests arrays deeper"),
        (struct.pack("<I", 77), "unknown type 77"),
        (struct.pack("<IIQ", 9, 77, 0), None),
    ],
)
def test_lengths_are_checked_against_what_is_left(tmp_path: Path, value: bytes, message: str | None) -> None:
    """Strings and arrays longer than the file are refused with both numbers; an empty array of any type is harmless."""
    raw = b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + gguf_string("key") + value
    path = write(tmp_path, raw)

    if message is None:
        assert GgufFile(path).metadata == {"key": []}
    else:
        with pytest.raises(CorruptModel, match=message):
            GgufFile(path)


@pytest.mark.parametrize(
    ("info", "message"),
    [
        (struct.pack("<I", 9), "has 9 dimensions"),
        (struct.pack("<I", 0), "has 0 dimensions"),
        (struct.pack("<IQ", 1, 0), "impossible shape"),
        (struct.pack("<IQQ", 2, 1 << 50, 4), "impossible shape"),
    ],
)
def test_impossible_shapes_are_damage(tmp_path: Path, info: bytes, message: str) -> None:
    """Ranks other than 1 to 4 and sizes of zero or beyond 2^40 are refused."""
    raw = b"GGUF" + struct.pack("<IQQ", 3, 1, 0) + gguf_string("w") + info + bytes(12)

    with pytest.raises(CorruptModel, match=message):
        GgufFile(write(tmp_path, raw))


def test_a_tensor_that_occurs_twice_is_damage(tmp_path: Path) -> None:
    """Two tensors of one name cannot both be meant."""
    tensor = GgufTensor("w", (1,), "F32", bytes(4))

    with pytest.raises(CorruptModel, match="tensor w occurs twice"):
        GgufFile(write(tmp_path, gguf_bytes({}, [tensor, tensor])))


def test_a_tensor_beyond_the_end_tells_where_the_file_stops(tmp_path: Path) -> None:
    """A file cut in its data opens, and fails with both lengths when the lost tensor is wanted."""
    path = write(tmp_path, WHOLE[:-640])
    last = max(GgufFile(path).tensors.values(), key=lambda info: info.offset)

    with pytest.raises(CorruptModel, match=f"tensor {last.name} ends at byte .*, the file at {len(WHOLE) - 640:,}"):
        GgufFile(path).tensor(last.name)


def test_an_unsupported_type_names_tensor_type_and_the_way_out(tmp_path: Path) -> None:
    """Q6_K is read about, and refused only when it is wanted."""
    file = GgufFile(write(tmp_path, gguf_bytes({}, [GgufTensor("output.weight", (1, 256), "Q6_K", bytes(210))])))

    with pytest.raises(UnsupportedModel, match=r"output.weight .* Q6_K; supported are F32, .*llama-quantize --pure"):
        file.tensor("output.weight")


def test_rows_that_are_no_whole_blocks_are_damage(tmp_path: Path) -> None:
    """A Q8_0 row of 33 weights cannot be."""
    file = GgufFile(write(tmp_path, gguf_bytes({}, [GgufTensor("w", (1, 33), "Q8_0", bytes(68))])))

    with pytest.raises(CorruptModel, match="rows of 33 weights are not whole Q8_0 blocks of 32"):
        file.tensor("w")


def test_a_missing_tensor_is_named(tmp_path: Path) -> None:
    """Asking for what is not there says so."""
    with pytest.raises(CorruptModel, match=r"has no tensor output_norm\.weight"):
        GgufFile(write(tmp_path, gguf_bytes({}, []))).tensor("output_norm.weight")


def test_released_pages_are_read_again() -> None:
    """A view shows the same values after its pages were given back."""
    file = GgufFile(MODELS / "llama-gqa.F32.gguf")
    tensor = file.tensor("output_norm.weight")
    before = tensor.data.copy()

    file.release_pages()

    assert np.array_equal(tensor.data, before)


def read_all(path: Path) -> None:
    """Open a file and look at every tensor."""
    file = GgufFile(path)
    for name in file.tensors:
        assert file.tensor(name).nbytes > 0


@given(length=st.integers(0, len(WHOLE) - 1))
def test_every_truncation_is_an_error(tmp_path_factory: pytest.TempPathFactory, length: int) -> None:
    """Wherever a file is cut, reading all of it raises CorruptModel and nothing else."""
    with pytest.raises(CorruptModel):
        read_all(write(tmp_path_factory.mktemp("cut"), WHOLE[:length]))


@given(position=st.integers(0, 2_500), value=st.integers(0, 255))
def test_any_damaged_byte_is_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, position: int, value: int
) -> None:
    """A changed byte in header or metadata gives other values or a model error, never another exception."""
    raw = bytearray(WHOLE)
    raw[position] = value
    path = write(tmp_path_factory.mktemp("damage"), bytes(raw))

    with suppress(CorruptModel, UnsupportedModel):
        read_all(path)


@pytest.mark.parametrize("lost", [1, 1000])
def test_a_file_without_its_end_has_no_size(lost: int, tmp_path: Path) -> None:
    """A size of what was fetched so far would be believed."""
    values = np.arange(600, dtype=np.float32)
    raw = gguf_bytes({}, [GgufTensor("w", (2, 300), "F32", values.tobytes())])
    end = raw.rindex(values.tobytes()) + values.nbytes

    assert GgufFile(write(tmp_path, raw)).tensor_bytes >= values.nbytes
    with pytest.raises(CorruptModel, match="is truncated: tensor w ends at"):
        _ = GgufFile(write(tmp_path, raw[: end - lost])).tensor_bytes
