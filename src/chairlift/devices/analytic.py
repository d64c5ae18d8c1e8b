"""Device models computed from a model's sizes and a device sheet: a roofline with stated efficiencies.

Analytic, not calibrated: an estimate for choosing what to measure. For P devices under tensor parallelism, each reads
and multiplies 1/P of the weights, and two all-reduces a layer join the parts:

    overhead    = layers x layer_overhead
    floor       = weights read in a step / P / (bandwidth x efficiency) + overhead, at least layers x layer_launch
    per_token   = 2 x layer weights / P / (FLOP/s x efficiency), and `fixed` = overhead
    per_context = KV bytes of a position / P / (bandwidth x efficiency)
    per_pair    = 4 x layers x heads x head_dim / P / (FLOP/s x attention efficiency)
    per_sequence= 2 x hidden x vocabulary / P / (FLOP/s x efficiency)
    (with experts: a table over tokens, since more tokens choose, and a step reads, more of them)
    link_fixed  = 2 x layers x link latency
    link_per_token = 2 x layers x hidden x bytes x 2 (P - 1) / P / (link bandwidth x efficiency)     (ring all-reduce)
"""

from __future__ import annotations

from dataclasses import dataclass

from chairlift.core.errors import DeviceModelError
from chairlift.devices.curve import Table
from chairlift.devices.memory import MemoryModel
from chairlift.devices.model import DeviceModel, HostTerms, Provenance, StepTerms
from chairlift.devices.quantities import femtoseconds
from chairlift.devices.sheet import MEANINGS, DeviceSheet
from chairlift.devices.transformer import KV_BYTES, WEIGHT_FORMATS, TransformerConfig, WeightFormat
from chairlift.devices.valid import ValidRange

KIND = "analytic, not calibrated"
_MOST_TOKENS = 65_536
"""Tokens of a step up to which the roofline is taken to hold."""
_MOST_ROWS = 4_096


@dataclass(frozen=True, slots=True)
class _Setting:
    """What one computation is about."""

    config: TransformerConfig
    sheet: DeviceSheet
    parallel: int
    weights: WeightFormat
    kv_bytes: int

    def reading(self, size: float) -> int:
        """Femtoseconds in which each device reads its part of so many bytes."""
        return femtoseconds(size / self.parallel / (self.sheet["bandwidth"] * self.sheet["bandwidth_efficiency"]))

    def computing(self, operations: float, efficiency: str = "compute_efficiency") -> int:
        """Femtoseconds in which each device does its part of so many operations."""
        return femtoseconds(
            operations / self.parallel / (self.sheet.flops(self.weights.compute) * self.sheet[efficiency])
        )


def analytic_model(
    config: TransformerConfig,
    sheet: DeviceSheet,
    *,
    tensor_parallel: int = 1,
    weights: str = "bf16",
    kv: str = "bf16",
) -> DeviceModel:
    """Compute a device model.

    Args:
        config: the model's sizes.
        sheet: the device's.
        tensor_parallel: devices that work as one.
        weights: how the weights are stored: f32, bf16, f16, f8, int8 or int4.
        kv: precision of keys and values: f32, bf16, f16, f8 or int8.

    Raises:
        DeviceModelError: a precision is unknown or not the device's, or the devices do not divide the model.
    """
    if weights not in WEIGHT_FORMATS:
        raise DeviceModelError(f"weights in {weights!r} are unknown; known are {', '.join(WEIGHT_FORMATS)}.")
    if kv not in KV_BYTES:
        raise DeviceModelError(f"keys and values in {kv!r} are unknown; known are {', '.join(KV_BYTES)}.")
    _check_parallel(config, sheet, tensor_parallel)
    setting = _Setting(config, sheet, tensor_parallel, WEIGHT_FORMATS[weights], KV_BYTES[kv])
    return DeviceModel(
        device=sheet.name,
        model=config.name,
        tensor_parallel=tensor_parallel,
        provenance=Provenance(kind=KIND, machine=sheet.title, notes=_notes(setting)),
        step=_step(setting),
        host=HostTerms(femtoseconds(sheet["host_fixed"]), femtoseconds(sheet["host_per_sequence"])),
        valid=ValidRange(
            tokens=_MOST_TOKENS,
            rows=_MOST_ROWS,
            context=config.context_length,
            total_context=_MOST_ROWS * config.context_length,
        ),
        memory=_memory(setting),
        shape=config.shape(setting.weights, setting.kv_bytes),
    )


