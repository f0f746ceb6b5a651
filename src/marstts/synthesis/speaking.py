"""Speaking: how a text is spoken, as one value that every door takes, from Python to the protocols of the server.

Upstream: options, fields of requests, keyword arguments.  Downstream: `texts`, which reads and speaks by it.
What is spoken (the text) and where the audio goes (a file, a stream) are no part of it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TypedDict

from marstts.audio.tempo import check_speed
from marstts.errors import ConfigError, did_you_mean, require
from marstts.synthesis.clone.voices import adapt_voice, open_voice
from marstts.synthesis.model_session import ModelSession
from marstts.synthesis.speech import Continuation
from marstts.text.lexicon import Lexicon
from marstts.text.reading import USUAL_PAUSES
from marstts.text.segments import Pauses
from marstts.voice import Voice, with_style_of

AnyVoice = Voice | Path | str | None
"""A voice, a packaged voice's name, a path to a voice file or recording, or None for the default voice."""


MAX_SECONDS = 24 * 3600.0
"""Longest length that a text is fitted to."""

VOICES = ("voice", "style_of", "voices")
"""Fields with voices."""


class Settings(TypedDict, total=False):
    """The fields of `Speaking` but for the voice, as keyword arguments."""

    style_of: AnyVoice
    voices: Mapping[str, Voice]
    dialogue: str | None
    lexicon: Lexicon | None
    seed: int
    top_p: float | None
    continuation: Continuation
    speed: float
    seconds: float | None
    pauses: Pauses
    paper: bool


@dataclass(frozen=True, eq=False, kw_only=True)
class Speaking:
    """How a text is spoken."""

    voice: AnyVoice = None
    """The voice of all that has no other: a `Voice`, a name, a path, or None for the default voice."""

    style_of: AnyVoice = None
    """A voice whose style it speaks in, as itself; None for its own. The voice is then used without its prefix."""

    voices: Mapping[str, Voice] = field(default_factory=dict)
    """Voices that the text may name, by name, besides the packaged ones."""

    dialogue: str | None = None
    """Name of the voice that says what stands in quotation marks."""

    lexicon: Lexicon | None = None
    """The user's pronunciations."""

    seed: int = 0
    """The same seed gives the same speech on one machine."""

    top_p: float | None = None
    """Nucleus of the first attempt at a sentence, 0 to 1; None: the model's."""

    continuation: Continuation = Continuation.FIXED_REFERENCE
    """What each sentence continues from: nothing, the reference, or the sentence before."""

    speed: float = 1.0
    """Tempo, 0.25 to 4 times the usual, at the same pitch; needs the extra `formats`."""

    seconds: float | None = None
    """Length of the whole speech in seconds, in place of a speed: the text is fitted to it."""

    pauses: Pauses = USUAL_PAUSES
    """Seconds of silence after a sentence, heading, paragraph, scene and at the end."""

    paper: bool = False
    """Whether it is spoken as the paper says, without what this project adds at synthesis (docs/paper.md lists it)."""

    def check(self) -> None:
        """Raise ConfigError where a value is impossible, MissingExtraError where one needs an extra."""
        if not isinstance(self.voices, Mapping):
            raise ConfigError("`voices` are those that a text may name, by name; `voice` is the one that speaks")
        if self.top_p is not None and not 0.0 <= self.top_p <= 1.0:
            raise ConfigError(f"top_p must lie between 0 (greedy) and 1 (everything), but is {self.top_p:g}")
        if self.seed < 0:
            raise ConfigError(f"the seed must be 0 or more, but is {self.seed}")
        check_speed(self.speed)
        if self.seconds is not None and not 0.0 < self.seconds <= MAX_SECONDS:
            raise ConfigError(f"the length must lie between 0 and {MAX_SECONDS:g} s, but is {self.seconds:g}")
        if self.seconds is not None and self.speed != 1.0:
            raise ConfigError("give either a speed or the seconds that the speech lasts, not both")
        if self.speed != 1.0 or self.seconds is not None:
            require("av", "formats")

    @property
    def can_go_on(self) -> bool:
        """Whether a sentence can be spoken without the take before it."""
        return self.continuation is not Continuation.PER_CHUNK

    def opened(self, session: ModelSession) -> Speaking:
        """The same with its voice opened for a model; `synthesis.clone.voices.open_voice` names the errors."""
        if isinstance(self.voice, Voice) and self.style_of is None:
            return self
        voice = self.voice if isinstance(self.voice, Voice) else open_voice(session, self.voice)
        if self.style_of is not None:
            voice = with_style_of(adapt_voice(session, voice), open_voice(session, self.style_of))
        return replace(self, voice=voice, style_of=None)

    def fingerprint(self, session: ModelSession, *parts: str) -> str:
        """Hash of all that decides how this is spoken by a model, and of `parts`."""
        opened = self.opened(session)
        assert isinstance(opened.voice, Voice)
        voices = [f"{name} {digest_of(voice)}" for name, voice in sorted(opened.voices.items())]
        others = {name: str(value) for name, value in vars(opened).items() if name not in VOICES}
        stated = json.dumps((*parts, digest_of(opened.voice), *voices, others, session.label), sort_keys=True)
        return hashlib.sha256(stated.encode()).hexdigest()


USUAL = Speaking()
"""The default voice, and a default for all else."""


def pauses_of(stated: Mapping[str, float], source: str = "pauses") -> Pauses:
    """Pauses by name, the usual ones where they are not stated; ConfigError for other names, from `source`."""
    known = [each.name for each in fields(Pauses)]
    for name in stated:
        if name not in known:
            raise ConfigError(f"{source}: expected {', '.join(known)}, but came {name!r}{did_you_mean(name, known)}")
    return Pauses(**stated)


def digest_of(voice: Voice) -> str:
    """Hash of a voice's content."""
    return hashlib.sha256(voice.to_bytes()).hexdigest()
