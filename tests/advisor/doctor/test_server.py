"""Facts from metrics pages: those of real servers (see docs/doctor.md for versions and load), and made ones."""

from pathlib import Path

import pytest

from chairlift.advisor.doctor.diagnose import diagnose
from chairlift.advisor.doctor.report import diagnosis_lines, theirs
from chairlift.advisor.doctor.server import Changes, case_of_pages

PAGES = Path(__file__).parent / "pages"


def pages(kind: str) -> list[str]:
    """A real server's pages, the oldest first."""
    return [path.read_text("utf-8") for path in sorted(PAGES.glob(f"{kind}-*.prom"))]


def histogram(name: str, buckets: dict[str, float]) -> dict[str, float]:
    """Series of a histogram, cumulative."""
    return {f'{name}_bucket{{le="{bound}"}}': count for bound, count in buckets.items()}


def test_percentiles_are_linear_inside_a_bucket() -> None:
    """Ten of twenty up to 0.1, the others evenly up to 0.2: the median is 0.1 and p75 0.15; the last is not known."""
    change = Changes({}, histogram("x", {"0.1": 10, "0.2": 20, "+Inf": 20}))

    assert change.percentile(["x"], 50) == pytest.approx(0.1)
    assert change.percentile(["x"], 75) == pytest.approx(0.15)
    assert Changes({}, histogram("x", {"0.1": 1, "+Inf": 9})).percentile(["x"], 99) is None
    assert change.percentile(["y", "x"], 50) == pytest.approx(0.1)
    assert Changes({}, {}).percentile(["x"], 50) is None


def test_only_what_came_since_the_first_page_counts() -> None:
    """Sums over labels; a mean is the rise of the sum over the rise of the count."""
    first = {'a_total{x="1"}': 5.0, "t_sum": 10.0, "t_count": 4.0}
    last = {'a_total{x="1"}': 7.0, 'a_total{x="2"}': 3.0, "t_sum": 16.0, "t_count": 6.0}
    change = Changes(first, last)

    assert change.of("a_total") == 5
    assert change.by_label("a_total", "x") == {"1": 2, "2": 3}
    assert change.mean(["t"]) == 3
    assert change.last("a_total") == 10
    assert change.mean(["none"]) is None


def test_llama_cpp_with_too_few_slots() -> None:
    """Two slots and eight requests at once: the slots are short, and their flag is --parallel there."""
    case, facts = case_of_pages(pages("llama.cpp"), name="llama", seconds=8)
    diagnosis = diagnose(case, facts)

    assert case.server == "llama.cpp"
    assert (facts.rows_limit, facts.waiting_peak) == (2, 6)
    assert facts.output_rate is not None
    assert diagnosis.first is not None
    assert diagnosis.first.rule == "slots_short"
    assert "(--parallel there)" in " ".join(" ".join(diagnosis_lines(diagnosis)).split())


def test_vllm_with_too_few_slots() -> None:
    """Four slots and 24 requests at once; the pool is nearly empty, which its page says, too."""
    case, facts = case_of_pages(pages("vllm"), name="vllm", seconds=6)
    diagnosis = diagnose(case, facts)

    assert case.server == "vllm"
    assert (facts.rows_limit, facts.waiting_peak) == (4, 20)
    assert facts.kv_peak is not None
    assert facts.kv_peak < 0.01
    assert facts.details["block_size"] == "128"
    assert facts.queue_mean is not None
    assert facts.end_to_end_mean is not None
    assert 0.5 < facts.queue_mean / facts.end_to_end_mean < 1
    assert facts.itl_p50 is not None
    assert diagnosis.first is not None
    assert diagnosis.first.rule == "slots_short"
    assert "high latency: requests wait before they run" in [one.name for one in diagnosis.symptoms]


def test_vllm_with_too_small_a_pool() -> None:
    """14 blocks of 128 and 24 requests at once: 57 preemptions in six seconds, and a pool that was full."""
    case, facts = case_of_pages(pages("full-vllm"), name="vllm", seconds=6)
    diagnosis = diagnose(case, facts)

    assert facts.preemptions == 57
    assert facts.kv_peak is not None
    assert facts.kv_peak > 0.9
    assert diagnosis.first is not None
    assert diagnosis.first.rule == "preemption_thrash"
    assert {one.setting for one in diagnosis.first.changes} == {"num_kv_blocks", "max_num_seqs"}


