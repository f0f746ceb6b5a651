"""What is heard of an utterance: decoded, checked, trimmed, levelled, then codes and two embeddings.

Upstream: `data.manifest`, a `Codec`, two `SpeakerEncoder`s.  Downstream: `data.tokenize`, which makes shards of it.
Deviations: the paper does not tell how its data was cleaned; every check here can be turned off, and most are.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import partial
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from marstts import audio
from marstts.audio import Waveform
from marstts.codec.base import Codec, Codes
from marstts.config import Config
from marstts.data.activity import SpeechDetector, speech_share, trim_to_speech
from marstts.data.manifest import Utterance, read_recording
from marstts.errors import DataError, MarsError
from marstts.speaker.base import SpeakerEncoder
from marstts.text.normalize import normalize

Result = TypeVar("Result")

HAS_LETTER = re.compile("[A-Za-z]")

CLIPPED = 0.999
"""Samples at or beyond this are taken for clipped."""


class Trim(str, Enum):
    """What is cut off a recording's ends."""

    NOTHING = "nothing"
    SILENCE = "silence"
    """Frames 33 dB below the loudest."""
    NON_SPEECH = "non-speech"
    """What the voice activity detector does not take for speech, but for a tenth of a second."""


class ListeningConfig(Config):
    """How recordings are brought into shape, and which are refused."""

    min_seconds: float = Field(0.3, ge=0.0)
    """Shorter recordings are left out, after trimming."""

    max_seconds: float = Field(30.0, gt=0.0)
    """Longer recordings are left out, after trimming."""

    trim: Trim = Trim.NOTHING
    """What is cut off at both ends."""

    loudness_lufs: float | None = Field(None, le=0.0)
    """Bring every recording to this loudness; None leaves it as it was recorded."""

    min_speech_share: float = Field(0.0, ge=0.0, le=1.0)
    """Recordings of which the voice activity detector takes less for speech are left out; 0 does not ask it."""

    max_clipped_share: float = Field(1.0, ge=0.0, le=1.0)
    """Recordings with a larger share of clipped samples are left out."""

    min_characters_per_second: float = Field(0.0, ge=0.0)
    """Texts shorter than that for their recording are left out: words are missing in the transcript."""

    max_characters_per_second: float | None = Field(None, gt=0.0)
    """Texts longer than that for their recording are left out: words are missing in the recording."""

    batch_size: int = Field(16, gt=0)
    """Recordings the codec gets at a time. It changes the time it takes and nothing else."""

    @property
    def asks_detector(self) -> bool:
        """Whether the voice activity detector is needed."""
        return self.trim is Trim.NON_SPEECH or self.min_speech_share > 0

    @property
    def signature(self) -> list[str]:
        """What the result depends on, in words; options that are off say nothing, so that new ones disturb no shard."""
        ignored = {"min_seconds", "max_seconds", "batch_size"}
        changed = {name: value for name, value in self.model_dump(mode="json", exclude=ignored).items()
                   if value != type(self).model_fields[name].get_default()}  # fmt: skip
        return [f"{self.min_seconds} {self.max_seconds}", *(f"{name} {changed[name]}" for name in sorted(changed))]


@dataclass(frozen=True)
class Ears:
    """The three models that hear an utterance."""

    codec: Codec
    identity: SpeakerEncoder
    style: SpeakerEncoder


@dataclass(frozen=True)
class Heard:
    """What the three models made of one utterance: codes per level, (E1,) and (E2,) embeddings."""

    codes: Codes
    identity: NDArray[np.float32]
    style: NDArray[np.float32]


