"""The compiled model: takes a step's inputs, gives logits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import openvino as ov
from numpy.typing import NDArray

from chairlift.core.errors import UnsupportedModel
from chairlift.runners.openvino.checkpoint import Checkpoint
from chairlift.runners.openvino.graph import BLOCK_SIZE, STEP_INPUTS, build_graph, check_compiled
from chairlift.runners.openvino.inputs import StepInputs
from chairlift.runners.openvino.settings import KVCacheDtype
from chairlift.runners.openvino.signal_stack import signal_stack_kept


def compile_options(threads: int, kv_cache_dtype: KVCacheDtype) -> dict[str, str | int]:
    """What the CPU plugin is told. Its own choices would change results from machine to machine.

    Left to itself it keeps keys and values as u8, computes in bf16 where the CPU has it, and rounds activations to
    int8 in groups of 32 where the weights are quantised and the CPU multiplies int8 fast (errors of 0.5 in the demo
    model's logits).
    """
    return {
        "INFERENCE_NUM_THREADS": threads,
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_PRECISION_HINT": "f32",
        "KV_CACHE_PRECISION": kv_cache_dtype,
        "DYNAMIC_QUANTIZATION_GROUP_SIZE": 0,
    }


@dataclass(slots=True)
class _InputSlot:
    """One of a step's arrays, and where the graph reads it."""

    name: str
    index: int
    memory: NDArray[Any] | None = None
    """A view of the tensor that is set; it keeps the tensor alive."""


class CompiledModel:
    """A checkpoint, compiled, with one request. Keeps the checkpoint: weights are packed from it when first needed.

    Attributes:
        cache_shape: of one cache less its number of blocks: (kv_heads, block_size, head_dim).
        cache_element: numpy type of the caches.
        layers: pairs of caches.
    """

    def __init__(self, checkpoint: Checkpoint, threads: int, kv_cache_dtype: KVCacheDtype) -> None:
        """Raises UnsupportedModel when OpenVINO does not make of the graph what it should."""
        self._checkpoint = checkpoint
        arch = checkpoint.architecture
        model = build_graph(checkpoint)
        with signal_stack_kept():
            compiled = ov.Core().compile_model(model, "CPU", compile_options(threads, kv_cache_dtype))
        check_compiled(compiled, arch)
        self.layers = arch.num_layers
        self.cache_shape = (arch.num_kv_heads, BLOCK_SIZE, arch.head_dim)
        self.cache_element: type[np.generic] = np.float16 if kv_cache_dtype == "f16" else np.float32
        inputs = {port.get_any_name(): index for index, port in enumerate(compiled.inputs)}
        self._check_caches(compiled, inputs)
        self._slots = [_InputSlot(name, inputs[name]) for name, _, _ in STEP_INPUTS]
        self._cache_indices = {name: index for name, index in inputs.items() if "_cache." in name}
        self._request = compiled.create_infer_request()

    def _check_caches(self, compiled: ov.CompiledModel, inputs: Mapping[str, int]) -> None:
        for name in ("key_cache.0", "value_cache.0"):
            port = compiled.inputs[inputs[name]]
            shape = tuple(size.get_length() for size in list(port.get_partial_shape())[1:])
            if shape != self.cache_shape or port.get_element_type().to_dtype() != self.cache_element:
                raise UnsupportedModel(
                    f"OpenVINO {ov.get_version()} wants {name} as {port.get_element_type()} {shape}, not "
                    f"{np.dtype(self.cache_element)} {self.cache_shape}. Install the OpenVINO version that this "
                    "release pins."
                )

    def release_files(self) -> None:
        """Give pages of the model's files back to the system; what is needed again is read again."""
        self._checkpoint.release()

    def use_caches(self, tensors: Mapping[str, ov.Tensor]) -> None:
        """Set the KV pool; the tensors must stay alive."""
        for name, index in self._cache_indices.items():
            self._request.set_input_tensor(index, tensors[name])

    def set_inputs(self, inputs: StepInputs) -> None:
        """Hand over a step's arrays; they are copied. Arrays of the same shapes as before go into the same tensors,
        which spares the plugin a look at each: a decode after a decode then costs a few copies.
        """
        for slot in self._slots:
            array = getattr(inputs, slot.name)
            if slot.memory is not None and slot.memory.shape == array.shape:
                slot.memory[...] = array
                continue
            tensor = ov.Tensor(array)
            slot.memory = tensor.data
            self._request.set_input_tensor(slot.index, tensor)

    def infer(self) -> None:
        """Compute the step."""
        self._request.infer()

    def logits(self) -> NDArray[np.float32]:
        """[S, vocabulary], f32: the request's own memory, overwritten by the next step."""
        logits: NDArray[np.float32] = self._request.get_output_tensor(0).data
        return logits
