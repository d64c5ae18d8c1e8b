"""Switching the policy of a running server."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from chairlift.core.config import POLICIES, SchedulerConfig
from chairlift.server import admin
from chairlift.server.config import ServerConfig
from tests.server.harness import GatedRunner, LiveServer, wait_until


@pytest.fixture(scope="module")
def server() -> Iterator[LiveServer]:
    """A server with its admin routes open."""
    with LiveServer(SchedulerConfig(max_num_seqs=4), ServerConfig(port=0, enable_admin=True)) as live:
        yield live


def test_without_the_flag_there_is_no_such_route() -> None:
    """Off by default: 404."""
    with LiveServer() as live:
        assert live.post("/admin/policy", {"policy": "static"}).status_code == 404
        assert live.http.get("/admin/policy").status_code == 404


def test_a_switch_takes_its_settings_along(server: LiveServer) -> None:
    """POST names the policy and any settings; GET shows them; requests are answered under each."""
    for policy in POLICIES:
        said = server.post(
            "/admin/policy", {"policy": policy, "max_batch_size": 3, "max_queue_delay": 0, "batch_size": 1}
        )

        assert said.status_code == 200
        shown = server.http.get("/admin/policy").json()
        assert (shown["policy"], shown["switching_to"]) == (policy, None)
        assert shown["settings"]["max_batch_size"] == 3
        assert server.complete().status_code == 200


def test_lists_become_tuples(server: LiveServer) -> None:
    """preferred_batch_sizes is a JSON list."""
    said = server.post("/admin/policy", {"policy": "dynamic", "max_batch_size": 8, "preferred_batch_sizes": [2, 4]})

    assert said.json()["settings"]["preferred_batch_sizes"] == [2, 4]
    assert server.engine.config.preferred_batch_sizes == (2, 4)
    assert server.post("/admin/policy", {"policy": "continuous", "preferred_batch_sizes": []}).status_code == 200


def test_out_of_continuous_what_runs_drains_first() -> None:
    """While it drains, the answer says what is being switched to."""
    settings = ServerConfig(port=0, enable_admin=True)
    with LiveServer(server=settings, runner=GatedRunner()) as live, live.raw("/v1/completions", {"prompt": "abc"}):
        live.runner.await_step()

        said = live.post("/admin/policy", {"policy": "static", "batch_size": 1}).json()
        assert (said["policy"], said["switching_to"]) == ("continuous", "static")

        live.runner.open()
        wait_until(lambda: live.stats().usage.policy == "static")


WRONG: list[tuple[Any, str]] = [
    ({"policy": "magic"}, "policy"),
    ({"policy": "static", "batch_size": 0}, "--batch-size is 0"),
    ({"policy": "static", "batch_size": "8"}, "batch_size: Input should be a valid integer"),
    ({"policy": "static", "batchsize": 8}, "there is no setting 'batchsize'"),
    ({"policy": "static", "max_model_len": 64}, "--max-model-len cannot change"),
    ({"max_num_batched_tokens": 4096}, "was not reserved for at start"),
    ({"policy": "static", "kv_reservation": "prompt"}, "--kv-reservation prompt"),
    ([1], "must be an object"),
]


@pytest.mark.parametrize(("body", "said"), WRONG)
def test_what_cannot_be_is_a_400_and_changes_nothing(server: LiveServer, body: object, said: str) -> None:
    """The message names the setting; the policy stays."""
    before = server.http.get("/admin/policy").json()

    response = server.post("/admin/policy", body)

    assert response.status_code == 400
    assert said in response.json()["error"]["message"]
    assert server.http.get("/admin/policy").json() == before


def test_broken_json_is_a_400(server: LiveServer) -> None:
    """As on the other routes."""
    assert server.http.post("/admin/policy", content=b"{").status_code == 400


def test_with_a_key_only_its_holder_may(monkeypatch: pytest.MonkeyPatch) -> None:
    """The key opens it from anywhere; without a configured key only this machine may."""
    monkeypatch.setattr(admin, "_LOOPBACK", {"10.0.0.1"})
    with LiveServer(server=ServerConfig(port=0, enable_admin=True)) as live:
        assert live.http.get("/admin/policy").status_code == 403
    with LiveServer(server=ServerConfig(port=0, enable_admin=True, api_key="k")) as live:
        assert live.http.get("/admin/policy").status_code == 401
        assert live.http.get("/admin/policy", headers={"authorization": "Bearer k"}).status_code == 200


def test_a_page_of_another_site_may_not_switch(server: LiveServer) -> None:
    """A browser says where a request comes from: only the server's own pages pass."""
    own = server.http.post("/admin/policy", json={"policy": "continuous"}, headers={"origin": server.url})
    for origin in ("https://example.org", "null", "http://[broken"):
        other = server.http.post("/admin/policy", json={"policy": "static"}, headers={"origin": origin})
        assert other.status_code == 403

    assert own.status_code == 200
    assert server.engine.config.policy == "continuous"
