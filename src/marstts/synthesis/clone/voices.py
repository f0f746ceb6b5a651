"""Voices by name: those in the package, voice files, and recordings to clone.

Upstream: the command line, callers that give a name or path instead of a `Voice`.  Downstream: `voice`, `clone`.
The package holds voices of synthetic speakers and of one public-domain reader in `voices_data/`, with a table of who
they are and under which license. They keep their reference, so that every model can clone them.
"""

from __future__ import annotations

import io
import os
from collections.abc import Mapping
from dataclasses import replace
from itertools import islice
from pathlib import Path

from marstts.codec.base import TIMBRE
from marstts.errors import VoiceError, did_you_mean
from marstts.io.reading import printable_name
from marstts.synthesis.clone import clone, warn
from marstts.synthesis.clone.packaged import PACKAGED_VOICES, VOICE_SUFFIX, packaged_name, packaged_names, voice_table
from marstts.synthesis.clone.voice_folder import ID, own_voices
from marstts.synthesis.model_session import ModelSession
from marstts.voice import Voice

MAX_LISTED = 20
"""Voices of a caller that a message names."""


def voices() -> list[str]:
    """Names of the voices in the package, for `speak(text, voice=NAME)`; the first one is the default."""
    default = voice_table().default
    return sorted(packaged_names(), key=lambda name: name != default)


def named_voice(session: ModelSession, name: str, voices: Mapping[str, Voice]) -> Voice:
    """The voice that a text asks for: of the caller's `voices`, or packaged. Never a file: texts may come from others.

    Raises VoiceError for any other name.
    """
    if name in voices:
        return voices[name]
    if (known := packaged_name(name)) is not None:
        return open_voice(session, known)
    for other in voices:
        if other.casefold() == name.casefold():
            return voices[other]
    own = f"{', '.join(map(printable_name, islice(voices, MAX_LISTED)))}, or " if voices else ""
    known = ", ".join(packaged_names())
    raise VoiceError(f"{printable_name(name)}: expected {own}one of the packaged voices in a text: {known}")


def voices_in(folder: Path) -> dict[str, Voice]:
    """The voice files of a folder by their names, or by the voices' names; VoiceError where there is none.

    The voice's name counts where the file's is an id, as in the folder of the user's own voices.
    """
    files = {path: Voice.load(path) for path in sorted(folder.glob(f"*{VOICE_SUFFIX}"))}
    voices = {voice.name if ID.fullmatch(path.stem) else path.stem: voice for path, voice in files.items()}
    if not voices:
        raise VoiceError(f"{printable_name(folder)}: expected a folder of voice files (*{VOICE_SUFFIX})")
    return voices


def open_voice(session: ModelSession, voice: Voice | Path | str | None) -> Voice:
    """Open a voice for a model: a `Voice`, the name of a packaged one or of one of the user's own (`voice_folder`), a
    voice file, or a recording to clone.

    A name may be in any case, or be OpenAI's, where no file has it. None is the default voice. A voice that was made
    for another model is cloned again from the reference it keeps.
    Raises VoiceError where there is no such voice or it cannot be cloned again, AudioError for unusable recordings.
    """
    if isinstance(voice, Voice):
        return adapt_voice(session, voice)
    path = find_voice(voice_table().default if voice is None else voice)
    if path.suffix == VOICE_SUFFIX:
        return adapt_voice(session, Voice.load(path))
    return clone(path, codec=session.codec, encoders=session.encoders, keep_reference=False)  # it is not saved


def find_voice(voice: Path | str) -> Path:
    """The file of a packaged voice or one of the user's own, by its name, or a voice file or recording, by its path.

    A text that is the path of a file and looks like one, by a suffix or a folder, is that file. A packaged voice's name
    in another case, or OpenAI's, counts where no file has it. VoiceError where there is neither.
    """
    if isinstance(voice, str):
        if voice in packaged_names():
            return PACKAGED_VOICES / f"{voice}{VOICE_SUFFIX}"
        is_file = (Path(voice).suffix or Path(voice).name != voice) and os.path.exists(voice)
        own = None if is_file else own_voices().find(voice)
        if own is not None:
            return own_voices().path_of(own)
    path = Path(voice)
    if path.suffix != VOICE_SUFFIX and not os.path.exists(path):
        if isinstance(voice, str) and (known := packaged_name(voice)) is not None:
            return PACKAGED_VOICES / f"{known}{VOICE_SUFFIX}"
        own_names = list(islice(own_voices(), MAX_LISTED))
        names = [*packaged_names(), *own_names]
        raise VoiceError(
            f"{printable_name(voice)}: neither a file nor the name of a voice: {', '.join(map(printable_name, names))}"
            f"{did_you_mean(str(voice), names)}"
        )
    return path


def adapt_voice(session: ModelSession, voice: Voice) -> Voice:
    """The voice for this model: the same, or cloned again from the reference it keeps.

    Where the timbre encoder alone is another one, the timbre embedding alone is made again, with a warning
    (ReferenceWarning). Raises VoiceError where the voice was made for another model and keeps no reference. A voice
    without a reference may lack the timbre embedding; it is then decoded without one.
    """
    try:
        session.check_fits(voice)
    except VoiceError:
        if not voice.reference:
            raise
    else:
        if not voice.reference or TIMBRE in voice.encoders or TIMBRE not in session.encoders:
            return voice
    if TIMBRE in voice.encoders and fits_but_for_timbre(session, voice):
        return with_new_timbre(session, voice)
    return clone(
        io.BytesIO(voice.reference),
        None if voice.prefix is None else voice.reference_transcript or voice.prefix.transcript,
        codec=session.codec,
        encoders=session.encoders,
        model=None if session.paper else session.model,
        name=voice.name,
        consent=voice.consent,
    )


def fits_but_for_timbre(session: ModelSession, voice: Voice) -> bool:
    """Whether all of the voice but the timbre embedding is of this model's codec and encoders."""
    names = {role: encoder.name for role, encoder in session.encoders.items() if role != TIMBRE}
    try:
        voice.check_fits(session.codec.spec.name, names)
    except VoiceError:
        return False
    return TIMBRE in session.encoders


def with_new_timbre(session: ModelSession, voice: Voice) -> Voice:
    """The voice with the timbre embedding of the reference it keeps, by this model's timbre encoder."""
    encoder = session.encoders[TIMBRE]
    warn(
        f"voice {voice.name!r} was made with the timbre encoder {voice.encoders[TIMBRE]!r}, but this model needs "
        f"{encoder.name!r}: its timbre was taken again from the recording that it keeps; in Python, "
        "`tts.open_voice(FILE).save(FILE)` keeps the result"
    )
    made = clone(
        io.BytesIO(voice.reference),
        codec=session.codec,
        encoders={TIMBRE: encoder},
        keep_reference=False,
        min_speech_ratio=0.0,  # the recording was accepted when the voice was made
    )
    return replace(
        voice,
        embeddings={**voice.embeddings, TIMBRE: made.embeddings[TIMBRE]},
        encoders={**voice.encoders, TIMBRE: encoder.name},
    )
