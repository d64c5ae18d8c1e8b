"""OpenVINO GenAI's ContinuousBatchingPipeline behind a pipe. Runs in an environment of its own (`make setup-peers`).

python -m benchmarks._genai '{"model": DIR, "threads": 2, "budget": 256, "kv_cache": "f16", "precision": "f32"}'

An empty kv_cache or precision leaves the pipeline's own default.
"""

from __future__ import annotations

import itertools
import json
import sys
import time
from collections.abc import Mapping
from typing import Any

import numpy as np
import openvino as ov
import openvino_genai as genai  # type: ignore[import-not-found]

from benchmarks._loads import LOADS
from benchmarks._pipe import serve


def open_pipeline(settings: Mapping[str, Any]) -> Any:
    """The pipeline, with prefix caching off and a cache that preempts nobody."""
    scheduler = genai.SchedulerConfig()
    scheduler.cache_size = 1
    scheduler.max_num_batched_tokens = settings["budget"]
    scheduler.max_num_seqs = 32
    scheduler.dynamic_split_fuse = True
    scheduler.enable_prefix_caching = False
    properties = {"INFERENCE_NUM_THREADS": settings["threads"], "PERFORMANCE_HINT": "LATENCY"}
    if settings.get("kv_cache"):
        properties["KV_CACHE_PRECISION"] = settings["kv_cache"]
    if settings.get("precision"):
        properties["INFERENCE_PRECISION_HINT"] = settings["precision"]
    return genai.ContinuousBatchingPipeline(settings["model"], scheduler, "CPU", properties)


def main() -> None:
    """Load, warm up, serve."""
    pipeline = open_pipeline(json.loads(sys.argv[1]))
    numbers = itertools.count()

    def run(load: str) -> dict[str, Any]:
        jobs = [(ov.Tensor(np.array([job.prompt], np.int64)), job.answer) for job in LOADS[load]()]
        first = None
        begun = time.perf_counter()
        handles = []
        for prompt, answer in jobs:
            generation = genai.GenerationConfig()
            generation.max_new_tokens = answer
            generation.ignore_eos = True
            generation.do_sample = False
            handles.append(pipeline.add_request(next(numbers), prompt, generation))
        while pipeline.has_non_finished_requests():
            pipeline.step()
            if first is None and any(handle.can_read() for handle in handles):
                first = time.perf_counter() - begun
        wall = time.perf_counter() - begun
        outputs = [[token for part in handle.read_all() for token in part.generated_ids] for handle in handles]
        return {"wall": wall, "first": first, "counts": [len(tokens) for tokens in outputs], "tokens": outputs}

    run("warm-up")
    serve({"engine": "OpenVINO GenAI", "version": genai.__version__, "openvino": ov.get_version()}, run)


if __name__ == "__main__":
    main()