def _check_parallel(config: TransformerConfig, sheet: DeviceSheet, parallel: int) -> None:
    if not 1 <= parallel <= sheet.most_devices:
        raise DeviceModelError(
            f"--tensor-parallel-size is {parallel}; {sheet.title} works in groups of 1 to {sheet.most_devices}."
        )
    if config.num_heads % parallel:
        raise DeviceModelError(
            f"--tensor-parallel-size {parallel} does not divide the {config.num_heads} attention heads of "
            f"{config.name}."
        )


def _step(setting: _Setting) -> StepTerms:
    config, sheet, parallel = setting.config, setting.sheet, setting.parallel
    overhead = femtoseconds(config.num_layers * sheet["layer_overhead"])
    launch = femtoseconds(config.num_layers * sheet["layer_launch"])
    layer_bytes = float(config.layer_matrix_weights * setting.weights.bytes_per_weight)
    head_bytes = config.head_weights * setting.weights.plain_bytes
    kv_read = setting.reading(_kv_bytes(setting) * parallel)
    pair = 4.0 * config.num_layers * config.num_heads * config.head_dim
    link_fixed = link_token = 0
    if parallel > 1:
        collectives = 2 * config.num_layers
        link_fixed = femtoseconds(collectives * sheet["link_latency"])
        sent = collectives * config.hidden_size * setting.weights.plain_bytes * 2 * (parallel - 1) / parallel
        link_token = femtoseconds(sent / (sheet["link_bandwidth"] * sheet["link_efficiency"]))
    floor = max(setting.reading(layer_bytes + head_bytes) + overhead, launch)
    per_token = setting.computing(2.0 * config.active_weights)
    return StepTerms(
        floor=floor,
        fixed=overhead,
        per_token=per_token,
        tokens_table=_experts_table(setting, head_bytes, overhead, launch) if config.experts else None,
        # A decode reads its context once for all heads of a group; multiplying binds only where they are many.
        per_context=max(kv_read, setting.computing(pair)),
        per_pair=setting.computing(pair, "attention_efficiency"),
        per_prompt_position=kv_read,
        per_sequence=setting.computing(2.0 * config.head_weights),
        link_fixed=link_fixed,
        link_per_token=link_token,
    )


def _experts_table(setting: _Setting, head_bytes: int, overhead: int, launch: int) -> Table:
    """The maximum of reading and computing at every power of two tokens: the more tokens, the more experts are read."""
    config = setting.config
    sizes = [1 << i for i in range(_MOST_TOKENS.bit_length())]
    times = []
    for tokens in sizes:
        read = config.read_weights(tokens) * float(setting.weights.bytes_per_weight) + head_bytes
        computing = setting.computing(2.0 * config.active_weights * tokens)
        times.append(max(setting.reading(read) + overhead, computing + overhead, launch))
    return Table(tuple(sizes), tuple(times))


def _kv_bytes(setting: _Setting) -> int:
    """Of one position on one device: heads are dealt out, and copied when there are fewer than devices."""
    config = setting.config
    heads = -(-config.num_kv_heads // setting.parallel)
    return 2 * config.num_layers * heads * config.head_dim * setting.kv_bytes


def _memory(setting: _Setting) -> MemoryModel:
    """Activations: two residual rows beside the widest of a layer's intermediate rows; logits in 16 bits and in f32."""
    config, sheet, parallel = setting.config, setting.sheet, setting.parallel
    element = setting.weights.plain_bytes
    projected = config.head_dim * (config.num_heads + 2 * config.num_kv_heads)
    widest = max((3 if config.gated else 2) * config.intermediate_size, projected) // parallel
    return MemoryModel(
        capacity=int(sheet["memory"]),
        weights=-(-config.weight_bytes(setting.weights) // parallel),
        runtime=int(sheet["runtime"]),
        unseen=int(sheet["unseen"]),
        kv_bytes_per_token=_kv_bytes(setting),
        activation_per_token=element * (2 * config.hidden_size + widest),
        activation_per_logits=(element + 4) * config.vocab_size,
    )


def _notes(setting: _Setting) -> tuple[str, ...]:
    weights, kv_bytes, parameters = setting.weights.name, setting.kv_bytes, setting.config.parameters
    head = f"weights {weights}, KV of {kv_bytes} bytes an element, {parameters:,} parameters"
    known = ((name, setting.sheet.figures[name]) for name in MEANINGS if name in setting.sheet.figures)
    return head, *(f"{name} = {figure.value:.6g}: {figure.source}" for name, figure in known)
