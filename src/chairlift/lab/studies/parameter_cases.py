"""Which values of which parameters are tried, and on which load each shows what it does."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Literal

from chairlift.lab.studies.study import Study
from chairlift.lab.subjects import Settings

Place = Literal["low", "middle", "high"]


@dataclass(frozen=True, slots=True)
class Case:
    """One value of one parameter."""

    parameter: str
    """Its flag."""
    place: Place
    """Beside the other values of it."""
    value: str
    """For people."""
    settings: Settings
    """With it, and what its load needs beside."""


def largest(study: Study) -> Settings:
    """What room is made for once, before any block is counted."""
    step = 512 if study.quick else 832
    return {"policy": "continuous", "max_num_seqs": 48, "max_num_batched_tokens": step, "max_model_len": 1024}


def groups(study: Study) -> list[tuple[str, list[Case]]]:
    """Cases by the load that they run on."""
    small = study.quick
    crowd = f"name=crowd arrivals=burst arrivals.size=48 prompt=16 output={12 if small else 32}"
    long = 384 if small else 768
    prompts = (
        f"name=long-prompts arrivals=closed arrivals.users=4 count={12 if small else 24} prompt=bimodal "
        f"prompt.short=24 prompt.long={long} prompt.ratio=2:1 prompt.order=cycle output={16 if small else 32}"
    )
    lengths = (
        f"name=two-lengths arrivals=burst arrivals.size=12 prompt=bimodal prompt.short=32 prompt.long=256 "
        f"prompt.ratio=3:1 prompt.order=cycle output={16 if small else 32}"
    )
    base = {"policy": "continuous"}
    seqs = base | {"max_num_batched_tokens": 512, "max_model_len": 512}
    tokens = base | {"max_num_seqs": 8, "max_model_len": long + 64}
    whole = long + 64
    pool = base | {"num_kv_blocks": _blocks(study, 1024), "max_num_batched_tokens": 512}
    growing = f"name=growing arrivals=burst arrivals.size=16 prompt=64 output={48 if small else 96}"
    return [
        (
            crowd,
            [
                Case("--max-num-seqs", "low", "2", seqs | {"max_num_seqs": 2}),
                Case("--max-num-seqs", "middle", "16", seqs | {"max_num_seqs": 16}),
                Case("--max-num-seqs", "high", "48", seqs | {"max_num_seqs": 48}),
            ],
        ),
        (
            prompts,
            [
                Case("--max-num-batched-tokens", "low", "16", tokens | {"max_num_batched_tokens": 16}),
                Case("--max-num-batched-tokens", "middle", "128", tokens | {"max_num_batched_tokens": 128}),
                Case("--max-num-batched-tokens", "high", str(whole), tokens | {"max_num_batched_tokens": whole}),
                Case(
                    "--no-enable-chunked-prefill",
                    "high",
                    f"steps of {whole}",
                    tokens | {"max_num_batched_tokens": whole, "enable_chunked_prefill": False},
                ),
            ],
        ),
        (
            lengths,
            [
                Case("--max-model-len", "low", "128", pool | {"max_model_len": 128}),
                Case("--max-model-len", "middle", "320, reserved whole", pool | _naive(320)),
                Case("--max-model-len", "high", "1024, reserved whole", pool | _naive(1024)),
                Case("--max-model-len", "middle", "1024, held as needed", pool | {"max_model_len": 1024}),
            ],
        ),
        (
            growing,
            [
                Case("--num-kv-blocks", "low", "256 tokens", _pool(study, pool, 256)),
                Case("--num-kv-blocks", "middle", "4096 tokens", _pool(study, pool, 4096)),
            ],
        ),
    ]


def _naive(length: int) -> dict[str, Any]:
    return {"max_model_len": length, "kv_reservation": "model_len"}


def _pool(study: Study, base: Settings, tokens: int) -> dict[str, Any]:
    return {**base, "num_kv_blocks": _blocks(study, tokens), "max_model_len": 256, "max_num_seqs": 16}


def _blocks(study: Study, tokens: int) -> int:
    """KV blocks that hold so many tokens."""
    return -(-tokens // (study.subject.block_size() or 16))


SHARES: Final[tuple[tuple[Place, float], ...]] = (("low", 0.02), ("high", 0.99))
"""Of the device's memory: one that leaves no room for a KV pool, and one that leaves none beside it."""
