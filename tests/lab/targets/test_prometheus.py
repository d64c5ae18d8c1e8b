import pytest

from chairlift.lab.targets.dialects import MetricNames, of_kind
from chairlift.lab.targets.prometheus import read_sample

VLLM = """\
# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="m"} 3.0
vllm:num_requests_running{engine="1",model_name="m"} 4.0
# TYPE vllm:kv_cache_usage_perc gauge
vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.25
vllm:kv_cache_usage_perc{engine="1",model_name="m"} 0.75
# TYPE vllm:generation_tokens_total counter
vllm:generation_tokens_total{engine="0",model_name="m"} 100.0
vllm:generation_tokens_created{engine="0",model_name="m"} 1.76e9
# TYPE vllm:request_success_total counter
vllm:request_success_total{engine="0",finished_reason="stop",model_name="m"} 5.0
vllm:request_success_total{engine="0",finished_reason="length",model_name="m"} 6.0
vllm:request_success_total{engine="0",finished_reason="abort",model_name="m"} 7.0
# TYPE vllm:time_to_first_token_seconds histogram
vllm:time_to_first_token_seconds_bucket{engine="0",le="0.1",model_name="m"} 2.0
vllm:time_to_first_token_seconds_bucket{engine="0",le="+Inf",model_name="m"} 11.0
vllm:time_to_first_token_seconds_count{engine="0",model_name="m"} 11.0
vllm:time_to_first_token_seconds_sum{engine="0",model_name="m"} 2.5
python_gc_objects_collected_total{generation="0"} 12.0
"""

LLAMA = """\
# TYPE llamacpp:tokens_predicted_total counter
llamacpp:tokens_predicted_total 42
llamacpp:prompt_tokens_total 7
llamacpp:prompt_tokens_cached_total 3
llamacpp:requests_processing 2
llamacpp:requests_deferred 1
llamacpp:n_busy_slots_per_decode 1.5
"""

TGI = """\
tgi_batch_current_size 4
tgi_queue_size 7
tgi_request_generated_tokens_sum 8123
tgi_request_input_length_sum 900
tgi_request_success{method="single"} 3
"""


def names(kind: str) -> MetricNames:
    """Of a dialect."""
    dialect = of_kind(kind)
    assert dialect is not None
    return dialect.metrics


def test_counts_are_added_and_shares_are_averaged_over_engines() -> None:
    """Two engines run seven requests and use half of their caches; aborted requests did not end well."""
    sample = read_sample(VLLM, names("vllm"))

    assert (sample.running, sample.kv_usage) == (7, 0.5)
    assert (sample.output_tokens, sample.requests) == (100, 11)
    assert (sample.ttft_sum, sample.ttft_count) == (2.5, 11)


def test_what_a_server_does_not_say_is_none() -> None:
    """Not 0, which would be a measurement."""
    sample = read_sample(VLLM, names("vllm"))

    assert (sample.waiting, sample.preemptions, sample.prefix_hits) == (None, None, None)


def test_series_keep_their_labels_in_order() -> None:
    """Everything of the server's; neither other libraries' metrics nor creation times; buckets on request."""
    plain, complete = (read_sample(VLLM, names("vllm"), buckets=buckets) for buckets in (False, True))

    assert plain.series['vllm:num_requests_running{engine="1",model_name="m"}'] == 4
    assert len(plain.series) == 10
    assert set(complete.series) - set(plain.series) == {
        'vllm:time_to_first_token_seconds_bucket{engine="0",le="0.1",model_name="m"}',
        'vllm:time_to_first_token_seconds_bucket{engine="0",le="+Inf",model_name="m"}',
    }


def test_llama_cpp_is_read() -> None:
    """No labels, no types but one."""
    sample = read_sample(LLAMA, names("llama.cpp"))

    assert (sample.running, sample.waiting, sample.prompt_tokens, sample.output_tokens) == (2, 1, 7, 42)
    assert sample.prefix_hits == 3
    assert sample.series["llamacpp:n_busy_slots_per_decode"] == 1.5


def test_tgi_is_read() -> None:
    """Its tokens are sums of histograms."""
    sample = read_sample(TGI, names("tgi"))

    assert (sample.running, sample.waiting, sample.prompt_tokens, sample.output_tokens, sample.requests) == (
        4,
        7,
        900,
        8123,
        3,
    )


def test_an_older_name_does_where_the_newer_is_missing() -> None:
    """As vLLM's cache usage was called before 0.10."""
    assert read_sample("vllm:gpu_cache_usage_perc 0.5\n", names("vllm")).kv_usage == 0.5


def test_a_server_without_metrics_of_its_own_says_nothing() -> None:
    """An empty prefix matches nothing, not everything."""
    sample = read_sample(VLLM, names("openai"))

    assert (sample.series, sample.running) == ({}, None)


def test_a_damaged_page_is_an_error() -> None:
    """And not half a sample."""
    with pytest.raises(ValueError, match=r".+"):
        read_sample("vllm:num_requests_running{engine= 3\n", names("vllm"))
