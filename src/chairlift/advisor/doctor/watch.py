"""Watches a live server for a while: its metrics page, again and again."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Final
from urllib.parse import urlsplit

import aiohttp

from chairlift.advisor.doctor.case import Case
from chairlift.advisor.doctor.facts import Facts
from chairlift.advisor.doctor.gpu import read_nvml
from chairlift.advisor.doctor.server import case_of_samples
from chairlift.core.errors import ConfigError
from chairlift.lab.targets.dialects import DIALECTS, Dialect, of_kind, recognise
from chairlift.lab.targets.probe import base_url, look_at
from chairlift.lab.targets.prometheus import read_sample
from chairlift.records.client import ServerSample

SAMPLES: Final = 15
"""In a window."""
_PATIENCE: Final = aiohttp.ClientTimeout(total=10.0)
_HERE: Final = frozenset({"localhost", "127.0.0.1", "::1"})
Fetch = Callable[[], Awaitable[str]]


async def watch(
    url: str, window: float, *, kind: str | None = None, metrics_url: str | None = None, api_key: str | None = None
) -> tuple[Case, Facts]:
    """Find out what a server is and watch it.

    Args:
        url: the server's.
        window: seconds.
        kind: which server it is, where it cannot be told.
        metrics_url: where its metrics are.
        api_key: sent as a bearer token.

    Raises:
        ConfigError: nobody answers, or there are no metrics that are known.
    """
    headers = {} if api_key is None else {"authorization": f"Bearer {api_key}"}
    async with aiohttp.ClientSession(headers=headers, timeout=_PATIENCE) as session:
        page_url = metrics_url or f"{base_url(url)}/metrics"

        async def fetch() -> str:
            async with session.get(page_url) as response:
                if response.status != 200:
                    raise ConfigError(f"{page_url} answers with status {response.status}. Give --metrics-url.")
                return await response.text()

        dialect, version = await _which(session, url, page_url, fetch, kind)
        samples = await sample(fetch, dialect, window)
    # NVML tells of this machine alone.
    gpus = read_nvml() if urlsplit(url).hostname in _HERE else ()
    return case_of_samples(samples, dialect, name=url, version=version, gpus=gpus)


async def sample(
    fetch: Fetch,
    dialect: Dialect,
    window: float,
    *,
    clock: Callable[[], int] = time.monotonic_ns,
    sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
) -> list[ServerSample]:
    """The page SAMPLES times in a window, evenly spaced; a page that cannot be had is a sample with an error."""
    started = clock()
    found = []
    for index in range(SAMPLES):
        due = started + round(index * window * 1e9 / (SAMPLES - 1))
        await sleep(max(0.0, (due - clock()) / 1e9))
        begun = clock()
        try:
            one = read_sample(await fetch(), dialect.metrics, buckets=True)
        except (aiohttp.ClientError, OSError, ValueError) as error:
            one = ServerSample(0, 0, error=f"{type(error).__name__}: {error}")
        values = {name: getattr(one, name) for name in one.__slots__}
        now = clock()
        found.append(ServerSample(**(values | {"time": now - started, "took": now - begun})))
    return found


async def _which(
    session: aiohttp.ClientSession, url: str, page_url: str, fetch: Fetch, kind: str | None
) -> tuple[Dialect, str]:
    """What it is, by its models and its metrics; a server without the OpenAI API by its metrics alone."""
    try:
        facts = await look_at(session, url, kind=kind, metrics_url=page_url)
    except ConfigError:
        page = await _page(fetch, url)
        dialect = recognise("", page) if kind is None else of_kind(kind)
        version = ""
    else:
        dialect, version = facts.dialect, facts.version
    if dialect is None or not dialect.metrics.prefix:
        known = ", ".join(one.kind for one in DIALECTS)
        raise ConfigError(f"{url} has no metrics that are known here. Give --kind ({known}) and --metrics-url.")
    return dialect, version


async def _page(fetch: Fetch, url: str) -> str:
    try:
        return await fetch()
    except (aiohttp.ClientError, OSError) as error:
        raise ConfigError(f"no server answers at {url}: {str(error) or type(error).__name__}. Start it.") from error
