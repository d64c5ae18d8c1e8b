"""The OpenVINO CPU runner: one compiled model, one KV pool, one step at a time.

Start-up, in this order: open the checkpoint; build and compile the graph; warm up; measure; give what is left of the
memory to the KV pool. A model, a setting or a machine that will not do is refused there, before anything is served.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from pathlib import Path
from time import perf_counter_ns

from chairlift.core.config import KVCapacity
from chairlift.core.errors import StepFailed
from chairlift.core.plan import StepOutcome, StepPlan
from chairlift.core.work import ModelShape
from chairlift.runners.base import ModelRunner, Sampler
from chairlift.runners.openvino.checkpoint import Checkpoint
from chairlift.runners.openvino.compiled import CompiledModel
from chairlift.runners.openvino.formats import open_checkpoint
from chairlift.runners.openvino.graph import BLOCK_SIZE
from chairlift.runners.openvino.inputs import StepInputs, accompanied, step_inputs
from chairlift.runners.openvino.kvpool import KVPool
from chairlift.runners.openvino.memory import MemoryReport, allowed_memory, resident_bytes
from chairlift.runners.openvino.settings import RunnerSettings, StepLimits, allowed_threads
from chairlift.runners.openvino.startup import (
    check_context,
    huge_pages_seconds,
    largest_step,
    size_pool,
    warm_up_and_measure,
)


def _nobody(request_id: str) -> bool:  # noqa: ARG001 - a runner whose requests have no seeds
    return False


class OpenVINORunner(ModelRunner):
    """Runs a checkpoint on the CPU.

    Attributes:
        memory: where the memory goes, measured at start.
    """

    def __init__(
        self,
        model: Path | Checkpoint,
        limits: StepLimits,
        sampler: Sampler,
        settings: RunnerSettings | None = None,
        seeded: Callable[[str], bool] = _nobody,
    ) -> None:
        """Load the model and take the memory.

        Args:
            model: a GGUF file or a Hugging Face directory, or one that is already open (the tokenizer is read from it).
            limits: the largest step that will be planned.
            sampler: turns logits into tokens inside execute().
            settings: device settings.
            seeded: whether a request was promised the same answer whatever runs beside it. A step that it would be
                alone in is computed as one of two rows, by the kernels that larger batches have.

        Raises:
            FileNotFoundError, UnsupportedModel, CorruptModel: as open_checkpoint.
            ConfigError: max_model_len is more than the model was made for.
            OutOfDeviceMemory: weights, activations and a pool for one sequence of max_model_len do not fit.
        """
        settings = settings or RunnerSettings()
        before, allowed = resident_bytes(), allowed_memory()
        checkpoint = open_checkpoint(model) if isinstance(model, Path) else model
        check_context(limits, checkpoint.architecture)
        self._sampler = sampler
        self._seeded = seeded
        self._shape = checkpoint.shape(settings.kv_element_bytes)
        self._model = CompiledModel(checkpoint, settings.threads or allowed_threads(), settings.kv_cache_dtype)
        gc.collect()  # the graph's nodes hold each other; with them go the constants that the plugin has packed
        footprint = warm_up_and_measure(
            self._model, limits, before, huge_pages_seconds(settings, checkpoint.weight_bytes)
        )
        block_bytes = self._shape.kv_bytes_per_token * BLOCK_SIZE
        taken = before + footprint.weights_and_runtime + footprint.activations
        size = size_pool(settings, limits, allowed, taken, block_bytes)
        self._capacity = KVCapacity(BLOCK_SIZE, size.num_blocks, scratch_block=size.num_blocks, block_bytes=block_bytes)
        shape = (size.num_blocks + 1, *self._model.cache_shape)
        self._pool: KVPool | None = KVPool(shape, self._model.layers, self._model.cache_element)
        self._model.use_caches(self._pool.tensors)
        counts = largest_step(limits)[1]
        self.memory = MemoryReport(
            allowed=allowed,
            share=settings.share,
            before=before,
            stored_weights=checkpoint.weight_bytes,
            weights_and_runtime=footprint.weights_and_runtime,
            activations=footprint.activations,
            largest_step=f"{sum(counts):,} tokens in {len(counts)} rows, context {limits.max_model_len:,}",
            block_size=BLOCK_SIZE,
            block_bytes=block_bytes,
            num_blocks=size.num_blocks,
            decided_by=size.decided_by,
            kv_dtype=settings.kv_cache_dtype,
        )

    def capacity(self) -> KVCapacity:
        """Usable blocks 0 .. num_blocks - 1; the scratch block comes after them."""
        return self._capacity

    def shape(self) -> ModelShape:
        """Sizes of the model, weights as stored."""
        return self._shape

    def execute(self, plan: StepPlan) -> StepOutcome:
        """Run one step; see ModelRunner. Logits of sampled and dead rows are computed, others' are not."""
        self._model.set_inputs(self._inputs(plan))
        begin = perf_counter_ns()
        try:
            self._model.infer()
        except RuntimeError as error:
            raise StepFailed(f"OpenVINO failed in step {plan.step}: {error}") from error
        device_time = perf_counter_ns() - begin
        rows = plan.sampled_rows
        if not rows:
            return StepOutcome((), device_time)
        sampled = self._sampler([plan.request_ids[row] for row in rows], self._model.logits()[: len(rows)])
        failures = {rows[index]: message for index, message in sampled.failures.items()}
        return StepOutcome(sampled.tokens, device_time, failures)

    def _inputs(self, plan: StepPlan) -> StepInputs:
        inputs = step_inputs(plan)
        alone = len(inputs.input_ids) == 1 or len(inputs.sampled) == 1
        if alone and any(map(self._seeded, plan.request_ids)):
            return accompanied(inputs, self._capacity.scratch_block)
        return inputs

    def close(self) -> None:
        """Free the pool and the model."""
        del self._model
        self._pool = None
        gc.collect()
