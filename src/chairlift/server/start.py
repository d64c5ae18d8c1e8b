"""From configuration to a running server: address, model, engine, HTTP, in this order."""

from __future__ import annotations

import logging
import sys
import time

from chairlift import __version__
from chairlift.core.config import SchedulerConfig, flag
from chairlift.core.extremes import find_extremes
from chairlift.engine.async_engine import AsyncEngine
from chairlift.engine.config import EngineConfig
from chairlift.engine.core import EngineCore
from chairlift.engine.loader import LoadedModel, load_model
from chairlift.engine.recording import recorded
from chairlift.server.config import ServerConfig
from chairlift.server.run import Server, bind, url
from chairlift.server.service import Service

logger = logging.getLogger("chairlift.server")

_DURATIONS = {"max_wait", "max_queue_delay", "target_itl"}


def serve(engine_config: EngineConfig, config: ServerConfig) -> None:
    """Serve until a signal comes.

    Raises:
        ChairliftError: the address is taken, or the model cannot be loaded.
    """
    begun = time.perf_counter()
    _log_to_stderr()
    with bind(config) as listener:
        loaded = load_model(engine_config)
        core = EngineCore(loaded.scheduler, loaded.runner, loaded.tokenizer, loaded.sampler)
        service = Service(AsyncEngine(core), model=loaded.name, template=loaded.chat_template, config=config)

        def started() -> None:
            for text in greeting(loaded, service, url(listener), time.perf_counter() - begun):
                logger.info("%s", text)

        with recorded(core, loaded, loaded.record):
            Server(service, started).run(sockets=[listener])
    logger.info("ended.")


def greeting(loaded: LoadedModel, service: Service, address: str, seconds: float) -> list[str]:
    """What a person wants to know once the server answers."""
    lines = [
        f"Chairlift {__version__}, {loaded.path}",
        *loaded.memory.splitlines(),
        policy_line(loaded.scheduler),
        f"serving {', '.join(service.names)} at {address}/v1 after {seconds:.1f} s; Ctrl-C drains and ends",
    ]
    extremes = find_extremes(loaded.scheduler, loaded.runner.capacity())
    if extremes is not None:
        lines.append(f"warning: {extremes}")
    if loaded.chat_template is None:
        lines.append("the model has no chat template: /v1/completions only, or start with --chat-template FILE")
    return lines


def policy_line(config: SchedulerConfig) -> str:
    """The policy with the settings that shape its batches."""
    shaping = {
        "static": ("batch_size", "max_wait"),
        "dynamic": ("max_batch_size", "max_queue_delay", "preferred_batch_sizes"),
        "continuous": ("max_num_seqs", "enable_chunked_prefill", "prefill_interval", "target_itl"),
    }[config.policy]
    names = (*shaping, "max_num_batched_tokens", "max_model_len")
    settings = " ".join(f"{flag(name)} {_shown(name, value)}" for name in names if (value := getattr(config, name)))
    return (
        f"policy {config.policy}: {settings}; KV reservation {config.effective_kv_reservation}, "
        f"release {config.effective_release}"
    )


def _shown(name: str, value: object) -> str:
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    return f"{value / 1e6:g}ms" if name in _DURATIONS and isinstance(value, int) else str(value)


def _log_to_stderr() -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname).1s %(message)s", "%H:%M:%S"))
    for name, level in (("chairlift", logging.INFO), ("uvicorn", logging.WARNING)):
        log = logging.getLogger(name)
        log.setLevel(level)
        log.addHandler(handler)
        log.propagate = False
