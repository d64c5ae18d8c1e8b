from typing import Any

import numpy as np
import openvino as ov
import pytest
from openvino import opset13 as ops

from chairlift.runners.openvino.compiled import compile_options
from chairlift.runners.openvino.tensors import Encoding, StoredTensor
from chairlift.runners.openvino.weights import vector, weight

ROWS, INPUTS = 48, 96


def random_tensor(encoding: Encoding, seed: int = 0) -> StoredTensor:
    """Random bytes of an encoding, its scales small numbers; the first Q4_1 block has the scale zero."""
    rng = np.random.default_rng(seed)
    if not encoding.quantised:
        values = rng.standard_normal((ROWS, INPUTS)).astype(np.float32)
        raw: Any = values
        if encoding is Encoding.F16:
            raw = values.astype(np.float16)
        elif encoding is Encoding.BF16:
            raw = (values.view(np.uint32) >> 16).astype(np.uint16)
        return StoredTensor.view("w", encoding, (ROWS, INPUTS), np.frombuffer(bytearray(raw.tobytes()), np.uint8))
    blocks = rng.integers(0, 256, (ROWS, INPUTS // 32, encoding.block_bytes), np.uint8)
    scales = 2 if encoding is Encoding.Q4_1 else 1
    drawn = rng.uniform(0.01, 0.1, (*blocks.shape[:2], scales)).astype(np.float16)
    if encoding is Encoding.Q4_1:
        drawn[0, 0] = (0.0, -0.75)
    blocks[..., : 2 * scales] = drawn.view(np.uint8)
    return StoredTensor.view("w", encoding, (ROWS, INPUTS), blocks.reshape(-1))


def compiled_product(tensor: StoredTensor) -> ov.CompiledModel:
    """Compile x -> x times the transposed weight, as the runner compiles."""
    x = ops.parameter([-1, INPUTS], np.float32)
    product = ops.matmul(x, weight(tensor), transpose_a=False, transpose_b=True)
    return ov.Core().compile_model(ov.Model([ops.result(product)], [x], "product"), "CPU", compile_options(1, "f16"))


@pytest.mark.parametrize("encoding", list(Encoding))
@pytest.mark.parametrize("rows", [1, 7])
def test_a_product_equals_that_with_the_dequantised_weights(encoding: Encoding, rows: int) -> None:
    """For every encoding, single rows and several, up to f32 rounding."""
    tensor = random_tensor(encoding)
    x = np.random.default_rng(1).standard_normal((rows, INPUTS)).astype(np.float32)

    product = compiled_product(tensor)(x)[0]

    assert np.abs(product - x @ tensor.to_float32().T).max() < 5e-5


@pytest.mark.parametrize(
    ("encoding", "kind"),
    [
        (Encoding.F16, ov.Type.f16),
        (Encoding.BF16, ov.Type.bf16),
        (Encoding.Q8_0, ov.Type.i8),
        (Encoding.Q4_0, ov.Type.i4),
        (Encoding.Q4_1, ov.Type.u4),
    ],
)
def test_the_plugin_multiplies_from_the_stored_type(encoding: Encoding, kind: ov.Type) -> None:
    """The compiled product reads weights of the stored type: they were not inflated to f32."""
    operations = compiled_product(random_tensor(encoding)).get_runtime_model().get_ops()
    (product,) = [node for node in operations if node.get_rt_info()["layerType"].astype(str) == "FullyConnected"]

    assert product.input(1).get_element_type() == kind


@pytest.mark.parametrize("encoding", list(Encoding))
def test_a_row_lookup_equals_the_dequantised_row(encoding: Encoding) -> None:
    """The embedding is looked up in any encoding."""
    tensor = random_tensor(encoding, seed=2)
    ids = ops.parameter([-1], np.int64)
    looked_up = ops.gather(weight(tensor), ids, ops.constant(np.array(0, np.int64)))
    model = ov.Core().compile_model(
        ov.Model([ops.result(looked_up)], [ids], "lookup"), "CPU", compile_options(1, "f16")
    )

    rows = model(np.array([5, 0, 47]))[0]

    assert np.abs(rows - tensor.to_float32()[[5, 0, 47]]).max() < 1e-6


def test_a_vector_is_widened() -> None:
    """Norms and biases become f32 constants."""
    stored = StoredTensor("b", Encoding.F16, (2,), np.array([1.5, -2.0], np.float16))

    assert vector(stored).data.tolist() == [1.5, -2.0]
