"""The ASGI application around one engine."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
from collections.abc import AsyncIterator

from fastapi import FastAPI, Request
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from chairlift import __version__
from chairlift.core.errors import ChairliftError
from chairlift.server.admin import admin_routes
from chairlift.server.errors import (
    ApiError,
    answer_api_error,
    answer_http_exception,
    answer_unexpected,
)
from chairlift.server.routes import openai_routes, operation_routes
from chairlift.server.service import Service
from chairlift.server.status import StatusLines

logger = logging.getLogger("chairlift.server")

_GUARDED = ("/v1/", "/admin/")
_CLIENT_CLOSED_REQUEST = 499
"""As nginx logs it. Nobody is there to read it."""


def create_app(service: Service) -> FastAPI:
    """The application; its lifespan starts and closes the service's engine."""

    @contextlib.asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        service.engine.start()
        service.ready = True
        lines = StatusLines(service.engine, service.config.status_interval)
        status = asyncio.create_task(lines.run(lambda: service.draining))
        try:
            yield
        finally:
            service.draining = True
            status.cancel()
            await service.engine.close()

    # The pages at /docs and /redoc would load scripts from elsewhere; /openapi.json stays.
    app = FastAPI(title="Chairlift", version=__version__, lifespan=lifespan, docs_url=None, redoc_url=None)
    app.include_router(openai_routes(service))
    app.include_router(operation_routes(service))
    if service.config.enable_admin:
        app.include_router(admin_routes(service))

    async def answer_chairlift_error(request: Request, error: Exception) -> Response:
        if not isinstance(error, ChairliftError):
            raise error
        return await answer_api_error(request, service.error(error))

    async def answer_nobody(_request: Request, _error: Exception) -> Response:
        return Response(status_code=_CLIENT_CLOSED_REQUEST)

    app.add_exception_handler(ApiError, answer_api_error)
    app.add_exception_handler(ChairliftError, answer_chairlift_error)
    app.add_exception_handler(ClientDisconnect, answer_nobody)
    app.add_exception_handler(HTTPException, answer_http_exception)
    app.add_exception_handler(Exception, answer_unexpected)
    if service.config.api_key is not None:
        app.add_middleware(KeyCheck, api_key=service.config.api_key)
    return app


class KeyCheck:
    """Asks for the key on /v1 and /admin; health and metrics stay open to those who watch."""

    def __init__(self, app: ASGIApp, api_key: str) -> None:
        self._app = app
        self._expected = f"Bearer {api_key}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI."""
        if scope["type"] == "http" and scope["path"].startswith(_GUARDED):
            given = Headers(scope=scope).get("authorization", "").encode()
            if not secrets.compare_digest(given, self._expected):
                error = ApiError(
                    401, "the API key is missing or wrong: send Authorization: Bearer KEY.", code="invalid_api_key"
                )
                await error.response({"www-authenticate": "Bearer"})(scope, receive, send)
                return
        await self._app(scope, receive, send)
