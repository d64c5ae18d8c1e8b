import subprocess
import sys
from collections.abc import Iterator

import aiohttp
import pytest

from chairlift.advisor.doctor.watch import SAMPLES, sample, watch
from chairlift.core.errors import ConfigError
from chairlift.lab.targets.dialects import of_kind

SECOND = 10**9


class Clock:
    """Time that passes by sleeping alone."""

    def __init__(self) -> None:
        self.now = 5 * SECOND
        self.slept: list[float] = []

    def __call__(self) -> int:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += round(seconds * SECOND)


async def test_pages_are_taken_evenly_over_the_window() -> None:
    """So many, the first at once and the last at its end; one that fails is a sample with an error."""
    clock, asked = Clock(), 0

    async def fetch() -> str:
        nonlocal asked
        asked += 1
        if asked == 3:
            raise aiohttp.ClientError("gone")
        return f"vllm:num_requests_running {asked}\n"

    dialect = of_kind("vllm")
    assert dialect is not None
    samples = await sample(fetch, dialect, 28.0, clock=clock, sleep=clock.sleep)

    assert len(samples) == SAMPLES
    assert [one.time for one in samples] == [round(index * 28 * SECOND / (SAMPLES - 1)) for index in range(SAMPLES)]
    assert [one.running for one in samples[:4]] == [1, 2, None, 4]
    assert "gone" in samples[2].error


@pytest.fixture(scope="module")
def null_server() -> Iterator[str]:
    """A server with the API and without metrics."""
    command = [sys.executable, "-m", "chairlift.lab.client.null_server", "--chunks", "3", "--interval", "0.002"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        yield process.stdout.readline().strip()
        process.stdin.close()


async def test_a_server_without_known_metrics_is_refused(null_server: str) -> None:
    """With the flags that would help."""
    with pytest.raises(ConfigError, match="--kind"):
        await watch(null_server, 0.0)
    with pytest.raises(ConfigError, match="no server answers"):
        await watch("http://127.0.0.1:9", 0.0)
