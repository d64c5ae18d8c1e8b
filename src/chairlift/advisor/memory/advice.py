"""All answers to one question about memory: a model, a device, settings and lengths."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final

from chairlift.advisor.memory.described import DescribedModel
from chairlift.advisor.memory.lengths import Fitting, Lengths
from chairlift.advisor.memory.useful import Usefulness, usefulness
from chairlift.core.config import SchedulerConfig
from chairlift.core.errors import DeviceModelError, OutOfDeviceMemory
from chairlift.core.extremes import Extremes, find_extremes, rows_setting
from chairlift.devices.analytic import analytic_model
from chairlift.devices.memory import MemoryModel, MemoryPlan
from chairlift.devices.model import DeviceModel
from chairlift.devices.sheet import DeviceSheet

SHARES: Final = tuple(round(0.05 * step, 2) for step in range(1, 21))
"""Values of gpu_memory_utilization that the curve looks at."""
PRECISIONS: Final = (("bf16", "bf16"), ("bf16", "f8"), ("f8", "f8"), ("int8", "bf16"), ("int4", "bf16"))
"""(weights, keys and values) of the table."""
PARALLEL: Final = (1, 2, 4, 8)


@dataclass(frozen=True, slots=True)
class MemoryQuestion:
    """What is asked."""

    memory: MemoryModel
    config: SchedulerConfig
    lengths: Lengths
    device: DeviceModel | None = None
    """For the time of steps: without it nothing can be said about how many sequences pay."""
    name: str = ""
    """Of device and model, for people."""
    share: float = 0.9
    """gpu_memory_utilization."""
    block_size: int = 16
    kv_cache_memory: int | None = None
    num_kv_blocks: int | None = None

    def plan(self, share: float | None = None, tokens: int | None = None) -> MemoryPlan:
        """Divide the memory, with another share or another largest step if one is given.

        Raises:
            OutOfDeviceMemory: it does not fit.
        """
        own = share is None
        return self.memory.plan(
            gpu_memory_utilization=self.share if share is None else share,
            block_size=self.block_size,
            max_num_batched_tokens=tokens or self.config.max_num_batched_tokens,
            max_rows=min(self.config.max_rows, tokens or self.config.max_num_batched_tokens),
            kv_cache_memory=self.kv_cache_memory if own else None,
            num_kv_blocks=self.num_kv_blocks if own else None,
        )

    def fitting(self, plan: MemoryPlan) -> Fitting:
        """Sequences of the load's lengths that a plan's pool holds."""
        config = self.config
        return self.lengths.fitting(
            plan.num_blocks, plan.block_size, config.effective_kv_reservation, config.max_model_len
        )


@dataclass(frozen=True, slots=True)
class SharePoint:
    """One value of gpu_memory_utilization."""

    share: float
    blocks: int
    """0: it does not start, since the share is too small, or so large that the pool leaves too little for what the
    budget does not see."""
    sequences: int
    """Of the load's lengths, 99% of the time."""
    fails_later: bool
    """It starts, and the largest permitted step runs out of memory."""


@dataclass(frozen=True, slots=True)
class LengthPoint:
    """One value of max_model_len."""

    max_model_len: int
    whole: int
    """Sequences of that length that the pool holds."""
    blocks_unchunked: int | None
    """KV blocks left when prompts are computed in one step, so that the largest step grows with it; None: nothing."""


@dataclass(frozen=True, slots=True)
class MemoryAdvice:
    """The answers."""

    question: MemoryQuestion
    plan: MemoryPlan
    fitting: Fitting
    useful: Usefulness | None
    """None without a device model."""
    curve: tuple[SharePoint, ...]
    starts_at: float | None
    """The smallest share of the curve with room for one sequence of max_model_len."""
    enough_at: float | None
    """The smallest share of the curve from which all sequences that may run fit: more changes nothing. None: never."""
    longest: int
    """The largest max_model_len: what the pool holds, or the model was made for."""
    longest_unchunked: int
    """The same when every prompt is computed in one step."""
    by_length: tuple[LengthPoint, ...]
    extremes: Extremes | None

    @property
    def binding(self) -> str:
        """Which limit is met first: the setting for sequences, memory, or what a further sequence costs."""
        pays = self.fitting.nearly_always if self.useful is None else self.useful.useful
        if self.question.config.max_rows < min(self.fitting.nearly_always, pays):
            return rows_setting(self.question.config)
        return "memory" if self.useful is None else self.useful.binding

    def to_json(self) -> dict[str, Any]:
        """Plain values: bytes, tokens, sequences; times in seconds."""
        plan, question, memory = self.plan, self.question, self.question.memory
        return {
            "device": question.name,
            "kind": None if question.device is None else question.device.provenance.kind,
            "bytes": {
                "capacity": memory.capacity,
                "budget": plan.budget,
                "weights": memory.weights,
                "runtime": memory.runtime,
                "activations": plan.activations,
                "kv_pool": plan.kv_pool,
                "unseen": memory.unseen,
                "kv_per_token": memory.kv_bytes_per_token,
            },
            "blocks": plan.num_blocks,
            "block_size": plan.block_size,
            "tokens": plan.longest_sequence,
            "decided_by": plan.decided_by,
            "lengths": {name: getattr(question.lengths, name) for name in question.lengths.__slots__},
            "fits": {"on_average": self.fitting.on_average, "nearly_always": self.fitting.nearly_always},
            "useful": None if self.useful is None else self.useful.to_json(),
            "binding": self.binding,
            "curve": [{name: getattr(one, name) for name in one.__slots__} for one in self.curve],
            "starts_at": self.starts_at,
            "enough_at": self.enough_at,
            "longest": self.longest,
            "longest_unchunked": self.longest_unchunked,
            "by_length": [{name: getattr(one, name) for name in one.__slots__} for one in self.by_length],
            "warning": None if self.extremes is None else str(self.extremes),
        }


