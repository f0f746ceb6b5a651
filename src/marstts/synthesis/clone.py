"""Cloning: a recording of someone in, a `Voice` out.

Upstream: recordings people bring, through `audio.read`.  Downstream: `synthesizer`, and voice files.
MARS6 (arXiv:2501.05787), Sec. IV: a *shallow* clone is the two embeddings of the reference; a *deep* clone has a prefix
as well, the reference's codes and transcript, which the model continues from.
Deviations: the reference is trimmed and brought to one loudness before anything hears it, and its length is bounded.
"""

from __future__ import annotations

import hashlib
import warnings
from pathlib import Path

import numpy as np

from marstts import audio
from marstts.audio import Waveform
from marstts.codec.base import Codec
from marstts.errors import AudioError, TextError
from marstts.speaker.base import SpeakerEncoder
from marstts.text.normalize import normalize
from marstts.voice import Prefix, Voice

MIN_REFERENCE_SECONDS = 1.0
"""Less speech than this does not tell one speaker from another."""

MAX_REFERENCE_SECONDS = 15.0
"""The embeddings listen to this much from the start; more adds time and little else."""

MAX_PREFIX_SECONDS = 12.0
"""A deep clone continues from all of its reference, for the transcript is of all of it; models are not taught more."""

REFERENCE_LOUDNESS = -23.0
"""LUFS every reference is brought to: how near someone stood to the microphone is no part of a voice."""

CLIPPED_SHARE, CLIPPED_PILE = 0.0005, 8.0
"""A recording is clipped if more than this share of its samples lies at the peak, and this many times as many as just
below it; an unclipped sine has three times as many."""

MIN_REFERENCE_LOUDNESS = -60.0
"""LUFS; quieter recordings are taken for silence."""


class ReferenceWarning(UserWarning):
    """The reference can be used, but the listener should know something about it."""


def clone(
    reference: Waveform | Path | str,
    transcript: str | None = None,
    *,
    codec: Codec,
    identity_encoder: SpeakerEncoder,
    style_encoder: SpeakerEncoder,
    name: str | None = None,
    consent: str = "",
) -> Voice:
    """The voice of `reference`: shallow by itself, deep with the `transcript` of what is said in it.

    `name` defaults to the file's name; `consent` says who agreed to the cloning, and how.
    Raises AudioError where the recording is unreadable, silent, shorter than MIN_REFERENCE_SECONDS or (deep) longer
    than MAX_PREFIX_SECONDS, TextError where the transcript has no words.
    Warns (ReferenceWarning) of clipping, and of a long reference of which only the start is used.
    """
    waveform, source, sha256 = open_reference(reference)
    waveform = prepare(waveform, codec.spec.sample_rate, source)
    prefix = None if transcript is None else make_prefix(waveform, transcript, codec, source)
    opening = first_seconds(waveform, source)
    return Voice(
        name=name or Path(source).stem,
        identity=identity_encoder.embed(opening),
        style=style_encoder.embed(opening),
        prefix=prefix,
        codec=codec.spec.name,
        identity_encoder=identity_encoder.name,
        style_encoder=style_encoder.name,
        source_sha256=sha256,
        consent=consent,
    )


def open_reference(reference: Waveform | Path | str) -> tuple[Waveform, str, str]:
    """The recording, what to call it in messages, and the SHA-256 of its file (of its samples, if it has no file)."""
    if isinstance(reference, Waveform):
        return reference, "reference", hashlib.sha256(reference.samples.astype("<f4").tobytes()).hexdigest()
    waveform = audio.read(reference)
    with Path(reference).open("rb") as file:
        digest = hashlib.sha256()
        for block in iter(lambda: file.read(1 << 20), b""):
            digest.update(block)
    return waveform, str(reference), digest.hexdigest()


def prepare(recording: Waveform, sample_rate: int, source: str) -> Waveform:
    """The reference as all encoders hear it: checked, at the codec's rate and one loudness, silent edges trimmed."""
    if not np.isfinite(recording.samples).all():
        raise AudioError(f"{source}: holds samples that are not numbers; export the recording again")
    centred = Waveform(recording.samples - recording.samples.mean(), recording.sample_rate)
    waveform = audio.resample(centred, min(sample_rate, recording.sample_rate))
    if audio.loudness_lufs(waveform) < MIN_REFERENCE_LOUDNESS:
        raise AudioError(f"{source}: the recording is silent; cloning needs someone speaking in it")
    waveform = audio.trim_silence(waveform)
    if waveform.seconds < MIN_REFERENCE_SECONDS:
        raise AudioError(
            f"{source}: {waveform.seconds:.1f} s of speech; cloning needs at least {MIN_REFERENCE_SECONDS:g} s"
        )
    if is_clipped(recording):
        warn(f"{source}: the recording is clipped, so the voice may sound harsh; a quieter recording would be better")
    return audio.normalize_loudness(waveform, REFERENCE_LOUDNESS)


def is_clipped(waveform: Waveform) -> bool:
    """Whether samples pile up at the peak: a noticeable share of them, far more than just below it."""
    relative = np.abs(waveform.samples) / np.abs(waveform.samples).max()
    at_the_peak = (relative >= 0.995).mean()
    below_it = ((relative >= 0.985) & (relative < 0.99)).mean()
    return bool(at_the_peak > CLIPPED_SHARE and at_the_peak > CLIPPED_PILE * below_it)


def first_seconds(waveform: Waveform, source: str) -> Waveform:
    """What the speaker encoders listen to: at most MAX_REFERENCE_SECONDS, from the start."""
    if waveform.seconds <= MAX_REFERENCE_SECONDS:
        return waveform
    warn(f"{source}: {waveform.seconds:.0f} s of speech; the voice is taken from the first {MAX_REFERENCE_SECONDS:g} s")
    return Waveform(waveform.samples[: int(MAX_REFERENCE_SECONDS * waveform.sample_rate)], waveform.sample_rate)


def make_prefix(waveform: Waveform, transcript: str, codec: Codec, source: str) -> Prefix:
    """The codes and words the model continues from."""
    words = normalize(transcript)
    if not any(character.isalnum() for character in words):
        raise TextError(f"the transcript {transcript!r} has no words; give what is said in {source}, or leave it out")
    if waveform.seconds > MAX_PREFIX_SECONDS:
        raise AudioError(
            f"{source}: {waveform.seconds:.1f} s of speech; with a transcript at most {MAX_PREFIX_SECONDS:g} s can be "
            "used, so cut recording and transcript, or leave the transcript out"
        )
    return Prefix(transcript=words, codes=codec.encode(waveform))


def warn(message: str) -> None:
    warnings.warn(message, ReferenceWarning, stacklevel=2)
