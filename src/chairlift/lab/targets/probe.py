"""A look at a server before anything is sent to it: what it is, which model it has, where its metrics are."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import urlsplit

import aiohttp

from chairlift.core.errors import ConfigError
from chairlift.lab.loads.fitting import Guess
from chairlift.lab.loads.words import WORDS
from chairlift.lab.targets.bodies import Api, encode
from chairlift.lab.targets.dialects import DIALECTS, OPENAI, Dialect, of_kind, recognise

_PATIENCE: Final = aiohttp.ClientTimeout(total=10.0)
_PATIENCE_WITH_ANSWERS: Final = aiohttp.ClientTimeout(total=120.0)
"""A busy server takes its time; a request that is given up may run on and show in its counters."""
_FEW, _MANY = 40, 240
"""Words of the two requests that tell how a server counts."""


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """What a server said of itself."""

    base: str
    """Its URL, without /v1."""
    dialect: Dialect
    model: str
    metrics_url: str | None
    """None: it has no metrics."""
    version: str = ""
    max_model_len: int | None = None
    details: Mapping[str, Any] = field(default_factory=dict)


def base_url(url: str) -> str:
    """The server's URL without the API's path.

    Raises:
        ConfigError: it is no http or https URL.
    """
    try:
        parts = urlsplit(url)
        usable = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:  # brackets that do not match, or a port that is none
        usable = False
    if not usable:
        raise ConfigError(f"{url!r} is no URL of a server: write http://HOST:PORT, with a port from 1 to 65535.")
    return url.rstrip("/").removesuffix("/v1").rstrip("/")


async def look_at(
    session: aiohttp.ClientSession,
    url: str,
    *,
    model: str | None = None,
    kind: str | None = None,
    metrics_url: str | None = None,
) -> ServerFacts:
    """Ask /v1/models, /metrics and /version. Only the first must be there, and not even that where a model is named.

    Args:
        session: to ask with.
        url: the server's.
        model: which of its models; by default the first.
        kind: a dialect's name, instead of recognising it.
        metrics_url: where its metrics are, if not at /metrics (Triton has them on a port of their own).

    Raises:
        ConfigError: nobody answers there, the model is not served, or the kind is unknown.
    """
    base = base_url(url)
    models = await _models(session, base, required=model is None)
    chosen = _chosen(models, model, base)
    metrics = metrics_url or f"{base}/metrics"
    page = await _text(session, metrics)
    dialect = recognise(str(chosen.get("owned_by", "")), page) if kind is None else of_kind(kind)
    if dialect is None:
        known = ", ".join(one.kind for one in (*DIALECTS, OPENAI))
        raise ConfigError(f"--server-kind {kind} is none of {known}.")
    version = await _json(session, f"{base}/version")
    longest = chosen.get("max_model_len") or (chosen.get("meta") or {}).get("n_ctx")
    return ServerFacts(
        base=base,
        dialect=dialect,
        model=model or str(chosen["id"]),
        metrics_url=metrics if dialect.metrics.prefix and dialect.metrics.prefix in page else None,
        version=str(version.get("version", "")) if isinstance(version, dict) else "",
        max_model_len=longest if isinstance(longest, int) else None,
        details=chosen,
    )


async def guess_lengths(session: aiohttp.ClientSession, url: str, model: str, api: Api) -> Guess | None:
    """How the server counts words, from the usage of two short requests; None where it does not say.

    Args:
        session: to ask with.
        url: of the endpoint.
        model: to ask.
        api: the endpoint's kind.
    """
    counts = []
    draw = random.Random(0)
    for words in (_FEW, _MANY):
        prompt = " ".join(draw.choices(WORDS, k=words))
        asked = {"prompt": prompt} if api == "completions" else {"messages": [{"role": "user", "content": prompt}]}
        body = encode({"model": model, "max_tokens": 1, "temperature": 0, **asked})
        try:
            headers = {"content-type": "application/json"}
            async with session.post(url, data=body, headers=headers, timeout=_PATIENCE_WITH_ANSWERS) as response:
                answer = await response.json(content_type=None)
            counts.append((words, int(answer["usage"]["prompt_tokens"])))
        except (aiohttp.ClientError, OSError, ValueError, TypeError, KeyError):
            return None
    try:
        return Guess.from_usage(counts[0], counts[1])
    except ConfigError:
        return None


async def _models(session: aiohttp.ClientSession, base: str, *, required: bool) -> list[dict[str, Any]]:
    try:
        async with session.get(f"{base}/v1/models", timeout=_PATIENCE) as response:
            body = await response.json(content_type=None) if response.status == 200 else None
            status = response.status
    except ValueError:
        body, status = None, 200
    except (aiohttp.ClientError, OSError) as error:
        cause = str(error) or type(error).__name__
        raise ConfigError(f"no server answers at {base}: {cause}. Start it, or check the URL.") from error
    models = body.get("data") if isinstance(body, dict) else None
    if isinstance(models, list):
        return [one for one in models if isinstance(one, dict) and "id" in one]
    if required:
        hint = "Give --api-key." if status in {401, 403} else "If it serves the OpenAI API all the same, give --model."
        raise ConfigError(f"{base}/v1/models answers with status {status} and no list of models. {hint}")
    return []


def _chosen(models: list[dict[str, Any]], model: str | None, base: str) -> dict[str, Any]:
    if model is None:
        if not models:
            raise ConfigError(f"{base} serves no model. Load one, or give --model.")
        return models[0]
    chosen = next((one for one in models if one["id"] == model), None)
    if chosen is None and models:
        names = ", ".join(str(one["id"]) for one in models)
        raise ConfigError(f"{base} does not serve {model!r}; it has {names}. Change --model.")
    return chosen or {"id": model}


async def _text(session: aiohttp.ClientSession, url: str) -> str:
    """A page, or nothing."""
    try:
        async with session.get(url, timeout=_PATIENCE) as response:
            return await response.text() if response.status == 200 else ""
    except (aiohttp.ClientError, OSError, UnicodeDecodeError):
        return ""


async def _json(session: aiohttp.ClientSession, url: str) -> Any:
    try:
        async with session.get(url, timeout=_PATIENCE) as response:
            return await response.json(content_type=None) if response.status == 200 else None
    except (aiohttp.ClientError, OSError, ValueError):
        return None
