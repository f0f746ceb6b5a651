"""Cloning: a recording of a speaker in, a `Voice` out.

Upstream: recordings of users, read by `references`.  Downstream: `synthesizer`, and voice files.
MARS6 (arXiv:2501.05787), Sec. IV: a *shallow* clone has only embeddings of the reference. A *deep* clone also has a
prefix, codes and transcript of the reference, which the model continues from.
Deviations: the reference is trimmed and its loudness is normalized before it is encoded, and its length is bounded. The
prefix is a part of the reference, if the model can find the words of that part (`prefix_cut`).
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from marstts import audio
from marstts.audio import Waveform
from marstts.audio.voice_activity import SpeechDetector
from marstts.codec.base import Codec
from marstts.errors import AudioError, TextError
from marstts.generation.speech_model import SpeechModel
from marstts.speaker.base import MAX_REFERENCE_SECONDS, REFERENCE_LOUDNESS, SpeakerEncoder
from marstts.synthesis.clone.background import describe_background
from marstts.synthesis.clone.prefix_cut import (
    MIN_CHARACTERS_PER_SECOND,
    AlignedReference,
    ReferencePart,
    align_reference,
    follows_text,
)
from marstts.synthesis.clone.references import WHOLE_SECONDS, Reference, open_excerpt, sha256_of, source_name
from marstts.synthesis.clone.speaker_change import has_two_speakers
from marstts.text.normalize import normalize
from marstts.voice import MAX_TRANSCRIPT, Prefix, Voice

MIN_REFERENCE_SECONDS = 1.0
"""Less speech than this does not distinguish speakers."""

MAX_PREFIX_SECONDS = 12.0
"""A deep clone continues from at most this much, and from all of a reference whose words are not found."""

MAX_SILENT_SECONDS = 1.0
"""Pauses of a reference for which its transcript has no words."""

MAX_PAUSE_SECONDS, SHORT_PAUSE_SECONDS = 0.35, 0.25
"""Longer pauses of a reference that is continued from as a whole are shortened, where the model would allow a part:
with them, takes lose words, for models are trained on short pauses."""

CLIPPED_RATIO, CLIPPED_PILE = 0.0005, 8.0
"""A recording is clipped if more than this ratio of its samples lies at the peak, and this many times as many as just
below it; an unclipped sine has three times as many."""

MIN_FULL_RATE = 16_000
"""Hz; recordings of less lack a part of what makes a voice."""

SPEECH_BAND, HIGH_BAND = (1_000, 3_400), (4_400, 6_500)
"""Hz; telephones have the first of these bands only."""

TELEPHONE_DROP = 34.0
"""Decibels between the bands. 40 recordings of people have 1 to 18; brought to 8 kHz and back, 39 or more."""

MIN_REFERENCE_LOUDNESS = -60.0
"""LUFS; quieter recordings are taken for silence."""

MIN_SPEECH_RATIO = 0.1
"""Least ratio of a reference that must be speech. Recordings of speech have 0.6 and more, whispers included; noise,
hum, music and tones have at most 0.03."""


class ReferenceWarning(UserWarning):
    """The reference can be used, but it has a defect from which the clone may suffer."""


def clone(
    reference: Reference,
    transcript: str | None = None,
    *,
    codec: Codec,
    encoders: Mapping[str, SpeakerEncoder],
    model: SpeechModel | None = None,
    name: str | None = None,
    consent: str = "",
    keep_reference: bool = True,
    min_speech_ratio: float = MIN_SPEECH_RATIO,
) -> Voice:
    """Clone the voice of `reference`: a shallow clone, or with the `transcript` of the recording a deep one.

    `encoders` are by role. If the attention of `model` follows the text, a deep clone continues from a part of the
    reference. Without such a model, or if the words are not found, it continues from the whole reference. `name`
    defaults to the file's name; `consent` states who agreed to the cloning, and how. The voice keeps its reference,
    compressed, so that another model can clone it again, unless `keep_reference` is False. `min_speech_ratio` is the
    ratio of the reference that must at least be speech; 0 skips this check.

    Raises AudioError if the recording is unreadable, silent, without speech or shorter than MIN_REFERENCE_SECONDS, or
    if it is longer than MAX_PREFIX_SECONDS and a deep clone would continue from all of it. Raises TextError if the
    transcript has no words, or too many. Warns (ReferenceWarning) of clipping, of sound under the voice, of less
    than 16 kHz or no sound above 4 kHz, of a recording that is cut short, of a second speaker, of a long reference of
    which only the start is used, and of a transcript that lacks words, with which the clone is shallow.
    """
    source = source_name(reference)
    reader = model if transcript is not None and model is not None and follows_text(model) else None
    is_whole = transcript is not None and reader is None
    recording, start, fault = open_excerpt(
        reference,
        MAX_PREFIX_SECONDS if is_whole else MAX_REFERENCE_SECONDS,
        any_sound=min_speech_ratio <= 0,
        covers_all=is_whole,
    )
    try:
        waveform = prepare(recording, codec.spec.sample_rate, source)
    except AudioError as error:
        raise AudioError(f"{fault}; too little is there: {error}") if fault else error from None
    if fault:
        warn(f"{fault}; the voice is taken from the beginning, as far as it can be read")
    check_speech(waveform, source, min_speech_ratio)
    words = None if transcript is None else read_transcript(transcript, source)
    if is_whole:
        check_prefix_length(waveform, source)
    opening = first_seconds(waveform)
    warn_of_length(waveform, start, source)
    if has_two_speakers(opening, encoders.values()):
        warn(f"{source}: two people seem to speak, so the voice is a mixture; cut the recording to one of them")
    voice = Voice(
        name=name or Path(source).stem,
        embeddings={role: encoder.embed(opening) for role, encoder in encoders.items()},
        prefix=None,
        codec=codec.spec.name,
        encoders={role: encoder.name for role, encoder in encoders.items()},
        source_sha256=sha256_of(reference),
        consent=consent,
        reference=compress(opening) if keep_reference else b"",
    )
    if words is None:
        return voice
    whole = ReferencePart(waveform, words)
    if reader is not None:
        return continue_from_part(voice, whole, reader, codec, source)
    return continue_from_whole(voice, whole, codec, source)


def continue_from_part(voice: Voice, whole: ReferencePart, model: SpeechModel, codec: Codec, source: str) -> Voice:
    """The voice with a part of its reference as prefix, or with all of it if the words are not found."""
    aligned = align_reference(first_seconds(whole.waveform), whole.words, voice, model, codec)
    part = None if aligned is None else aligned.best_part()
    if aligned is None or part is None:
        check_prefix_length(whole.waveform, source, "the words of the transcript were not found in it, and ")
        sound = audio.shorten_pauses(whole.waveform, MAX_PAUSE_SECONDS, SHORT_PAUSE_SECONDS)
        return continue_from_whole(voice, ReferencePart(sound, whole.words), codec, source)
    return continued_from(part, voice, aligned, whole, codec)


def continue_from_whole(voice: Voice, whole: ReferencePart, codec: Codec, source: str) -> Voice:
    """The voice with all of its reference as prefix; a shallow clone, with a warning, where the transcript lacks words.

    A model that continues from more sound than words takes the text for said, and ends within 0.2 s.
    """
    seconds, num_characters = whole.waveform.seconds, len(whole.words)
    if num_characters < MIN_CHARACTERS_PER_SECOND * (seconds - MAX_SILENT_SECONDS):
        warn(
            f"{source}: the transcript has {num_characters} characters for {seconds:.1f} s of speech, so it lacks "
            "words, and the clone is shallow; a deep one needs all words that are said"
        )
        return voice
    return replace(voice, prefix=Prefix(transcript=whole.words, codes=codec.encode(whole.waveform)))


def continued_from(
    part: ReferencePart, voice: Voice, aligned: AlignedReference, whole: ReferencePart, codec: Codec
) -> Voice:
    """The voice with a part of its reference as prefix.

    The reference that it keeps is bounded, so that a model that continues from all of it can clone it again.
    """
    deep = replace(voice, prefix=Prefix(transcript=part.words, codes=codec.encode(part.waveform)))
    if not voice.reference:
        return deep
    kept = whole if whole.waveform.seconds <= MAX_PREFIX_SECONDS else aligned.longest_part(MAX_PREFIX_SECONDS)
    assert kept is not None, "a part was found, and it is shorter"
    return replace(deep, reference=compress(kept.waveform), reference_transcript=kept.words)


def compress(waveform: Waveform) -> bytes:
    """The recording as MP3, 8 kB a second; nothing where libsndfile cannot write that.

    Equal recordings give equal bytes, which Ogg's random serial numbers do not.
    """
    try:
        return audio.encode(waveform, ".mp3")
    except AudioError:
        return b""


def prepare(recording: Waveform, sample_rate: int, source: str) -> Waveform:
    """Check the reference; bring it to the codec's rate and one loudness, and trim silence at its edges."""
    centered = Waveform(recording.samples - recording.samples.mean(), recording.sample_rate)
    waveform = audio.resample(centered, min(sample_rate, recording.sample_rate))
    if audio.loudness_lufs(waveform) < MIN_REFERENCE_LOUDNESS:
        peak = float(np.abs(centered.samples).max(initial=0.0))
        kind = f"too quiet: it reaches {peak:.2%} of full scale" if peak > 0 else "silent"
        raise AudioError(f"{source}: the recording is {kind}; cloning needs speech")
    waveform = audio.trim_silence(waveform)
    if waveform.seconds < MIN_REFERENCE_SECONDS:
        raise AudioError(
            f"{source}: {waveform.seconds:.1f} s of speech; cloning needs at least {MIN_REFERENCE_SECONDS:g} s"
        )
    if is_clipped(recording):
        warn(f"{source}: the recording is clipped, so the voice may sound harsh; a quieter recording would be better")
    if recording.sample_rate < MIN_FULL_RATE:
        warn(
            f"{source}: the recording has {recording.sample_rate / 1000:g} kHz, as telephones have, so the voice may "
            f"sound dull; one of {MIN_FULL_RATE // 1000} kHz or more would be better"
        )
    elif lacks_high_frequencies(recording):
        warn(
            f"{source}: the recording has no sound above 4 kHz, as of telephones, whatever its sample rate, so the "
            f"voice may sound dull; one that was recorded with {MIN_FULL_RATE // 1000} kHz or more would be better"
        )
    return audio.normalize_loudness(waveform, REFERENCE_LOUDNESS)