def advise(question: MemoryQuestion, context_length: int) -> MemoryAdvice:
    """Answer.

    Args:
        question: what is asked.
        context_length: positions that the model was made for.

    Raises:
        OutOfDeviceMemory: not one block fits, with what would help.
    """
    plan = question.plan()
    fitting = question.fitting(plan)
    curve = tuple(_share_point(question, share) for share in SHARES)
    length, block = question.config.max_model_len, question.block_size
    needed = -(-length // block)
    wanted = question.config.max_rows
    return MemoryAdvice(
        question=question,
        plan=plan,
        fitting=fitting,
        useful=None
        if question.device is None
        else usefulness(question.device, question.lengths, fitting.nearly_always),
        curve=curve,
        starts_at=next((one.share for one in curve if one.blocks >= needed), None),
        enough_at=next((one.share for one in curve if one.sequences >= wanted), None),
        longest=min(context_length, plan.longest_sequence),
        longest_unchunked=_longest_unchunked(question, context_length),
        by_length=_by_length(question, plan, context_length),
        extremes=find_extremes(question.config, plan.capacity),
    )


def _share_point(question: MemoryQuestion, share: float) -> SharePoint:
    try:
        plan = question.plan(share)
    except OutOfDeviceMemory:
        return SharePoint(share, 0, 0, fails_later=False)
    fails = plan.activations > plan.headroom
    return SharePoint(share, plan.num_blocks, question.fitting(plan).nearly_always, fails)


def _unchunked_blocks(question: MemoryQuestion, length: int) -> int | None:
    try:
        return question.plan(tokens=max(length, question.config.max_num_batched_tokens)).num_blocks
    except OutOfDeviceMemory:
        return None


def _longest_unchunked(question: MemoryQuestion, context_length: int) -> int:
    """The largest length whose prompt can be computed in one step and kept beside it: by bisection, since a longer
    step leaves a smaller pool.
    """
    low, high = 0, context_length
    while low < high:
        middle = (low + high + 1) // 2
        blocks = _unchunked_blocks(question, middle)
        if blocks is not None and blocks * question.block_size >= middle:
            low = middle
        else:
            high = middle - 1
    return low


def _by_length(question: MemoryQuestion, plan: MemoryPlan, context_length: int) -> tuple[LengthPoint, ...]:
    sizes = {1 << i for i in range(10, 21) if 1 << i < context_length} | {context_length, question.config.max_model_len}
    return tuple(
        LengthPoint(size, plan.num_blocks // -(-size // plan.block_size), _unchunked_blocks(question, size))
        for size in sorted(sizes)
    )


@dataclass(frozen=True, slots=True)
class Alternative:
    """One precision on so many devices."""

    weights: str
    kv: str
    tensor_parallel: int
    weight_bytes: int
    """On one device."""
    tokens: int
    """In the KV pool; 0: it does not fit."""
    sequences: int
    """Of the load's lengths, 99% of the time."""
    tokens_per_second: float
    """With all of them, or the valid range's most."""


def alternatives(question: MemoryQuestion, model: DescribedModel, sheet: DeviceSheet) -> tuple[Alternative, ...]:
    """Every precision and number of devices that the sheet and the model allow."""
    found = []
    for weights, kv in PRECISIONS:
        for parallel in PARALLEL:
            try:
                device = analytic_model(model.config, sheet, tensor_parallel=parallel, weights=weights, kv=kv)
            except DeviceModelError:
                continue  # the device has no such arithmetic, or the heads do not divide
            found.append(_alternative(question, device, weights, kv))
    return tuple(found)


def _alternative(question: MemoryQuestion, device: DeviceModel, weights: str, kv: str) -> Alternative:
    memory, parallel = device.memory or question.memory, device.tensor_parallel
    there = replace(question, device=device, memory=memory)
    try:
        plan = there.plan()
    except OutOfDeviceMemory:
        return Alternative(weights, kv, parallel, memory.weights, 0, 0, 0.0)
    fits = there.fitting(plan).nearly_always
    rate = 0.0
    if fits:
        curve = usefulness(device, there.lengths, fits)
        rate = curve.at(curve.fits).tokens_per_second
    return Alternative(weights, kv, parallel, memory.weights, plan.longest_sequence, fits, rate)
