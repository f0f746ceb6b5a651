"""The speech server as an ASGI application: OpenAI's speech API, voices, models, health, metrics, and the page.

Upstream: `marstts serve`, or any ASGI server.  Downstream: `service`. Nothing here blocks the event loop: speech and
cloning run on threads of the service.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from typing import Any

from fastapi import FastAPI
from pydantic import BaseModel
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import Response

import marstts
from marstts.http.server import ServerLimits
from marstts.server.api_errors import ApiError, install_handlers
from marstts.server.callers import caller_of
from marstts.server.guard import Guard, HeadRequests
from marstts.server.idle_model import OpenModel
from marstts.server.page import add_page
from marstts.server.schemas import JSON, SpeechBody, as_json, read_body
from marstts.server.service import SpeechService, measure_listeners
from marstts.server.settings import ServeSettings
from marstts.server.speech_request import SpeechRequest
from marstts.server.speech_response import IGNORED_HEADER, WARNING_HEADER, SpeechResponse
from marstts.server.voices_api import add_voices
from marstts.server.websocket import add_websocket
from marstts.synthesis.loading import load
from marstts.synthesis.synthesizer import Synthesizer


def create_app(
    synthesizer: Synthesizer | None = None,
    settings: ServeSettings | None = None,
    reopen: OpenModel | None = None,
) -> FastAPI:
    """The application for a synthesizer; the default is the packaged model.

    The service is `app.state.service`. Close it when the server stops; if the ASGI server runs the application's
    lifespan, the application closes it. Without settings, the machine is measured, and the service is warmed up.
    `reopen` loads the model again after it left memory (`ServeSettings.unload_after_seconds`).
    """
    synthesizer = synthesizer or load()
    service = SpeechService(synthesizer, settings or measured_settings(synthesizer), reopen)
    try:
        if settings is None:
            service.warm_up()
        return application_of(service)
    except BaseException:
        service.close()
        raise


def application_of(service: SpeechService) -> FastAPI:
    """The application of a service, which it closes at the end of its lifespan."""
    settings = service.settings

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        try:
            async with wyoming_of(service, settings):
                yield
        finally:
            service.close()

    app = FastAPI(title="marstts", version=marstts.__version__, docs_url=None, redoc_url=None, lifespan=lifespan)
    app.state.service, app.state.limits = service, connection_limits(settings)
    app.add_middleware(Guard, settings=settings)
    if settings.cors_origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=settings.cors_origins,
            allow_methods=["GET", "POST", "DELETE"],
            allow_headers=["Authorization", "Content-Type"],
            expose_headers=[WARNING_HEADER, IGNORED_HEADER, "Retry-After"],
        )
    install_handlers(app)
    add_speech(app, service)
    add_websocket(app, service)
    add_models(app, service)
    add_voices(app, service)
    add_status(app, service)
    add_page(app, service)
    app.add_middleware(HeadRequests)
    return app


def measured_settings(synthesizer: Synthesizer) -> ServeSettings:
    """Return the default settings, for as many listeners as this machine keeps supplied."""
    settings = ServeSettings()
    listeners = measure_listeners(synthesizer, settings.capacity)
    return settings.model_copy(update={"listeners": listeners, "adapts_places": True})


def connection_limits(settings: ServeSettings) -> ServerLimits:
    """Limits of the connections for `http.server.Server`."""
    return ServerLimits(
        max_connections=settings.limits.connections,
        max_message_bytes=settings.limits.json_bytes,
        drain_seconds=settings.drain_seconds,
    )


def add_speech(app: FastAPI, service: SpeechService) -> None:
    """Add the endpoint for speech."""

    @app.post("/v1/audio/speech", response_class=Response, openapi_extra=body_schema(SpeechBody))
    async def speech(request: Request) -> Response:
        """Speak a text."""
        body = await read_body(request, SpeechBody)
        return SpeechResponse(SpeechRequest(service, body, caller_of(request)))


def wyoming_of(service: SpeechService, settings: ServeSettings) -> AbstractAsyncContextManager[Any]:
    """Return a context in which Wyoming is served, if the settings name a port for it."""
    if settings.wyoming_port is None:
        return nullcontext()
    from marstts.server.wyoming_server import wyoming_server  # its package is needed only here

    return wyoming_server(service, settings)


def body_schema(model: type[BaseModel]) -> dict[str, Any]:
    """The part of the OpenAPI description that names a JSON body."""
    return {"requestBody": {"required": True, "content": {JSON: {"schema": model.model_json_schema()}}}}


def add_models(app: FastAPI, service: SpeechService) -> None:
    """Add the endpoints that list models."""

    def model_object(name: str) -> dict[str, Any]:
        described = {"id": name, "object": "model", "created": service.started_at, "owned_by": "marstts"}
        return described | {"root": service.model_label}

    @app.get("/v1/models")
    async def models() -> Response:
        """List the model and its aliases."""
        return as_json({"object": "list", "data": [model_object(name) for name in service.model_names]})

    @app.get("/v1/audio/models")
    async def audio_models() -> Response:
        """List the model and its aliases as Open WebUI reads them."""
        return as_json({"models": [{"id": name, "name": name} for name in service.model_names]})

    @app.get("/v1/models/{model}")
    async def model(model: str) -> Response:
        """Describe one model."""
        if not service.has_model(model):
            raise ApiError(404, "There is no such model here.", param="model", code="model_not_found")
        return as_json(model_object(model))


def add_status(app: FastAPI, service: SpeechService) -> None:
    """Add health and metrics, which need no key."""

    @app.get("/health")
    async def health() -> Response:
        """Report whether the server takes requests."""
        admission = service.admission
        state = {
            "status": "stopping" if service.is_closing else "ok",
            "model": service.model_label,
            "loaded": service.model.is_loaded,
            "active": admission.num_active,
            "waiting": admission.num_waiting,
        }
        return as_json(state, 503 if service.is_closing else 200)

    @app.get("/metrics")
    async def metrics() -> Response:
        """Report metrics for Prometheus."""
        return Response(service.metrics.text(), media_type="text/plain; version=0.0.4")