class Listener:
    """Ears, and what they are asked to listen to."""

    def __init__(self, ears: Ears, config: ListeningConfig) -> None:
        self.ears, self.config = ears, config
        self.detector = SpeechDetector() if config.asks_detector else None

    def hear_all(self, utterances: Sequence[Utterance], folder: Path) -> list[Heard | str]:
        """What was heard of each, or why it cannot be used. Recordings of similar length share the codec's batches."""
        results: list[Heard | str] = [""] * len(utterances)
        order = sorted(range(len(utterances)), key=lambda index: (utterances[index].seconds, index))
        for start in range(0, len(order), self.config.batch_size):
            batch = order[start : start + self.config.batch_size]
            for index, result in zip(batch, self.hear_batch([utterances[i] for i in batch], folder), strict=True):
                results[index] = result
        return results

    def hear_batch(self, utterances: Sequence[Utterance], folder: Path) -> list[Heard | str]:
        """As `hear_all`, all of them in memory at the same time."""
        waveforms = [attempt(partial(self.open, utterance, folder)) for utterance in utterances]
        good = [waveform for waveform in waveforms if isinstance(waveform, Waveform)]
        codes = iter(encode_all(self.ears.codec, good))
        results: list[Heard | str] = []
        for waveform in waveforms:
            if isinstance(waveform, str):
                results.append(waveform)
                continue
            heard = next(codes)
            results.append(heard if isinstance(heard, str) else attempt(partial(self.embed, waveform, heard)))
        return results

    def open(self, utterance: Utterance, folder: Path) -> Waveform:
        """The recording as the models hear it; a MarsError says why they shall not."""
        check_text(utterance.text)
        waveform = read_recording(utterance, folder)
        check_signal(waveform, utterance, self.config.max_clipped_share)
        waveform = self.trim(waveform)
        if not self.config.min_seconds <= waveform.seconds <= self.config.max_seconds:
            raise DataError(
                f"{waveform.seconds:.2f} s of audio; kept are {self.config.min_seconds} to {self.config.max_seconds} s"
            )
        check_pace(utterance.text, waveform.seconds, self.config)
        if self.config.loudness_lufs is not None:
            waveform = audio.normalize_loudness(waveform, self.config.loudness_lufs)
        return waveform

    def trim(self, waveform: Waveform) -> Waveform:
        """Without what is to be cut off; DataError if too little of it is speech."""
        if self.config.trim is Trim.SILENCE:
            waveform = audio.trim_silence(waveform)
        if self.detector is None:
            return waveform
        probabilities = self.detector.probabilities(waveform)
        if (share := speech_share(probabilities)) < self.config.min_speech_share:
            raise DataError(f"{share:.0%} of it is speech; expected at least {self.config.min_speech_share:.0%}")
        return trim_to_speech(waveform, probabilities) if self.config.trim is Trim.NON_SPEECH else waveform

    def embed(self, waveform: Waveform, codes: Codes) -> Heard:
        """The two embeddings beside the codes; DataError if they are no numbers."""
        identity, style = self.ears.identity.embed(waveform), self.ears.style.embed(waveform)
        if not (np.isfinite(identity).all() and np.isfinite(style).all()):
            raise DataError("an embedding has values that are not numbers")
        return Heard(codes, identity, style)


def attempt(act: Callable[[], Result]) -> Result | str:
    """The act's result, or in words why there is none.

    One recording in ten million can break a decoder or a network in a way nobody foresaw. It is named and left out; a
    machine that breaks all of them is noticed by the share of rejects.
    """
    try:
        return act()
    except MarsError as error:
        return str(error)
    except Exception as error:
        return f"unforeseen {type(error).__name__}: {str(error)[:300]}"


def encode_all(codec: Codec, waveforms: Sequence[Waveform]) -> list[Codes | str]:
    """Codes of each, or why there are none: in batches where the codec can, and one by one where a batch fails."""
    encode_batch = getattr(codec, "encode_batch", None)
    if encode_batch is not None and waveforms:
        together = attempt(partial(encode_batch, waveforms))
        if not isinstance(together, str):
            return list(together)
    return [attempt(partial(codec.encode, waveform)) for waveform in waveforms]


def check_text(text: str) -> None:
    """DataError unless there is something to be said."""
    if not text.strip():
        raise DataError("the text is empty")
    if not (HAS_LETTER.search(text) or normalize(text).strip()):  # normalising is dear, and letters are always spoken
        raise DataError(f"nothing in the text can be spoken: {text[:60]!r}")


def check_signal(waveform: Waveform, utterance: Utterance, max_clipped_share: float) -> None:
    """DataError if it is silent, clipped, or narrower than the manifest says."""
    if not waveform.samples.any():
        raise DataError("the audio is digital silence")
    if waveform.sample_rate < utterance.source_rate:
        raise DataError(
            f"wrong rate: the manifest promises the bandwidth of {utterance.source_rate} Hz, but the file has "
            f"{waveform.sample_rate} Hz"
        )
    clipped = float((np.abs(waveform.samples) >= CLIPPED).mean())
    if clipped > max_clipped_share:
        raise DataError(f"{clipped:.2%} of the samples are clipped; allowed are {max_clipped_share:.2%}")


def check_pace(text: str, seconds: float, config: ListeningConfig) -> None:
    """DataError if nobody reads that many characters in that time, or so few."""
    pace = len(text.strip()) / seconds
    highest = config.max_characters_per_second
    if pace < config.min_characters_per_second or (highest is not None and pace > highest):
        raise DataError(
            f"{pace:.1f} characters a second: text and audio do not fit; kept are {config.min_characters_per_second:g} "
            f"to {'any' if highest is None else f'{highest:g}'}"
        )
