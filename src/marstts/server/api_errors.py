"""Errors in the shape of OpenAI's API: `{"error": {"message", "type", "param", "code"}}`.

Upstream: all endpoints.  Downstream: clients, which choose an exception by the status and read the message.
"""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from marstts.errors import MarsError
from marstts.http.server import HEADERS, INTERNAL_ERROR, SENTENCES

log = logging.getLogger(__name__)

JSON = "application/json"
HALF_OF_A_PAIR = "half of a surrogate pair, \\ud800 to \\udfff"
TYPES = {429: "rate_limit_error"}
CODES = {401: "invalid_api_key", 413: "too_large", 429: "rate_limit_exceeded"}


class ApiError(MarsError):
    """A request that cannot be served, with the fields of OpenAI's error object."""

    def __init__(
        self,
        status: int,
        sentence: str,
        *,
        param: str | None = None,
        code: str | None = None,
        retry_after: float | None = None,
        closes: bool = False,
    ) -> None:
        """`closes`: the connection is closed after the response."""
        super().__init__(sentence)
        self.status, self.param, self.code = status, param, code or CODES.get(status)
        self.retry_after, self.closes = retry_after, closes

    def as_object(self) -> dict[str, Any]:
        """The value of `error`."""
        kind = TYPES.get(self.status, "server_error" if self.status >= 500 else "invalid_request_error")
        return {"message": str(self), "type": kind, "param": self.param, "code": self.code}

    def headers(self) -> dict[str, str]:
        """Headers of the response: whether and when to try again."""
        if self.closes:
            return {"Connection": "close"}
        if self.retry_after is None:
            return {} if self.status < 409 else {"x-should-retry": "false"}
        return {"Retry-After": str(max(1, math.ceil(self.retry_after)))}


@contextmanager
def storage_errors() -> Iterator[None]:
    """Answer failures to write files of this server, such as a full disk, with status 507 and without their paths."""
    try:
        yield
    except (MarsError, OSError) as error:
        raise storage_error(error) from error


def storage_error(error: Exception) -> ApiError:
    """The error for a file that cannot be written."""
    log.error("a file cannot be kept: %s", error)
    sentence = "The server cannot keep this: its disk is full, or cannot be written. Nothing was changed."
    return ApiError(507, sentence, code="insufficient_storage")


def error_response(error: ApiError) -> Response:
    """The error as a response."""
    content = json.dumps({"error": error.as_object()})
    return Response(content, error.status, {**HEADERS, **error.headers()}, JSON)


def as_api_error(error: Exception) -> ApiError:
    """Any exception as an `ApiError`; an unexpected one shows nothing of itself."""
    if isinstance(error, ApiError):
        return error
    if isinstance(error, RequestValidationError):
        return validation_error(error.errors())
    if isinstance(error, ClientDisconnect):
        return ApiError(400, "The connection was closed before the whole body had come.")
    if isinstance(error, HTTPException):
        sentence = SENTENCES.get(error.status_code, str(error.detail))
        return ApiError(error.status_code, sentence)
    if isinstance(error, MarsError):
        return ApiError(400, str(error))
    log.error("a request failed", exc_info=error)
    return ApiError(500, INTERNAL_ERROR)


def validation_error(complaints: Sequence[Mapping[str, Any]]) -> ApiError:
    """The first complaint about a body, with the name of its field."""
    first = complaints[0]
    if first.get("type") == "json_invalid":
        return json_error(str(first.get("msg", "")))
    names = [str(part) for part in first.get("loc", ()) if part != "body"]
    param = names[0] if names else None
    message = str(first.get("msg", "invalid")).removeprefix("Value error, ")
    if first.get("type") == "string_unicode":
        message = f"expected characters, but came {HALF_OF_A_PAIR}"
    return ApiError(400, f"{param}: {message}" if param else f"Expected a JSON object: {message}", param=param)


def json_error(reason: str) -> ApiError:
    """The error for text that the JSON reader refuses."""
    reason = reason.removeprefix("Invalid JSON: ")
    if "hex escape" in reason:
        reason = f"{HALF_OF_A_PAIR}, where a character should be ({reason})"
    return ApiError(400, f"Expected JSON, but found {reason}.")


def install_handlers(app: FastAPI) -> None:
    """Turn every exception of an application into an error object."""

    async def handle(request: Request, error: Exception) -> Response:
        return error_response(as_api_error(error))

    for kind in (HTTPException, RequestValidationError, ClientDisconnect, MarsError, Exception):
        app.add_exception_handler(kind, handle)
