"""Bodies of requests, as OpenAI's API defines them; unknown fields are ignored, as other servers do.

Upstream: clients.  Downstream: the endpoints.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from enum import Enum
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from starlette.requests import Request
from starlette.responses import Response

from marstts.audio.tempo import MAX_SPEED, MIN_SPEED
from marstts.server.api_errors import JSON, ApiError, validation_error
from marstts.server.encoders import AudioFormat
from marstts.synthesis.speaking import Settings, Speaking, pauses_of
from marstts.synthesis.speech import Continuation
from marstts.text.lexicon import Lexicon, lexicon_of
from marstts.voice import Voice

Body = TypeVar("Body", bound=BaseModel)

DEFAULT_VOICE = "alloy"
"""The voice where a protocol lets its client name none."""

NAME_CHARACTERS = 200
MAX_CAST, MAX_WORDS = 100, 1000
"""Names of voices, and words with pronunciations, of one request."""
MAX_SEED = 2**32 - 1


class StreamFormat(str, Enum):
    """Form in which the audio is sent."""

    AUDIO = "audio"
    SSE = "sse"


class VoiceId(BaseModel):
    """A voice as an object."""

    id: str = Field(min_length=1, max_length=NAME_CHARACTERS)


class SpeechBody(BaseModel):
    """Body of `POST /v1/audio/speech`."""

    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False, use_attribute_docstrings=True)

    model: str | None = Field(None, min_length=1, max_length=NAME_CHARACTERS)
    """The model's name, or one of OpenAI's; a server has one model, so that it need not be named."""

    input: str = Field(min_length=1)
    """The text."""

    voice: str | VoiceId
    """Name or id of a voice."""

    response_format: AudioFormat = AudioFormat.MP3

    speed: float = Field(1.0, ge=MIN_SPEED, le=MAX_SPEED)
    """Other values than 1 need PyAV on the server."""

    seconds: float | None = Field(None, gt=0.0)
    """Not OpenAI's: the length that the speech is fitted to, in place of a speed."""

    stream_format: StreamFormat = StreamFormat.AUDIO

    instructions: str | None = Field(None, max_length=4096)
    """Accepted and ignored: the model takes none."""

    stream: bool = True
    """Not OpenAI's: false asks for a whole file, whose header holds its length."""

    sentences: bool = False
    """Not OpenAI's: events name each sentence with its first audio, and give its number and whether it is flawed."""

    sentence: int | None = Field(None, ge=1)
    """Not OpenAI's: speak only the sentence of this number, whole, so that a flawed take is sampled again."""

    words: bool = False
    """Not OpenAI's: events name words and their times, where the model has them."""

    seed: int = Field(0, ge=0, le=MAX_SEED)
    """Not OpenAI's: another seed gives another reading."""

    dialogue: str | None = Field(None, max_length=NAME_CHARACTERS)
    """Not OpenAI's: the voice of what is said in quotation marks."""

    style_of: str | None = Field(None, max_length=NAME_CHARACTERS)
    """Not OpenAI's: name or id of a voice whose style it speaks in."""

    voices: dict[str, str] = Field(default_factory=dict, max_length=MAX_CAST)
    """Not OpenAI's: names that the text may use for voices, each with the name or id of one."""

    top_p: float | None = Field(None, ge=0.0, le=1.0)
    """Not OpenAI's: the nucleus of the first attempt at a sentence."""

    continuation: Continuation = Continuation.FIXED_REFERENCE
    """Not OpenAI's: what each sentence continues from."""

    pauses: dict[str, float] = Field(default_factory=dict)
    """Not OpenAI's: seconds of silence after a `sentence`, `heading`, `paragraph`, `scene` and at the `end`."""

    lexicon: dict[str, str] = Field(default_factory=dict, max_length=MAX_WORDS)
    """Not OpenAI's: words and their pronunciations, as in a lexicon file."""

    paper: bool = False
    """Not OpenAI's: speak as the paper says, without what marstts adds at synthesis."""

    @model_validator(mode="before")
    @classmethod
    def _leave_out_nulls(cls, values: Any) -> Any:
        """Treat `null` as a field that is not given; names of formats may be in any case."""
        if not isinstance(values, dict):
            return values
        given = {name: value for name, value in values.items() if value is not None}
        formats = ((name, given.get(name)) for name in ("response_format", "stream_format"))
        return given | {name: value.lower() for name, value in formats if isinstance(value, str)}

    def speaking(self, voices: Mapping[str, Voice], lexicon: Lexicon | None) -> Speaking:
        """How the text is spoken, but for its voice, which is opened later; MarsError for impossible settings.

        voices: those that the text may name. lexicon: the server's, in which the request's words replace others.
        """
        own = {} if lexicon is None else lexicon.respellings
        how = Speaking(
            voices=voices,
            dialogue=self.dialogue,
            lexicon=Lexicon({**own, **lexicon_of(self.lexicon).respellings}),
            seed=self.seed,
            top_p=self.top_p,
            continuation=self.continuation,
            speed=self.speed,
            seconds=self.seconds,
            pauses=pauses_of(self.pauses),
            paper=self.paper,
        )
        how.check()
        return how

    @property
    def voice_name(self) -> str:
        """Name or id of the voice."""
        return self.voice.id if isinstance(self.voice, VoiceId) else self.voice


SETTINGS = Settings.__annotations__.keys() & SpeechBody.model_fields.keys()
"""Fields of a request that say how a text is spoken."""


class MixBody(BaseModel):
    """Body of `POST /v1/audio/voices/mix`."""

    model_config = ConfigDict(allow_inf_nan=False)

    name: str
    voices: dict[str, float] = Field(min_length=2, max_length=MAX_CAST)
    """Names or ids of voices, each with its share."""

    consent: str = ""


class RenameBody(BaseModel):
    """Body of `POST /v1/audio/voices/{voice_id}`."""

    name: str


def body_of(fields: Mapping[str, Any]) -> SpeechBody:
    """The body of a request for speech with these fields; ApiError where one is impossible."""
    try:
        return SpeechBody.model_validate(fields)
    except ValidationError as error:
        raise validation_error(error.errors(include_url=False, include_context=False)) from error


async def read_body(request: Request, model: type[Body]) -> Body:
    """The body of a request as a `model`; ApiError where it is not JSON by its type, or not such an object."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != JSON:
        raise ApiError(415, f"Expected a body of type {JSON}.")
    content = await request.body()
    try:
        return model.model_validate_json(content)
    except ValidationError as error:
        raise validation_error(error.errors(include_url=False, include_context=False)) from error


def as_json(value: Any, status: int = 200) -> Response:
    """A value as JSON."""
    return Response(json.dumps(value, ensure_ascii=False).encode(), status, media_type=JSON)
