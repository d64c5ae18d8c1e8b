"""The routes of OpenAI's API, and those that operators and Prometheus ask."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from fastapi import APIRouter, Request
from pydantic import BaseModel
from starlette.responses import JSONResponse, Response

from chairlift import __version__
from chairlift.core.request import TokenId
from chairlift.server.answers import AnswerFormat, ChatFormat, CompletionFormat
from chairlift.server.connection import EventStream, read_body, while_connected
from chairlift.server.generation import Generation
from chairlift.server.metrics import CONTENT_TYPE
from chairlift.server.protocol import ChatBody, CompletionBody, GenerationBody, StreamOptions
from chairlift.server.service import Service

REQUEST_ID = "x-request-id"


def openai_routes(service: Service) -> APIRouter:
    """/v1: what clients of OpenAI's API call."""
    router = APIRouter(prefix="/v1", tags=["openai"])

    @router.get("/models", response_model=None, summary="The models served here")
    async def models() -> Response:
        return JSONResponse({"object": "list", "data": [_model(service, name) for name in service.names]})

    @router.get("/models/{name:path}", response_model=None, summary="One model")
    async def model(name: str) -> Response:
        return JSONResponse(_model(service, service.prompts.model_name(name)))

    @router.post("/completions", response_model=None, openapi_extra=_body(CompletionBody), summary="Continue a text")
    async def completions(request: Request) -> Response:
        body = CompletionBody.read(await read_body(request.receive, service.config.max_body_size))
        form = CompletionFormat(service.answer_id("cmpl"), service.prompts.model_name(body.model), int(time.time()))
        prompts = await service.completion_prompts(body)
        return await _answer(service, request, body, form, prompts)

    @router.post("/chat/completions", response_model=None, openapi_extra=_body(ChatBody), summary="Answer in a chat")
    async def chat(request: Request) -> Response:
        body = ChatBody.read(await read_body(request.receive, service.config.max_body_size))
        form = ChatFormat(service.answer_id("chatcmpl"), service.prompts.model_name(body.model), int(time.time()))
        prompts = await service.chat_prompts(body)
        return await _answer(service, request, body, form, prompts)

    return router


def operation_routes(service: Service) -> APIRouter:
    """Health, readiness, metrics, version."""
    router = APIRouter(tags=["operation"])

    @router.get("/health", response_model=None, summary="200 while work can be scheduled, else 503 with the cause")
    async def health() -> Response:
        state = service.health()
        if state.ok:
            return JSONResponse({"status": "ok"})
        return JSONResponse({"status": "unhealthy", "cause": state.cause}, 503)

    @router.get(
        "/ready", response_model=None, summary="200 once the model is loaded and warm, and work can be scheduled"
    )
    async def ready() -> Response:
        state = service.health()
        if service.ready and state.ok:
            return JSONResponse({"status": "ready"})
        return JSONResponse({"status": "not ready", "cause": state.cause or "the model is warming up."}, 503)

    @router.get("/metrics", response_model=None, summary="For Prometheus")
    async def metrics() -> Response:
        return Response(service.metrics.exposition(), headers={"content-type": CONTENT_TYPE})

    @router.get("/version", response_model=None, summary="Which version this is")
    async def version() -> Response:
        return JSONResponse({"version": __version__})

    return router


async def _answer(
    service: Service, request: Request, body: GenerationBody, form: AnswerFormat, prompts: Sequence[Sequence[TokenId]]
) -> Response:
    """Submit, then stream or collect, while the client is there."""
    generation = Generation.submit(service.engine, prompts, body, form.answer_id)
    headers = {REQUEST_ID: form.answer_id}
    if body.stream:
        events = generation.events(form, body)
        return EventStream(events, close=generation.close, headers=headers)
    try:
        content = await while_connected(request.receive, generation.whole(form))
    finally:
        generation.close()
    return Response(content, media_type="application/json", headers=headers)


def _model(service: Service, name: str) -> dict[str, Any]:
    return {
        "id": name,
        "object": "model",
        "created": service.created,
        "owned_by": "chairlift",
        "root": service.names[0],
        "max_model_len": service.engine.config.max_model_len,
    }


def _body(model: type[BaseModel]) -> dict[str, Any]:
    """The body's schema for /openapi.json; the body itself is read within bounds, not by the framework."""
    schema = model.model_json_schema()
    schema.pop("$defs", None)
    schema["properties"]["stream_options"] = StreamOptions.model_json_schema()
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}
