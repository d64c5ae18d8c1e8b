"""/admin/policy: read and switch the batching policy of the running server. Only there with --enable-admin."""

from __future__ import annotations

import dataclasses
from typing import Any, cast

from fastapi import APIRouter, Request
from pydantic import TypeAdapter, ValidationError
from pydantic_core import from_json, to_json
from starlette.responses import JSONResponse, Response

from chairlift.core.config import SchedulerConfig
from chairlift.core.errors import ConfigError
from chairlift.server.connection import read_body
from chairlift.server.errors import ApiError, invalid
from chairlift.server.service import Service

_LOOPBACK = {"127.0.0.1", "::1"}
_SETTINGS = TypeAdapter(SchedulerConfig)


def admin_routes(service: Service) -> APIRouter:
    """The routes, for a server that was started with --enable-admin."""
    router = APIRouter(prefix="/admin", tags=["admin"])

    @router.get("/policy", response_model=None, summary="The policy and every setting; durations in nanoseconds")
    async def show(request: Request) -> Response:
        _check_client(service, request)
        return JSONResponse(_state(service))

    @router.post("/policy", response_model=None, summary="Switch the policy, and settings with it, without a restart")
    async def switch(request: Request) -> Response:
        """Body: {"policy": "dynamic", "max_batch_size": 16, ...}: names of settings, durations in nanoseconds.

        What runs is not disturbed: the switch acts at the end of the step in flight, and out of continuous it first
        lets what runs drain.
        """
        _check_client(service, request)
        policy, changes = _read_change(service, await read_body(request.receive, service.config.max_body_size))
        try:
            service.engine.switch_policy(policy, **changes)
        except ConfigError as error:
            raise invalid(str(error), code="wrong_setting") from error
        return JSONResponse(_state(service))

    return router


def _check_client(service: Service, request: Request) -> None:
    """Without a key, only this machine, and no page of another site in its browser; with one, whoever has it."""
    origin = request.headers.get("origin")
    if origin is not None and origin.partition("://")[2] != request.headers.get("host"):
        raise ApiError(403, f"/admin does not answer pages of another site ({origin}).", code="other_origin")
    host = request.client.host if request.client else ""
    if service.config.api_key is None and host not in _LOOPBACK:
        raise ApiError(
            403,
            f"/admin answers clients on this machine only (you are {host or 'unknown'}): "
            "start with --api-key to open it to whoever has the key.",
            code="loopback_only",
        )


def _read_change(service: Service, body: bytes) -> tuple[Any, dict[str, Any]]:
    """The policy, and settings of the right types.

    Raises:
        ApiError: 400, what cannot be.
    """
    try:
        given = from_json(body, allow_inf_nan=False)
    except ValueError as error:
        raise invalid(f"the body cannot be read: {error}.", code="invalid_json") from error
    if not isinstance(given, dict):
        raise invalid('the body must be an object such as {"policy": "dynamic", "max_batch_size": 16}.')
    current = service.engine.config
    unknown = sorted(given.keys() - {field.name for field in dataclasses.fields(current)})
    if unknown:
        raise invalid(f"there is no setting {unknown[0]!r}; GET /admin/policy lists all.", unknown[0], "unknown_field")
    merged = {**_SETTINGS.dump_python(current, mode="json"), **given}
    try:
        wanted = _SETTINGS.validate_json(to_json(merged), strict=True)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        field = str(first["loc"][0])
        raise invalid(f"{field}: {first['msg']}.", field, "invalid_value") from error
    except ConfigError as error:
        raise invalid(str(error), code="wrong_setting") from error
    changes = {name: getattr(wanted, name) for name in given if name != "policy"}
    return wanted.policy, changes


def _state(service: Service) -> dict[str, Any]:
    usage = service.engine.stats().usage
    return {
        "policy": usage.policy,
        "switching_to": usage.switching_to,
        "settings": cast("dict[str, Any]", _SETTINGS.dump_python(service.engine.config, mode="json")),
    }
