"""`POST /v1/audio/speech/batch`: up to 32 texts, each spoken or refused by itself.

Upstream: clients.  Downstream: `service`; all items run in the shared batch.
"""

from __future__ import annotations

import asyncio
import base64
from contextlib import aclosing
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from marstts.server.api_errors import ApiError, as_api_error, validation_error
from marstts.server.schemas import SpeechBody
from marstts.server.service import SpeechService
from marstts.server.text_stream import speak_bytes

MAX_ITEMS = 32


class BatchBody(BaseModel):
    """Body of the request: fields of `SpeechBody` for all items, and those of each."""

    model_config = ConfigDict(frozen=True, extra="allow", allow_inf_nan=False)

    items: list[dict[str, Any]] = Field(min_length=1, max_length=MAX_ITEMS)


async def speak_batch(service: SpeechService, body: BatchBody, owner: str) -> dict[str, Any]:
    """Speak all items -> their results in order, audio in base64 or an error each."""
    places = asyncio.Semaphore(service.admission.places)
    shared = body.model_extra or {}

    async def speak(index: int, fields: dict[str, Any]) -> dict[str, Any]:
        async with places:
            try:
                item = SpeechBody.model_validate({**shared, **fields, "stream": False})
                async with aclosing(speak_bytes(service, item, owner)) as pieces:
                    content = b"".join([piece async for piece in pieces])
            except ValidationError as error:
                complaint = validation_error(error.errors(include_url=False, include_context=False))
                return failed(index, complaint)
            except Exception as error:
                return failed(index, as_api_error(error))
        audio = base64.b64encode(content).decode("ascii")
        media_type = item.response_format.media_type
        return {"index": index, "status": "success", "audio": audio, "media_type": media_type}

    results = await asyncio.gather(*(speak(index, fields) for index, fields in enumerate(body.items)))
    return {"object": "audio.speech.batch", "results": results}


def failed(index: int, error: ApiError) -> dict[str, Any]:
    """Return the result of an item that was not spoken."""
    return {"index": index, "status": "error", "error": error.as_object()}
