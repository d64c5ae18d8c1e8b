"""Errors in the shape of OpenAI's API, and which error of Chairlift's becomes which status."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from chairlift.core.errors import ChairliftError, EngineError, RequestError, RequestRefused
from chairlift.core.reasons import Reason
from chairlift.engine.params import SamplingParams

logger = logging.getLogger(__name__)

_KINDS = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    405: "invalid_request_error",
    413: "invalid_request_error",
    429: "rate_limit_error",
    500: "server_error",
    503: "service_unavailable_error",
}
_PARAMETERS = {field.name for field in fields(SamplingParams)}
_TOO_LONG = {Reason.PROMPT_TOO_LONG, Reason.NEVER_FITS}


class ApiError(Exception):
    """An answer that is an error.

    Attributes:
        status: of HTTP.
        message: what happened, with numbers, and the way out.
        param: the field of the request that is at fault.
        code: a word for programs.
        retry_after: seconds after which to try again.
    """

    def __init__(
        self,
        status: int,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        retry_after: int | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.param = param
        self.code = code
        self.retry_after = retry_after

    def body(self) -> dict[str, Any]:
        """The JSON that clients of OpenAI's API know how to read."""
        return {
            "error": {
                "message": self.message,
                "type": _KINDS.get(self.status, "invalid_request_error"),
                "param": self.param,
                "code": self.code,
            }
        }

    def response(self, headers: Mapping[str, str] | None = None) -> JSONResponse:
        more = {} if self.retry_after is None else {"retry-after": str(self.retry_after)}
        return JSONResponse(self.body(), self.status, {**(headers or {}), **more})


def invalid(message: str, param: str | None = None, code: str | None = None) -> ApiError:
    """A 400: the request is at fault, and trying again will not help."""
    return ApiError(400, message, param=param, code=code)


def from_chairlift(error: ChairliftError, retry_after: Callable[[], int]) -> ApiError:
    """What a client is told of an error that was raised on purpose.

    Args:
        error: raised by the engine or on the way to it.
        retry_after: seconds after which another try may succeed, where one may.
    """
    if isinstance(error, RequestRefused):
        refused = error.refused
        if refused.reason is Reason.QUEUE_FULL:
            return ApiError(429, refused.message, code=refused.reason, retry_after=retry_after())
        if refused.reason in _TOO_LONG:
            return invalid(refused.message, "prompt", "context_length_exceeded")
        return invalid(refused.message, refused.setting, refused.reason)
    if isinstance(error, RequestError):
        return invalid(str(error), _field_of(str(error)))
    if isinstance(error, EngineError):
        return ApiError(503, str(error), code="unavailable", retry_after=retry_after())
    return ApiError(500, str(error), code="device_error")


async def answer_api_error(_request: Request, error: Exception) -> Response:
    """Exception handler for ApiError."""
    if not isinstance(error, ApiError):
        raise error
    return error.response()


async def answer_http_exception(request: Request, error: Exception) -> Response:
    """Exception handler for what the router says: no such route, method not allowed."""
    if not isinstance(error, HTTPException):
        raise error
    message = f"{request.method} {request.url.path}: {error.detail}. /openapi.json lists what there is."
    return ApiError(error.status_code, message).response(error.headers)


async def answer_unexpected(_request: Request, error: Exception) -> Response:
    """Exception handler for bugs: the client learns that it is one, the log has the traceback."""
    return ApiError(500, f"internal error: {type(error).__name__}. The server's log has the details.").response()


def _field_of(message: str) -> str | None:
    """The engine's messages about a parameter begin with its name."""
    word = message.split(maxsplit=1)[0] if message else ""
    return word if word in _PARAMETERS else None
