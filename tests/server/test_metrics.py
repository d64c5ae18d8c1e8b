"""What /metrics says, read by a parser of the format."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from prometheus_client.parser import text_string_to_metric_families

from chairlift.core.config import SchedulerConfig
from chairlift.server.metrics import CONTENT_TYPE
from tests.server.harness import GatedRunner, LiveServer, wait_until


def scrape(server: LiveServer) -> dict[str, float]:
    """Sample name with its labels (but the model's) -> value."""
    response = server.http.get("/metrics")
    assert response.headers["content-type"] == CONTENT_TYPE
    return {
        sample.name.removeprefix("chairlift:")
        + "".join(
            f" {name}={value}" for name, value in sorted(sample.labels.items()) if name != "model_name"
        ): sample.value
        for family in text_string_to_metric_families(response.text)
        for sample in family.samples
    }


@pytest.fixture
def gated() -> Iterator[LiveServer]:
    """One row, steps held."""
    with LiveServer(SchedulerConfig(max_num_seqs=1), runner=GatedRunner(num_blocks=10)) as live:
        yield live


def test_gauges_show_the_moment(gated: LiveServer) -> None:
    """One runs, one waits, and the blocks of the one that runs are in use."""
    body = {"prompt": "x" * 30, "max_tokens": 5}
    with gated.raw("/v1/completions", body), gated.raw("/v1/completions", body):
        wait_until(lambda: gated.stats().usage.waiting and gated.stats().usage.running)
        seen = scrape(gated)

    assert seen["num_requests_running"] == 1
    assert seen["num_requests_waiting"] == 1
    assert seen["num_tokens_waiting"] == 30
    assert seen["kv_cache_usage_perc"] == 0.2
    assert seen["kv_blocks"] == 10
    assert seen["healthy"] == 1


def test_counters_and_histograms_add_up() -> None:
    """Three answered requests: tokens by kind, requests by end, one observation for each latency of each request."""
    with LiveServer() as server:
        for _ in range(3):
            server.complete(prompt="abcd", max_tokens=6)
        server.complete(max_tokens=100_000)
        for _ in range(3):
            server.departures.next()
        seen = scrape(server)

    assert seen["prompt_tokens_total"] == 12
    assert seen["generation_tokens_total"] == 18
    assert seen["tokens_total kind=prefill"] == 12
    assert seen["tokens_total kind=decode"] == 15
    assert seen["requests_finished_total finished_reason=length"] == 3
    assert seen["requests_accepted_total"] == 3
    assert seen["requests_refused_total"] == 1
    assert seen["num_preemptions_total"] == 0
    for name in ("time_to_first_token", "e2e_request_latency", "request_queue_time"):
        assert seen[f"{name}_seconds_count"] == 3
    assert seen["inter_token_latency_seconds_count"] == 15
    assert seen["iteration_tokens_total_sum"] == 27
    assert seen["iteration_tokens_total_count"] == seen["steps_total"] == seen["step_device_seconds_count"] == 18


def test_the_ledgers_categories_add_up_to_the_wall_clock() -> None:
    """Seconds by category sum to the time since the first call."""
    with LiveServer() as server:
        server.complete()
        before = server.stats().ledger.wall / 1e9
        seen = scrape(server)
        after = server.stats().ledger.wall / 1e9

    total = sum(value for name, value in seen.items() if name.startswith("ledger_seconds_total"))
    assert before <= total <= after


def test_latencies_leave_out_who_was_not_answered(gated: LiveServer) -> None:
    """A request that was cancelled, or failed, has no time to first token; its queue time counts all the same."""
    with gated.raw("/v1/completions", {"prompt": "abc", "max_tokens": 50}):
        gated.runner.allow(2)
        for _ in range(3):
            gated.runner.await_step()
    gated.await_abandoned()
    gated.runner.allow()
    gated.departures.next()
    seen = scrape(gated)

    assert seen["requests_finished_total finished_reason=cancelled"] == 1
    assert seen["time_to_first_token_seconds_count"] == 0
    assert seen["inter_token_latency_seconds_count"] == 0
    assert seen["e2e_request_latency_seconds_count"] == 0
    assert seen["request_queue_time_seconds_count"] == 1


def test_what_cannot_be_observed_between_tokens_is_not_claimed() -> None:
    """A static batch releases all tokens at its end: there is no time between them to speak of."""
    with LiveServer(SchedulerConfig(policy="static", batch_size=1)) as server:
        server.complete()
        server.departures.next()
        seen = scrape(server)

    assert seen["inter_token_latency_seconds_count"] == 0
    assert seen["e2e_request_latency_seconds_count"] == 1
    assert seen["server_info policy=static version=0.1.0"] == 1


def test_two_servers_in_one_process_do_not_share_metrics() -> None:
    """Each has a registry of its own."""
    with LiveServer() as one, LiveServer() as other:
        one.complete()
        assert scrape(one)["requests_accepted_total"] == 1
        assert scrape(other)["requests_accepted_total"] == 0
