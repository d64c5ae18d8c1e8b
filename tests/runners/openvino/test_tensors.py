import numpy as np
import pytest

from chairlift.core.errors import CorruptModel
from chairlift.runners.openvino.tensors import Encoding, StoredTensor, dequantise, split_blocks


def stored(encoding: Encoding, shape: tuple[int, ...], raw: bytes) -> StoredTensor:
    """A tensor over these bytes."""
    return StoredTensor.view("w", encoding, shape, np.frombuffer(raw, np.uint8))


def half(value: float) -> bytes:
    """A number as f16."""
    return np.float16(value).tobytes()


def test_row_bytes_follow_the_block_layout() -> None:
    """64 weights: 256 bytes in F32, 128 in half precision, two blocks of 34, 18 and 20 in the quantised types."""
    assert [encoding.row_bytes(64) for encoding in Encoding] == [256, 128, 128, 68, 36, 40]


def test_half_precision_is_widened_exactly() -> None:
    """F16 and BF16 become the same numbers in f32."""
    values = np.array([[1.5, -0.25]], np.float32)
    bf16 = (values.view(np.uint32) >> 16).astype(np.uint16)

    assert stored(Encoding.F16, (1, 2), values.astype(np.float16).tobytes()).to_float32().tolist() == values.tolist()
    assert stored(Encoding.BF16, (1, 2), bf16.tobytes()).to_float32().tolist() == values.tolist()


def test_q8_0_is_scale_times_value() -> None:
    """A block of Q8_0: w = d q."""
    q = np.arange(-16, 16, dtype=np.int8)

    assert dequantise(stored(Encoding.Q8_0, (1, 32), half(0.5) + q.tobytes())).tolist() == [(q * 0.5).tolist()]


@pytest.mark.parametrize(("encoding", "header"), [(Encoding.Q4_0, half(2)), (Encoding.Q4_1, half(2) + half(-3))])
def test_nibbles_are_the_two_halves_of_a_block(encoding: Encoding, header: bytes) -> None:
    """Byte j holds weight j low and weight j + 16 high; Q4_0: w = d (q - 8), Q4_1: w = d q + m."""
    low, high = np.arange(16, dtype=np.uint8), np.arange(16, dtype=np.uint8)[::-1]
    q = np.concatenate([low, high]).astype(np.float32)
    expected = 2 * (q - 8) if encoding is Encoding.Q4_0 else 2 * q - 3

    assert dequantise(stored(encoding, (1, 32), header + (low | high << 4).tobytes())).tolist() == [expected.tolist()]


def test_scales_and_weights_of_blocks_are_told_apart() -> None:
    """Two rows of two Q4_1 blocks: scales [2, 2, 2], packed [2, 2, 16]."""
    scales, packed = split_blocks(stored(Encoding.Q4_1, (2, 64), (half(1) + half(4) + bytes([7] * 16)) * 4))

    assert scales.shape == (2, 2, 2)
    assert np.unique(scales[..., 1]).tolist() == [4]
    assert packed.shape == (2, 2, 16)
    assert np.unique(packed).tolist() == [7]


def test_pairs_become_halves_within_each_head() -> None:
    """Rows 0 .. 7 of two heads of four: pairs (0, 1), (2, 3) of each head move to halves (0, 2), (1, 3)."""
    rows = np.arange(8, dtype=np.float32).reshape(8, 1)

    moved = stored(Encoding.F32, (8, 1), rows.tobytes()).halves_from_pairs(2)

    assert moved.data[:, 0].tolist() == [0, 2, 1, 3, 4, 6, 5, 7]
    assert moved.data.flags.c_contiguous


def test_rows_that_heads_cannot_share_are_damage() -> None:
    """Six rows on two heads have no even number each."""
    with pytest.raises(CorruptModel, match="tensor w has 6 rows, which 2 heads cannot share"):
        stored(Encoding.F32, (6, 1), bytes(24)).halves_from_pairs(2)


@pytest.mark.parametrize("encoding", list(Encoding))
def test_rows_of_several_tensors_are_joined_as_stored(encoding: Encoding) -> None:
    """Two rows and one: three rows of the same bytes, in this order."""
    raw = bytes(range(1, 1 + encoding.row_bytes(32) % 250)) * 60
    row = encoding.row_bytes(32)
    first, second = stored(encoding, (2, 32), raw[: 2 * row]), stored(encoding, (1, 32), raw[2 * row : 3 * row])

    together = first.with_rows_of([second])

    assert together is not None
    assert (together.shape, together.encoding) == ((3, 32), encoding)
    assert together.data.tobytes() == raw[: 3 * row]


def test_rows_of_another_encoding_are_not_joined() -> None:
    """A file may keep one matrix in more bits than its neighbours."""
    f32, f16 = stored(Encoding.F32, (1, 2), bytes(8)), stored(Encoding.F16, (1, 2), bytes(4))

    assert f32.with_rows_of([f32, f16]) is None
