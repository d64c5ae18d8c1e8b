"""What tells servers apart: which fields their requests take, and what their metrics are called.

Fields and names are those of the servers' own documentation and sources: vLLM 0.11 to 0.33, SGLang 0.5, TGI 3,
llama.cpp of autumn 2026, TensorRT-LLM 1.x (trtllm-serve), Triton, and Chairlift. Where a server renamed a metric, both
names stand, the newer first.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final

_NOTHING: Final[Mapping[str, Any]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class MetricNames:
    """The server's Prometheus names for what chairlift.records.client.ServerSample has. Empty: it has none."""

    prefix: str = ""
    """What all its names begin with."""
    running: tuple[str, ...] = ()
    waiting: tuple[str, ...] = ()
    kv_usage: tuple[str, ...] = ()
    prompt_tokens: tuple[str, ...] = ()
    output_tokens: tuple[str, ...] = ()
    requests: tuple[str, ...] = ()
    preemptions: tuple[str, ...] = ()
    prefix_queries: tuple[str, ...] = ()
    prefix_hits: tuple[str, ...] = ()
    ttft_sum: tuple[str, ...] = ()
    ttft_count: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Dialect:
    """One kind of server."""

    kind: str
    """Its name."""
    owner: tuple[str, ...] = ()
    """`owned_by` of its models."""
    metrics: MetricNames = field(default_factory=MetricNames)
    """Its metrics."""
    token_ids: bool = False
    """/v1/completions takes a prompt as token ids."""
    ignore_eos: bool = False
    """A request may ask to go on past the end of sequence, so that answers have the length wanted."""
    priority: bool = False
    """A request may have a priority; a lower number is more urgent."""
    fields: Mapping[str, Any] = field(default_factory=lambda: _NOTHING)
    """What to add to a request, so that each chunk says how many tokens it has."""
    stream_options: Mapping[str, Any] = field(default_factory=lambda: _NOTHING)
    """The same within stream_options."""


def _vllm_like(prefix: str, requests: str) -> MetricNames:
    return MetricNames(
        prefix=prefix,
        running=(f"{prefix}num_requests_running",),
        waiting=(f"{prefix}num_requests_waiting",),
        kv_usage=(f"{prefix}kv_cache_usage_perc", f"{prefix}gpu_cache_usage_perc"),
        prompt_tokens=(f"{prefix}prompt_tokens_total",),
        output_tokens=(f"{prefix}generation_tokens_total",),
        requests=(f"{prefix}{requests}",),
        preemptions=(f"{prefix}num_preemptions_total",),
        prefix_queries=(f"{prefix}prefix_cache_queries_total", f"{prefix}gpu_prefix_cache_queries_total"),
        prefix_hits=(f"{prefix}prefix_cache_hits_total", f"{prefix}gpu_prefix_cache_hits_total"),
        ttft_sum=(f"{prefix}time_to_first_token_seconds_sum",),
        ttft_count=(f"{prefix}time_to_first_token_seconds_count",),
    )


OPENAI: Final = Dialect("openai")
"""Any other server: nothing but what OpenAI's own API has."""

DIALECTS: Final[tuple[Dialect, ...]] = (
    Dialect(
        "chairlift",
        owner=("chairlift",),
        metrics=_vllm_like("chairlift:", "requests_finished_total"),
        token_ids=True,
        ignore_eos=True,
        priority=True,
        stream_options={"continuous_usage_stats": True},
    ),
    Dialect(
        "vllm",
        owner=("vllm",),
        metrics=_vllm_like("vllm:", "request_success_total"),
        token_ids=True,
        ignore_eos=True,
        priority=True,
        stream_options={"continuous_usage_stats": True},
    ),
    Dialect(
        "sglang",
        owner=("sglang",),
        metrics=MetricNames(
            prefix="sglang:",
            running=("sglang:num_running_reqs",),
            waiting=("sglang:num_queue_reqs",),
            kv_usage=("sglang:token_usage",),
            prompt_tokens=("sglang:prompt_tokens_total",),
            output_tokens=("sglang:generation_tokens_total",),
            requests=("sglang:num_requests_total",),
            preemptions=("sglang:num_retracted_requests_total", "sglang:num_retracted_reqs_total"),
            prefix_queries=("sglang:prompt_tokens_total",),
            prefix_hits=("sglang:cached_tokens_total",),
            ttft_sum=("sglang:time_to_first_token_seconds_sum",),
            ttft_count=("sglang:time_to_first_token_seconds_count",),
        ),
        token_ids=True,
        ignore_eos=True,
        stream_options={"continuous_usage_stats": True},
    ),
    Dialect(
        "llama.cpp",
        owner=("llamacpp",),
        metrics=MetricNames(
            prefix="llamacpp:",
            running=("llamacpp:requests_processing",),
            waiting=("llamacpp:requests_deferred",),
            kv_usage=("llamacpp:kv_cache_usage_ratio",),
            prompt_tokens=("llamacpp:prompt_tokens_total",),
            output_tokens=("llamacpp:tokens_predicted_total",),
            prefix_hits=("llamacpp:prompt_tokens_cached_total",),
        ),
        token_ids=True,
        ignore_eos=True,
        fields={"timings_per_token": True},
    ),
    Dialect(
        "tgi",
        metrics=MetricNames(
            prefix="tgi_",
            running=("tgi_batch_current_size",),
            waiting=("tgi_queue_size",),
            prompt_tokens=("tgi_request_input_length_sum",),
            output_tokens=("tgi_request_generated_tokens_sum",),
            requests=("tgi_request_success",),
        ),
    ),
    Dialect(
        "tensorrt-llm",
        owner=("tensorrt_llm",),
        metrics=MetricNames(
            prefix="trtllm_",
            running=("trtllm_num_requests_running",),
            waiting=("trtllm_num_requests_waiting",),
            kv_usage=("trtllm_kv_cache_utilization",),
            prompt_tokens=("trtllm_prompt_tokens_total",),
            output_tokens=("trtllm_generation_tokens_total",),
            requests=("trtllm_request_success_total",),
            ttft_sum=("trtllm_time_to_first_token_seconds_sum",),
            ttft_count=("trtllm_time_to_first_token_seconds_count",),
        ),
        token_ids=True,
        ignore_eos=True,
        stream_options={"continuous_usage_stats": True},
    ),
    Dialect(
        "triton",
        metrics=MetricNames(
            prefix="nv_",
            waiting=("nv_inference_pending_request_count",),
            requests=("nv_inference_request_success",),
        ),
    ),
)
"""Those that are told apart."""


def recognise(owner: str, metrics: str) -> Dialect:
    """Which dialect a server speaks.

    Args:
        owner: `owned_by` of its model, empty where there is none.
        metrics: its /metrics page, empty where there is none.
    """
    for dialect in DIALECTS:
        if owner in dialect.owner:
            return dialect
    for dialect in DIALECTS:
        prefix = dialect.metrics.prefix
        if metrics.startswith(prefix) or f"\n{prefix}" in metrics:
            return dialect
    return OPENAI


def of_kind(kind: str) -> Dialect | None:
    """The dialect of a name, or None."""
    return next((dialect for dialect in (*DIALECTS, OPENAI) if dialect.kind == kind), None)
