"""Servers in processes of their own: what the lab is held against."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

PATIENCE = 300.0
"""Seconds for a server to start."""


@contextmanager
def server_process(command: Sequence[str], url: str, ready: str) -> Iterator[str]:
    """A server from its start to its end; yields its URL, once it takes requests.

    Args:
        command: what to run.
        url: where it will be.
        ready: the path that answers 200 when it takes requests.
    """
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "VLLM_CPU_KVCACHE_SPACE": "1", "DO_NOT_TRACK": "1"}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment, errors="replace"
    ) as process:
        assert process.stdout is not None
        said: deque[str] = deque(maxlen=40)
        try:
            # Whatever else it says is read, or it would stop at a full pipe.
            reader = threading.Thread(target=said.extend, args=(process.stdout,), daemon=True)
            reader.start()
            if not _answers(process, url + ready):
                pytest.fail(f"{command[0]} did not start:\n{''.join(said)}")
            yield url
        finally:
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
            reader.join()


def _answers(process: subprocess.Popen[str], url: str) -> bool:
    pause, end = 0.05, time.monotonic() + PATIENCE
    while time.monotonic() < end and process.poll() is None:
        try:
            if httpx.get(url, timeout=10).status_code == 200:
                return True
        except httpx.TransportError:
            pass
        time.sleep(pause)
    return False


def chairlift(model: Path, port: int) -> list[str]:
    """Our own server."""
    flags = ["--max-model-len", "512", "--num-kv-blocks", "64", "--max-num-seqs", "4", "--threads", "2"]
    return [str(Path(sys.executable).with_name("chairlift")), "serve", str(model), "--port", str(port), *flags]


def llamacpp(model: Path, port: int) -> list[str]:
    """That of llama.cpp, in the wheel `xllamacpp`."""
    return [sys.executable, "-m", "tests.lab.proof.llamacpp_server", str(model), str(port), "4", "512"]


def vllm(python: str, model: Path, port: int) -> list[str]:
    """The CPU build of vLLM, in an environment of its own."""
    flags = ["--max-model-len", "512", "--max-num-seqs", "4", "--enforce-eager", "--no-enable-prefix-caching"]
    entry = "vllm.entrypoints.openai.api_server"
    return [python, "-m", entry, "--model", str(model), "--port", str(port), "--host", "127.0.0.1", *flags]
