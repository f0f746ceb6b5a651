"""Opening references: a recording of any length in, a minute of samples at most out.

Upstream: recordings that users bring, through `audio.read_blocks`.  Downstream: `clone`.
Short recordings are returned as they are. Of a longer one only the part that will be encoded is kept, at its own sample
rate; its start is found by voice activity in windows of a second, and decoding stops behind it. Speech that begins
after a minute of sound without a pause is found where it lasts for some seconds.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from marstts import audio
from marstts.audio import Waveform
from marstts.audio.voice_activity import SAMPLE_RATE as DETECTOR_RATE
from marstts.audio.voice_activity import SpeechDetector
from marstts.errors import AudioError, IncompleteAudioError

WHOLE_SECONDS = 60.0
"""Recordings of at most this length are kept whole; memory and encoding do not grow beyond it."""

WINDOW_SECONDS = 1.0
"""Length of the parts in which a long recording is searched for speech."""

EVERY_WINDOW, STRIDE = 60, 4
"""Windows of sound without a pause that are all searched; of further ones, one in `STRIDE`: the detector is slow."""

WINDOW_SPEECH_RATIO = 0.25
"""Least ratio of speech in the window that speech begins in; noise, hum, music and tones have at most 0.03."""

MIN_WINDOW_LOUDNESS, WINDOW_LOUDNESS = -60.0, -23.0
"""LUFS; quieter windows are silence, and the others are brought to one loudness before speech is looked for."""

Reference: TypeAlias = "Waveform | Path | str | io.BytesIO"


class Excerpt(NamedTuple):
    """The part of a recording that is used."""

    waveform: Waveform

    start_seconds: float | None
    """Start of the part in a recording of more than WHOLE_SECONDS; None for one that is whole."""

    fault: str = ""
    """What is wrong with a recording of which only the beginning is there."""


def source_name(reference: Reference) -> str:
    """The name of a reference in messages."""
    return str(reference) if isinstance(reference, (Path, str)) else "reference"


def open_excerpt(reference: Reference, seconds: float, *, any_sound: bool = False, covers_all: bool = False) -> Excerpt:
    """The whole recording if it has at most WHOLE_SECONDS, else at least `seconds` from the first speech on.

    `any_sound` searches for sound instead of speech. `covers_all`: all speech must lie in the excerpt. Of a recording
    that is cut short, or corrupt from some place on, what comes before is used.
    Raises AudioError where the recording is unreadable or not finite; for long ones, too, where no speech is found
    and where there is more of it than `covers_all` allows.
    """
    name = source_name(reference)
    if isinstance(reference, Waveform):
        if not np.isfinite(reference.samples).all():
            raise AudioError(f"{name}: holds samples that are not numbers; export the recording again")
        if reference.seconds <= WHOLE_SECONDS:
            return Excerpt(reference, None)
        return search(name, windows(iter([reference])), seconds, any_sound, covers_all)
    try:
        return read_excerpt(reference, name, seconds, any_sound, covers_all)
    except IncompleteAudioError as error:
        if isinstance(reference, io.BytesIO):
            reference.seek(0)
        try:
            found = read_excerpt(reference, name, seconds, any_sound, covers_all, whole=False)
        except AudioError:
            raise error from None
        return found._replace(fault=f"{name}: corrupt or cut short")


def read_excerpt(
    reference: Path | str | io.BytesIO,
    name: str,
    seconds: float,
    any_sound: bool,
    covers_all: bool,
    *,
    whole: bool = True,
) -> Excerpt:
    """The excerpt of a file; `whole` refuses one that is cut short."""
    with closing(audio.read_blocks(reference, whole=whole)) as blocks:
        opening, ended = first_blocks(blocks)
        if ended:
            return Excerpt(concatenated(opening), None)
        return search(name, windows(chained(opening, blocks)), seconds, any_sound, covers_all)


def first_blocks(blocks: Iterator[Waveform]) -> tuple[list[Waveform], bool]:
    """The blocks of the first WHOLE_SECONDS, and whether the recording ends there."""
    opening: list[Waveform] = []
    length = 0.0
    for block in blocks:
        opening.append(block)
        length += block.seconds
        if length > WHOLE_SECONDS:
            return opening, False
    return opening, True


def chained(opening: list[Waveform], blocks: Iterator[Waveform]) -> Iterator[Waveform]:
    """All blocks again; those of the opening are released one by one."""
    while opening:
        yield opening.pop(0)
    yield from blocks


def windows(blocks: Iterable[Waveform]) -> Iterator[Waveform]:
    """The same samples in windows of WINDOW_SECONDS, whatever the length of the blocks; the last may be shorter."""
    rest: NDArray[np.float32] | None = None
    rate = 0
    for block in blocks:
        rate = block.sample_rate
        size = int(WINDOW_SECONDS * rate)
        samples = block.samples if rest is None else np.concatenate([rest, block.samples])
        whole = len(samples) // size * size
        for start in range(0, whole, size):
            yield Waveform(samples[start : start + size], rate)
        rest = samples[whole:].copy()
    if rest is not None and len(rest):
        yield Waveform(rest, rate)


def search(name: str, parts: Iterator[Waveform], seconds: float, any_sound: bool, covers_all: bool) -> Excerpt:
    """The window before the first speech and those that follow it, until they hold the `seconds`."""
    finder = SpeechFinder(None if any_sound else SpeechDetector())
    kept: list[Waveform] = []
    start: float | None = None
    position = length = 0.0
    for part in parts:
        if start is None:
            kept = [*kept[-STRIDE:], part]
            if finder.finds_speech(part):
                kept = kept[max(0, finder.first_speech(kept) - 1) :]
                length = sum(one.seconds for one in kept)
                start = position + part.seconds - length
        elif length < seconds + 2 * WINDOW_SECONDS:  # the first two may be silence before the speech
            kept.append(part)
            length += part.seconds
        elif not covers_all:
            break
        elif finder.finds_speech(part):
            raise AudioError(
                f"{name}: {position - start:.0f} s or more lie between the first and the last speech; with a "
                f"transcript at most {seconds:g} s can be used, so cut recording and transcript, or leave the "
                "transcript out"
            )
        position += part.seconds
    if start is None:
        raise AudioError(f"{name}: no speech was found in it; cloning needs someone speaking, without music or noise")
    return Excerpt(concatenated(kept), start)


class SpeechFinder:
    """Looks for speech in one window after another; for any sound without a `detector`."""

    def __init__(self, detector: SpeechDetector | None) -> None:
        self._detector = detector
        self._num_sounding = 0
        """Windows of sound since the last quiet one."""

    def finds_speech(self, window: Waveform) -> bool:
        """Whether the next window holds speech; some are left out where sound has no pause."""
        reduced = self._reduced(window)
        if reduced is None:
            self._num_sounding = 0
            return False
        self._num_sounding += 1
        if self._num_sounding > EVERY_WINDOW and self._num_sounding % STRIDE:
            return False
        return self._is_speech(reduced)

    def first_speech(self, windows: list[Waveform]) -> int:
        """The number of the first window with speech; the last one has some."""
        for number, window in enumerate(windows[:-1]):
            if (reduced := self._reduced(window)) is not None and self._is_speech(reduced):
                return number
        return len(windows) - 1

    def _reduced(self, window: Waveform) -> Waveform | None:
        """The window at the detector's rate; None where it is quiet."""
        centered = Waveform(window.samples - window.samples.mean(), window.sample_rate)
        reduced = audio.resample(centered, DETECTOR_RATE)
        return None if audio.loudness_lufs(reduced) < MIN_WINDOW_LOUDNESS else reduced

    def _is_speech(self, reduced: Waveform) -> bool:
        if self._detector is None:
            return True
        return self._detector.has_speech(audio.normalize_loudness(reduced, WINDOW_LOUDNESS), WINDOW_SPEECH_RATIO)[0]


def concatenated(parts: list[Waveform]) -> Waveform:
    """All parts in one waveform."""
    return Waveform(np.concatenate([part.samples for part in parts]), parts[0].sample_rate)


def sha256_of(reference: Reference) -> str:
    """The SHA-256 of a reference's file; of its samples, if it has no file."""
    if isinstance(reference, Waveform):
        return hashlib.sha256(reference.samples.astype("<f4").tobytes()).hexdigest()
    if isinstance(reference, io.BytesIO):
        return hashlib.sha256(reference.getvalue()).hexdigest()
    digest = hashlib.sha256()
    with Path(reference).open("rb") as file:
        for block in iter(lambda: file.read(1 << 20), b""):
            digest.update(block)
    return digest.hexdigest()
