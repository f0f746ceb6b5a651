"""`POST /v1/audio/speech/batch`: up to 32 texts, each spoken or refused by itself.

Upstream: clients.  Downstream: `service`; all items run in the shared batch.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from marstts.server.api_errors import ApiError, as_api_error, validation_error
from marstts.server.audio_budget import TOO_LONG, AudioBudget
from marstts.server.callers import Caller
from marstts.server.schemas import SpeechBody, audio_json
from marstts.server.service import SpeechRun, SpeechService
from marstts.server.text_stream import run_bytes

MAX_ITEMS = 32


class BatchBody(BaseModel):
    """Body of the request: fields of `SpeechBody` for all items, and those of each."""

    model_config = ConfigDict(frozen=True, extra="allow", allow_inf_nan=False)

    items: list[dict[str, Any]] = Field(min_length=1, max_length=MAX_ITEMS)


@dataclass(frozen=True)
class Spoken:
    """Audio of one item."""

    content: bytes
    media_type: str


Result = Spoken | ApiError


async def speak_batch(service: SpeechService, body: BatchBody, caller: Caller) -> list[Result]:
    """Speak all items -> their results in order; ApiError where all of them together are too much audio."""
    budget, places = service.audio_budget(), asyncio.Semaphore(service.admission.places)
    shared = body.model_extra or {}
    runs = [await begin_item(service, {**shared, **fields, "stream": False}, caller, budget) for fields in body.items]

    async def speak(run: SpeechRun | ApiError) -> Result:
        if isinstance(run, ApiError):
            return run
        async with places:
            try:
                async with aclosing(run_bytes(run)) as pieces:
                    content = b"".join([piece async for piece in pieces])
            except Exception as error:
                return as_api_error(error)
        return Spoken(content, run.spec.audio_format.media_type)

    return await asyncio.gather(*map(speak, runs))


async def begin_item(
    service: SpeechService, fields: dict[str, Any], caller: Caller, budget: AudioBudget
) -> SpeechRun | ApiError:
    """A run of one item, or why it cannot be spoken; ApiError where the budget is spent."""
    try:
        run = service.speak(SpeechBody.model_validate(fields), caller, budget=budget)
        await run.measure()
    except ValidationError as error:
        return validation_error(error.errors(include_url=False, include_context=False))
    except Exception as error:
        failure = as_api_error(error)
        if failure.code == TOO_LONG:
            raise
        return failure
    return run


async def as_object(results: Sequence[Result]) -> AsyncIterator[bytes]:
    """Results as a JSON object, in pieces; the event loop serves others between them."""
    yield b'{"object": "audio.speech.batch", "results": ['
    for index, result in enumerate(results):
        yield b", " if index else b""
        if isinstance(result, ApiError):
            yield json.dumps({"index": index, "status": "error", "error": result.as_object()}).encode()
            continue
        fields = {"index": index, "status": "success", "media_type": result.media_type}
        for part in audio_json(fields, result.content):
            yield part
    yield b"]}"
