from pathlib import Path

import pytest

import chairlift.server.start
from chairlift.cli.main import main
from chairlift.engine.config import EngineConfig
from chairlift.server.config import ServerConfig


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> list[tuple[EngineConfig, ServerConfig]]:
    """Instead of serving, keep what would be served."""
    calls: list[tuple[EngineConfig, ServerConfig]] = []
    monkeypatch.setattr(chairlift.server.start, "serve", lambda engine, config: calls.append((engine, config)))
    monkeypatch.delenv("CHAIRLIFT_API_KEY", raising=False)
    return calls


def test_every_flag_reaches_its_setting(served: list[tuple[EngineConfig, ServerConfig]]) -> None:
    """Scheduler, device, model and server settings, each through its flag."""
    flags = (
        "--policy dynamic --max-seq-len 1024 --max-batch-size 4 --max-queue-delay 1.5s --preferred-batch-sizes 2,4 "
        "--no-enable-prefix-caching --threads 2 --kv-cache-memory 64MiB --chat-template t.jinja "
        "--port 0 --served-model-name a,b --max-body-size 1MiB --drain-timeout 5s --enable-admin --api-key k"
    )

    assert main(["serve", "m.gguf", *flags.split()]) == 0

    engine, server = served[0]
    scheduler = engine.scheduler
    assert engine.model == "m.gguf"
    assert engine.chat_template == Path("t.jinja")
    assert engine.fit_max_model_len is False
    assert (scheduler.policy, scheduler.max_model_len, scheduler.max_batch_size) == ("dynamic", 1024, 4)
    assert (scheduler.max_queue_delay, scheduler.preferred_batch_sizes) == (1_500_000_000, (2, 4))
    assert scheduler.enable_prefix_caching is False
    assert (engine.runner.threads, engine.runner.kv_cache_memory) == (2, 64 << 20)
    assert server == ServerConfig(
        port=0,
        served_model_name=("a", "b"),
        max_body_size=1 << 20,
        drain_timeout=5 * 10**9,
        enable_admin=True,
        api_key="k",
    )


def test_without_flags_the_defaults_stand(served: list[tuple[EngineConfig, ServerConfig]]) -> None:
    """And a max_model_len that nobody asked for may be fitted to the model."""
    assert main(["serve", "m.gguf"]) == 0
    assert served == [(EngineConfig.of("m.gguf", {}), ServerConfig())]


def test_the_key_may_come_from_the_environment(
    served: list[tuple[EngineConfig, ServerConfig]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A flag wins over CHAIRLIFT_API_KEY; an empty variable is no key."""
    for value, argv, key in (("e", [], "e"), ("e", ["--api-key", "f"], "f"), ("", [], None)):
        monkeypatch.setenv("CHAIRLIFT_API_KEY", value)
        assert main(["serve", "m.gguf", *argv]) == 0
        assert served[-1][1].api_key == key


def test_settings_that_do_not_go_together_end_with_2(capsys: pytest.CaptureFixture[str]) -> None:
    """Before a model is looked for."""
    assert main(["serve", "m.gguf", "--max-num-batched-tokens", "8"]) == 2
    assert "--max-num-seqs lets 32" in capsys.readouterr().err


def test_a_model_that_is_nowhere_ends_with_2(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """The message says where it was sought; there is no traceback."""
    assert main(["serve", str(tmp_path / "none.gguf"), "--port", "0"]) == 2
    assert "there is no model at" in capsys.readouterr().err
