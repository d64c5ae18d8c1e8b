"""Cases written after the rules, with other loads, devices and settings than the ward's."""

from tests.advisor.doctor.ward import SECOND, Planted

A100 = "a100-80gb-sxm/qwen2.5-14b"
QUAD = "h100-sxm/llama-3.1-70b/tp4"
HOME = "rtx-4090/mistral-7b"
H200 = "h200-sxm/qwen3-32b"

SUMMARIES = "prompt=uniform prompt.min=1500 prompt.max=3500 output=uniform output.min=100 output.max=200"
CODE = (
    "prompt=lognormal prompt.median=1200 prompt.sigma=0.8 prompt.max=6000 output=exponential output.mean=25 "
    "output.cap=200"
)
REASONING = "prompt=200 output=lognormal output.median=900 output.sigma=0.6 output.max=3000"
LABELS = "prompt=uniform prompt.min=200 prompt.max=260 output=8"

SICK = (
    Planted("summaries, six slots", "slots_short", f"arrivals=poisson arrivals.rate=2 count=60 {SUMMARIES} seed=51",
            {"max_num_seqs": 3, "max_model_len": 4096, "max_num_batched_tokens": 1024}, device=QUAD),
    Planted("code, two slots at home", "slots_short",
            f"arrivals=gamma arrivals.rate=3 arrivals.cv=3 count=90 {CODE} seed=52",
            {"max_num_seqs": 1, "max_model_len": 8192}, device=HOME),
    Planted("reasoning in a small pool", "preemption_thrash",
            f"arrivals=poisson arrivals.rate=2 count=50 {REASONING} seed=53",
            {"max_num_seqs": 64, "max_model_len": 4096, "watermark": 0.0},
             device=A100, settings={"num_kv_blocks": 900}),
    Planted("summaries in a small pool", "kv_too_small",
            f"arrivals=poisson arrivals.rate=3 count=60 {SUMMARIES} seed=54",
            {"max_num_seqs": 48, "max_model_len": 4096, "watermark": 0.05}, device=QUAD,
            settings={"num_kv_blocks": 700}),
    Planted("reasoning reserved in full", "reservation_too_large",
            "arrivals=poisson arrivals.rate=3 count=60 prompt=200 output=lognormal output.median=200 output.sigma=0.8 "
            "output.max=3000 max_tokens=3500 ignore_eos=false seed=55",
            {"max_num_seqs": 64, "max_model_len": 4096, "kv_reservation": "full"}, device=A100,
            settings={"num_kv_blocks": 2500}),
    Planted("code in whole prompts", "prefill_interference",
            f"arrivals=poisson arrivals.rate=4 count=100 {CODE} seed=56",
            {"max_num_seqs": 64, "max_model_len": 8192, "enable_chunked_prefill": False,
             "max_num_batched_tokens": 8192},
            device=A100),
    Planted("summaries beside chat at home", "prefill_interference",
            "arrivals=poisson arrivals.rate=1.5 count=70 prompt=bimodal prompt.short=80 prompt.long=5000 "
            "prompt.ratio=2:1 output=150 seed=57",
            {"max_num_seqs": 32, "max_model_len": 8192, "max_num_batched_tokens": 6144}, device=HOME),
    Planted("reasoning in static batches", "straggler_waste",
            f"arrivals=burst arrivals.size=48 {REASONING} seed=58",
            {"policy": "static", "batch_size": 12, "max_model_len": 4096}, device=H200),
    Planted("code in dynamic batches", "padding_waste",
            "arrivals=poisson arrivals.rate=3 count=90 prompt=lognormal prompt.median=1000 prompt.sigma=1.1 "
            "prompt.max=6000 output=4 seed=59",
            {"policy": "dynamic", "max_batch_size": 8, "max_model_len": 8192, "max_num_batched_tokens": 8192},
            device=A100),
    Planted("labels in static batches of 64", "waits_to_fill",
            f"arrivals=poisson arrivals.rate=6 count=256 {LABELS} seed=60",
            {"policy": "static", "batch_size": 64, "max_num_batched_tokens": 2048}, device=A100),
    Planted("labels wait for two seconds", "delay_too_long",
            f"arrivals=poisson arrivals.rate=4 count=160 {LABELS} seed=61",
            {"policy": "dynamic", "max_batch_size": 24, "max_queue_delay": 2 * SECOND}, device=HOME),
    Planted("labels at night", "delay_without_effect",
            f"arrivals=poisson arrivals.rate=0.1 count=40 {LABELS} seed=62",
            {"policy": "dynamic", "max_batch_size": 2, "max_queue_delay": SECOND // 2}, device=H200),
    Planted("labels in batches of up to 200", "batch_never_fills",
            f"arrivals=poisson arrivals.rate=10 count=200 {LABELS} seed=63",
            {"policy": "dynamic", "max_batch_size": 200, "max_queue_delay": 2_000_000}, device=A100),
    Planted("two users and 32 slots", "client_concurrency", f"arrivals=closed arrivals.users=2 count=30 {CODE} seed=64",
            {"max_num_seqs": 32, "max_model_len": 8192}, device=H200),
    Planted("more code than a 4090 does", "overload", f"arrivals=poisson arrivals.rate=12 count=200 {CODE} seed=65",
            {"max_num_seqs": 48, "max_model_len": 8192, "max_num_batched_tokens": 1024}, device=HOME),
    Planted("a morning", "not_stationary",
            f"arrivals=ramp arrivals.start_rate=0.5 arrivals.end_rate=8 arrivals.over=40s count=160 {LABELS} seed=66",
            {"max_num_seqs": 64}, device=A100),
    Planted("32 tokens a step", "budget_too_small",
            f"arrivals=poisson arrivals.rate=0.4 count=30 {SUMMARIES} seed=67",
            {"max_num_seqs": 32, "max_num_batched_tokens": 32, "max_model_len": 4096}, device=H200),
    Planted("one system prompt, computed each time", "sharing_off",
            "arrivals=poisson arrivals.rate=4 count=80 prompt=150 output=80 prefix.tokens=1200 prefix.groups=3 seed=68",
            {"max_num_seqs": 48, "enable_prefix_caching": False}, device=A100),
)  # fmt: skip

HEALTHY = (
    Planted("summaries on four H100", None, f"arrivals=poisson arrivals.rate=1 count=60 {SUMMARIES} seed=71",
            {"max_num_seqs": 32, "max_model_len": 4096, "max_num_batched_tokens": 1024}, device=QUAD),
    Planted("code on an A100", None, f"arrivals=poisson arrivals.rate=2 count=80 {CODE} seed=72",
            {"max_num_seqs": 64, "max_model_len": 8192}, device=A100),
    Planted("clumps of code on an A100", None,
            f"arrivals=gamma arrivals.rate=1.5 arrivals.cv=3 count=80 {CODE} seed=73",
            {"max_num_seqs": 64, "max_model_len": 8192}, device=A100),
    Planted("reasoning on an H200", None, f"arrivals=poisson arrivals.rate=0.5 count=40 {REASONING} seed=74",
            {"max_num_seqs": 48, "max_model_len": 4096}, device=H200),
    Planted("24 users reasoning at home", None, f"arrivals=closed arrivals.users=24 count=48 {REASONING} seed=75",
            {"max_num_seqs": 24, "max_model_len": 4096}, device=HOME),
    Planted("labels offline in static batches", None, f"arrivals=burst arrivals.size=256 {LABELS} seed=76",
            {"policy": "static", "batch_size": 32, "max_num_batched_tokens": 2048}, device=A100),
    Planted("labels in dynamic batches", None, f"arrivals=poisson arrivals.rate=12 count=200 {LABELS} seed=77",
            {"policy": "dynamic", "max_batch_size": 8, "max_queue_delay": 50_000_000}, device=HOME),
    Planted("labels by continuous batching", None, f"arrivals=poisson arrivals.rate=12 count=200 {LABELS} seed=78",
            {"max_num_seqs": 32}, device=HOME),
    Planted("agents", None,
            "arrivals=closed arrivals.users=8 sessions.turns=6 prompt=200 output=60 prefix.tokens=600 "
            "count=120 seed=79",
            {"max_num_seqs": 24, "max_model_len": 4096}, device=A100),
    Planted("one after the other", None, "arrivals=closed arrivals.users=1 count=10 prompt=512 output=64 seed=80",
            {"max_num_seqs": 2}, device=H200),
)  # fmt: skip
