"""The scheduler's settings. Every field explains itself; validation names the flag and the way out.

Durations are integer nanoseconds here; the command line takes them with a unit (`--max-queue-delay 50ms`).
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any, Literal, get_args

from chairlift.core.errors import ConfigError
from chairlift.core.request import Nanoseconds

PolicyName = Literal["static", "dynamic", "continuous"]
KVReservation = Literal["prompt", "full", "model_len"]
Padding = Literal["longest", "none"]
Release = Literal["batch", "request", "token"]
QueueOrder = Literal["fcfs", "priority", "shortest_prompt"]

POLICIES: tuple[PolicyName, ...] = get_args(PolicyName)


@dataclass(frozen=True, slots=True)
class KVCapacity:
    """The KV pool a runner offers."""

    block_size: int
    """Tokens in a block."""
    num_blocks: int
    """Usable blocks, with ids 0 .. num_blocks - 1. What the runner keeps for itself is not counted."""
    scratch_block: int
    """A block beyond the usable ones that rows may write to when their result does not matter."""
    block_bytes: int = 0
    """Bytes of one block over all layers, keys and values; 0 when unknown. Used in messages."""


@dataclass(frozen=True, slots=True)
class SchedulerConfig:
    """All settings of all three policies: a live switch changes `policy` and finds the rest in place."""

    policy: PolicyName = "continuous"
    """Who runs together: static (collect, run, release together), dynamic (closed batches from a queue with a
    bounded wait) or continuous (decided anew at every step)."""

    max_model_len: int = 2048
    """Most tokens of prompt and answer together (also max_seq_len). Longer requests are refused at the door. Too high:
    the naive reservation model_len serves fewer sequences, and one request may take the whole pool."""

    max_num_seqs: int = 32
    """Most sequences that run at once under continuous. Higher: more throughput until compute or memory bandwidth is
    spent, then only more time between tokens, and preemptions when the KV pool is short. Lower: the queue grows."""

    max_num_batched_tokens: int = 512
    """Most tokens one step may compute, decodes and prompt chunks together, under every policy. Higher: prompts finish
    sooner, answers in progress stutter more, activations take more memory. Lower: the reverse. At least max_num_seqs
    (and batch_size, max_batch_size), since every running sequence gets a token."""

    kv_reservation: KVReservation | None = None
    """KV blocks an admitted request holds: prompt (grow as needed, preempt when short; not for closed batches), full
    (prompt + max_tokens) or model_len (max_model_len, the naive way). Default: prompt under continuous, full under
    static, dynamic."""

    padding: Padding | None = None
    """Whether prompts of a closed batch are padded to its longest: longest (the closed batches' default) or none."""

    release: Release | None = None
    """When results leave: batch (together, the closed batches' default), request (each when it ends) or token
    (streamed, the default under continuous)."""

    queue_order: QueueOrder = "fcfs"
    """Who is next: fcfs (arrival), priority (lower value first, then arrival) or shortest_prompt."""

    enable_prefix_caching: bool = True
    """Share KV blocks between requests that begin alike. Keep it equal across policies in a comparison."""

    max_queued_requests: int = 1024
    """Most requests that wait; more are refused at once instead of waiting without a bound. 0: no limit."""

    max_queued_tokens: int = 0
    """Most prompt tokens that wait. 0: no limit."""

    # static
    batch_size: int = 8
    """Static: how many requests are collected before the batch starts. Higher: better use of each step, longer wait for
    the batch to fill and more straggler waste."""

    max_wait: Nanoseconds | None = None
    """Static: start an unfilled batch when its oldest request has waited this long. Default: never; it starts when
    full, at the end of the input, or on drain."""

    # dynamic
    max_batch_size: int = 8
    """Dynamic: most requests in a batch. Raising it without max_queue_delay has no effect on sparse traffic: batches
    never fill.
    """

    max_queue_delay: Nanoseconds = 50_000_000
    """Dynamic: longest wait of the oldest request for its batch to fill, from its arrival. 0 never waits. Too short:
    batches leave small; too long: the wait shows in every time to first token."""

    preferred_batch_sizes: tuple[int, ...] = ()
    """Dynamic: send a batch at once when one of these sizes is reached (the largest reached; a small one wins over
    waiting for a larger)."""

    # continuous
    enable_chunked_prefill: bool = True
    """Continuous: compute long prompts in pieces beside the decodes. Without it a prompt is computed in one step, and
    max_num_batched_tokens must be at least max_model_len."""

    watermark: float = 0.01
    """Continuous: share of the KV pool kept free at admission while others run, as room for their growth. 0 admits to
    the last block and preempts more."""

    prefill_interval: int = 1
    """Continuous: while many decode (prefill_interval_load), at most one step in this many carries prompt tokens. 1:
    every step may.
    """

    prefill_interval_load: float = 0.5
    """Continuous: share of max_num_seqs that must be decoding before prefill_interval applies."""

    target_itl: Nanoseconds | None = None
    """Continuous: wished time between tokens. Caps a step's prompt tokens and admissions by the predicted step time.
    When the decodes alone exceed it, that is said. None: no cap."""

    def __post_init__(self) -> None:
        """Raises ConfigError on the first setting that cannot be."""
        _check_ranges(self)
        _check_combinations(self)

    @property
    def closed(self) -> bool:
        """Whether batches are closed: nobody enters or leaves between start and end."""
        return self.policy != "continuous"

    @property
    def effective_kv_reservation(self) -> KVReservation:
        return self.kv_reservation or ("full" if self.closed else "prompt")

    @property
    def effective_padding(self) -> Padding:
        return self.padding or ("longest" if self.closed else "none")

    @property
    def effective_release(self) -> Release:
        return self.release or ("batch" if self.closed else "token")

    @property
    def max_rows(self) -> int:
        """Most rows of one step under this policy."""
        return {"static": self.batch_size, "dynamic": self.max_batch_size, "continuous": self.max_num_seqs}[self.policy]

    def with_policy(self, policy: PolicyName, **changes: Any) -> SchedulerConfig:
        """The same settings under another policy.

        Raises ConfigError when they do not go together, or when there is no such setting.
        """
        if unknown := changes.keys() - {field.name for field in fields(self)}:
            raise ConfigError(f"there is no setting {', '.join(sorted(unknown))}.")
        return replace(self, policy=policy, **changes)


def flag(field_name: str) -> str:
    """The command-line flag of a field: max_num_seqs -> --max-num-seqs."""
    return "--" + field_name.replace("_", "-")


_AT_LEAST_ONE = (
    "max_model_len",
    "max_num_seqs",
    "max_num_batched_tokens",
    "batch_size",
    "max_batch_size",
    "prefill_interval",
)
_NOT_NEGATIVE = ("max_queued_requests", "max_queued_tokens", "max_queue_delay")
_CHOICES: dict[str, tuple[str | None, ...]] = {
    "policy": POLICIES,
    "kv_reservation": (None, *get_args(KVReservation)),
    "padding": (None, *get_args(Padding)),
    "release": (None, *get_args(Release)),
    "queue_order": get_args(QueueOrder),
}


def _check_ranges(config: SchedulerConfig) -> None:
    for name in _AT_LEAST_ONE:
        if (value := getattr(config, name)) < 1:
            raise ConfigError(f"{flag(name)} is {value}; it must be at least 1.")
    for name in _NOT_NEGATIVE:
        if (value := getattr(config, name)) < 0:
            raise ConfigError(f"{flag(name)} is {value}; it must not be negative.")
    for name, choices in _CHOICES.items():
        if (value := getattr(config, name)) not in choices:
            allowed = ", ".join(str(choice) for choice in choices if choice)
            raise ConfigError(f"{flag(name)} is {value!r}; it must be one of {allowed}.")
    for name in ("watermark", "prefill_interval_load"):
        if not 0 <= (value := getattr(config, name)) <= 1 or (name == "watermark" and value == 1):
            raise ConfigError(f"{flag(name)} is {value}; it is a share: between 0 and 1.")
    for name in ("max_wait", "target_itl"):
        if (value := getattr(config, name)) is not None and value < 1:
            raise ConfigError(f"{flag(name)} is {value} ns; it must be positive, or absent.")
    if any(size < 1 for size in config.preferred_batch_sizes):
        raise ConfigError(f"--preferred-batch-sizes has {min(config.preferred_batch_sizes)}; sizes are at least 1.")


def _check_combinations(config: SchedulerConfig) -> None:
    budget = config.max_num_batched_tokens
    rows_setting = {"static": "batch_size", "dynamic": "max_batch_size", "continuous": "max_num_seqs"}[config.policy]
    rows = getattr(config, rows_setting)
    if budget < rows:
        raise ConfigError(
            f"--max-num-batched-tokens is {budget}, but {flag(rows_setting)} lets {rows} sequences decode in one step: "
            f"raise the first to {rows} or lower the second to {budget}."
        )
    if config.policy == "continuous":
        if not config.enable_chunked_prefill and budget < config.max_model_len:
            raise ConfigError(
                f"--max-num-batched-tokens is {budget}, and without chunked prefill a prompt of up to --max-model-len "
                f"{config.max_model_len} must fit in one step: raise the first to {config.max_model_len}, "
                "or enable chunked prefill."
            )
        if config.padding == "longest":
            raise ConfigError(
                "--padding longest is for closed batches: continuous has no batch to pad. Use --padding none."
            )
        if config.release == "batch":
            raise ConfigError(
                "--release batch is for closed batches: a continuous batch never ends. Use token or request."
            )
    elif config.policy == "static" and config.max_wait is None and 0 < config.max_queued_requests < config.batch_size:
        raise ConfigError(
            f"--max-queued-requests is {config.max_queued_requests}, below --batch-size {config.batch_size}: the batch "
            f"could never fill, and static waits for it without --max-wait. Raise the first to {config.batch_size}, or "
            "set --max-wait."
        )
    elif config.kv_reservation == "prompt":
        raise ConfigError(
            "--kv-reservation prompt lets sequences grow and preempts when blocks run out, "
            f"which a closed batch cannot do: use full or model_len with --policy {config.policy}."
        )
    too_large = [size for size in config.preferred_batch_sizes if size > config.max_batch_size]
    if too_large:
        raise ConfigError(
            f"--preferred-batch-sizes has {max(too_large)}, above --max-batch-size {config.max_batch_size}: "
            f"such a batch can never leave. Raise the second to {max(too_large)} or drop that size."
        )