def check_speech(waveform: Waveform, source: str, min_ratio: float) -> None:
    """Raise AudioError where less than `min_ratio` of the recording is speech, by voice activity detection.

    Warn of what sounds under the speech.
    """
    if min_ratio <= 0:
        return
    is_speech, ratio = SpeechDetector().has_speech(first_seconds(waveform), min_ratio)
    if not is_speech:
        raise AudioError(
            f"{source}: {ratio:.0%} of the recording is speech; cloning needs someone speaking, without music or noise"
        )
    if (background := describe_background(first_seconds(waveform))) is not None:
        warn(f"{source}: {background}; it may get into the voice, so a recording without it would be better")


def is_clipped(waveform: Waveform) -> bool:
    """Return True where samples pile up at the peak: a noticeable ratio, far more than just below it."""
    relative = np.abs(waveform.samples) / np.abs(waveform.samples).max()
    at_the_peak = (relative >= 0.995).mean()
    below_it = ((relative >= 0.985) & (relative < 0.99)).mean()
    return bool(at_the_peak > CLIPPED_RATIO and at_the_peak > CLIPPED_PILE * below_it)


def lacks_high_frequencies(waveform: Waveform) -> bool:
    """Return True where the spectrum ends below 4 kHz: a recording of 8 kHz that was brought to another rate."""
    size = waveform.sample_rate // 25
    frames = waveform.samples[: len(waveform.samples) // size * size].reshape(-1, size) * np.hanning(size)
    power = (np.abs(np.fft.rfft(frames, axis=-1)) ** 2).mean(axis=0)
    hertz = np.fft.rfftfreq(size, 1 / waveform.sample_rate)
    low, high = (power[(hertz >= start) & (hertz < end)].mean() for start, end in (SPEECH_BAND, HIGH_BAND))
    return bool(high < low * 10 ** (-TELEPHONE_DROP / 10))


def first_seconds(waveform: Waveform) -> Waveform:
    """The part that the speaker encoders see, at most MAX_REFERENCE_SECONDS."""
    return Waveform(waveform.samples[: int(MAX_REFERENCE_SECONDS * waveform.sample_rate)], waveform.sample_rate)


def warn_of_length(waveform: Waveform, start: float | None, source: str) -> None:
    """Warn where a part of the speech is used; `start` is the second that an excerpt begins at."""
    if waveform.seconds <= MAX_REFERENCE_SECONDS:
        return
    length = f"{waveform.seconds:.0f} s of speech" if start is None else f"longer than {WHOLE_SECONDS:g} s"
    origin = "" if start is None else f" of its speech, which begins near second {start + 1:.0f}"
    warn(f"{source}: {length}; the voice is taken from the first {MAX_REFERENCE_SECONDS:g} s{origin}")


def read_transcript(transcript: str, source: str) -> str:
    """The words of a transcript as they are spoken; TextError where there are none, or more than a voice may keep."""
    words = normalize(transcript)
    if len(words) > MAX_TRANSCRIPT:
        raise TextError(f"the transcript of {source} has {len(words)} characters; expected at most {MAX_TRANSCRIPT}")
    if not any(character.isalnum() for character in words):
        raise TextError(f"the transcript {transcript!r} has no words; give the words of {source}, or leave it out")
    return words


def check_prefix_length(waveform: Waveform, source: str, why: str = "") -> None:
    """AudioError where a reference is too long to continue from all of it; `why` it is not cut."""
    if waveform.seconds > MAX_PREFIX_SECONDS:
        raise AudioError(
            f"{source}: {waveform.seconds:.1f} s of speech; {why}with a transcript at most {MAX_PREFIX_SECONDS:g} s "
            "can be used, so cut recording and transcript, or leave the transcript out"
        )


def warn(message: str) -> None:
    warnings.warn(message, ReferenceWarning, stacklevel=2)