def test_one_page_alone_tells_since_the_servers_start() -> None:
    """Nothing is known of how it stood between."""
    case, facts = case_of_pages(pages("llama.cpp")[-1:], name="llama", seconds=60)

    assert case.server == "llama.cpp"
    assert facts.output_rate == pytest.approx(528 / 60)


def test_a_server_that_stands_still_while_requests_wait_is_stuck() -> None:
    """The count of tokens did not rise in half a minute."""
    page = "vllm:num_requests_running 0\nvllm:num_requests_waiting 3\nvllm:generation_tokens_total 500\n"
    case, facts = case_of_pages([page, page, page], name="vllm", seconds=30)
    first = diagnose(case, facts).first

    assert first is not None
    assert first.rule == "stuck"


def test_our_own_servers_ledger_is_read() -> None:
    """Half of the device's time went to dead rows under dynamic batching."""
    zero = "chairlift:num_requests_running 0\n"
    page = (
        'chairlift:server_info{model_name="m",policy="dynamic",version="0.1.0"} 1\n'
        + "".join(
            f'chairlift:ledger_seconds_total{{category="{name}",model_name="m"}} {value}\n'
            for name, value in (("prefill", 1), ("decode", 3), ("dead", 4), ("host", 1), ("idle", 1), ("padding", 0))
        )
        + "".join(
            f'chairlift:tokens_total{{kind="{kind}",model_name="m"}} {value}\n'
            for kind, value in (("prefill", 50), ("decode", 50), ("dead", 100))
        )
    )
    case, facts = case_of_pages([zero, page], name="ours", seconds=10)
    first = diagnose(case, facts).first

    assert facts.busy == pytest.approx(0.8)
    assert facts.useful == pytest.approx(0.5)
    assert facts.dead_time == pytest.approx(0.5)
    assert first is not None
    assert first.rule == "straggler_waste"
    assert "dynamic batching" in first.means


def test_triton_tells_its_mean_batch_and_its_queue() -> None:
    """1,000 inferences in 250 executions; 40 of 50 ms in the queue."""
    zero = 'nv_inference_exec_count{model="m"} 0\n'
    page = (
        'nv_inference_request_success{model="m"} 1000\nnv_inference_count{model="m"} 1000\n'
        'nv_inference_exec_count{model="m"} 250\nnv_inference_queue_duration_us{model="m"} 40000000\n'
        'nv_inference_request_duration_us{model="m"} 50000000\nnv_inference_pending_request_count{model="m"} 7\n'
    )
    case, facts = case_of_pages([zero, page], name="triton", seconds=10)

    assert case.server == "triton"
    assert facts.details["mean_batch"] == 4
    assert facts.queue_mean == pytest.approx(0.04)
    assert facts.end_to_end_mean == pytest.approx(0.05)
    assert any("requests wait before they run" in one.name for one in diagnose(case, facts).symptoms)


def test_sglang_and_tensorrt_llm_are_recognised() -> None:
    """By what their metrics begin with; preemptions are retractions there."""
    page = (
        "sglang:num_running_reqs 8\nsglang:num_queue_reqs 4\nsglang:token_usage 0.99\n"
        "sglang:num_retracted_requests_total {}\nsglang:num_requests_total {}\nsglang:generation_tokens_total {}\n"
    )
    case, facts = case_of_pages([page.format(0, 0, 0), page.format(30, 60, 9000)], name="sglang", seconds=30)

    assert case.server == "sglang"
    assert facts.preemptions == 30
    first = diagnose(case, facts).first
    assert first is not None
    assert first.rule == "preemption_thrash"
    trt = "trtllm_num_requests_running 1\ntrtllm_num_requests_waiting 0\n"
    assert case_of_pages([trt, trt], name="x", seconds=1)[0].server == "tensorrt-llm"


def test_their_words_for_our_settings() -> None:
    """From the table of flags; ours need none."""
    assert theirs("sglang", "max_num_seqs") == "--max-running-requests"
    assert theirs("chairlift", "max_num_seqs") == ""
    assert theirs("openai", "max_num_seqs") == ""
    assert theirs("vllm", "padding") == ""
