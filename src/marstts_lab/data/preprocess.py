"""Preprocessing of one utterance: decode, check, normalize loudness, then codes and embeddings.

Upstream: `data.manifest`, a `Codec`, a `SpeakerEncoder` per role.  Downstream: `data.tokenize`, which writes shards.
Deviations: the paper does not state how its data was cleaned; here only what cannot be used is left out.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from marstts import audio
from marstts.audio import Waveform
from marstts.codec.base import Codec, Codes
from marstts.errors import DataError, MarsError
from marstts.io.config import Config
from marstts.speaker.base import SpeakerEncoder, encoder_input
from marstts.text.normalize import normalize
from marstts_lab.data.manifest import Utterance, read_recording
from marstts_lab.data.shards import EncoderInfo

Result = TypeVar("Result")

HAS_LETTER = re.compile("[A-Za-z]")

LENGTH_TOLERANCE_SECONDS, LENGTH_TOLERANCE_RATIO = 0.1, 0.02
"""A recording may differ this much from the manifest's `seconds` (the sum of both): encoders pad, manifests round."""

REFERENCES = "encoders see recordings as references"
"""Part of the signature of shards: embeddings of other shards are of recordings at their own rate and level."""


class PreprocessConfig(Config):
    """Preparation of recordings, and their lengths."""

    min_seconds: float = Field(0.3, ge=0.0, allow_inf_nan=False)
    """Shorter recordings are left out."""

    max_seconds: float = Field(30.0, gt=0.0, allow_inf_nan=False)
    """Longer recordings are left out."""

    loudness_lufs: float | None = Field(None, le=0.0, allow_inf_nan=False)
    """Target loudness of every recording; None leaves it unchanged."""

    batch_size: int = Field(16, gt=0)
    """Recordings that codec and speaker encoders process at a time. It changes the time it takes and nothing else."""

    @property
    def signature(self) -> list[str]:
        """The settings that the result depends on; options that are off are left out, so that new ones change none."""
        ignored = {"min_seconds", "max_seconds", "batch_size"}
        changed = {name: value for name, value in self.model_dump(mode="json", exclude=ignored).items()
                   if value != type(self).model_fields[name].get_default()}  # fmt: skip
        return [
            REFERENCES,
            f"{self.min_seconds} {self.max_seconds}",
            *(f"{name} {changed[name]}" for name in sorted(changed)),
        ]


@dataclass(frozen=True)
class Encoders:
    """The codec and the speaker encoders, by role, that encode an utterance."""

    codec: Codec
    speaker: Mapping[str, SpeakerEncoder]

    @property
    def infos(self) -> dict[str, EncoderInfo]:
        """Names and sizes of the speaker encoders by role, as shards keep them."""
        return {role: EncoderInfo(encoder.name, encoder.size) for role, encoder in self.speaker.items()}


@dataclass(frozen=True)
class EncodedUtterance:
    """One utterance as codes per level, and embeddings (E,) by role."""

    codes: Codes
    embeddings: Mapping[str, NDArray[np.float32]]


class UtteranceEncoder:
    """Encodes utterances by a configuration."""

    def __init__(self, encoders: Encoders, config: PreprocessConfig) -> None:
        self.encoders, self.config = encoders, config

    def encode_all(self, utterances: Sequence[Utterance], folder: Path) -> list[EncodedUtterance | str]:
        """Each utterance encoded, or the reason for rejecting it. Recordings of similar length share batches."""
        results: list[EncodedUtterance | str] = [""] * len(utterances)
        order = sorted(range(len(utterances)), key=lambda index: (utterances[index].seconds, index))
        for start in range(0, len(order), self.config.batch_size):
            batch = order[start : start + self.config.batch_size]
            for index, result in zip(batch, self.encode_batch([utterances[i] for i in batch], folder), strict=True):
                results[index] = result
        return results

    def encode_batch(self, utterances: Sequence[Utterance], folder: Path) -> list[EncodedUtterance | str]:
        """Each utterance encoded, or the reason for rejecting it; all are in memory at the same time."""
        opened = [try_or_reason(partial(self.open_both, utterance, folder)) for utterance in utterances]
        encoded = iter(self.encode_opened([pair for pair in opened if not isinstance(pair, str)]))
        return [pair if isinstance(pair, str) else next(encoded) for pair in opened]

    def open_both(self, utterance: Utterance, folder: Path) -> tuple[Waveform, Waveform]:
        """What the codec sees of a recording, and what the speaker encoders see: a reference, as in synthesis."""
        waveform = self.open(utterance, folder)
        return waveform, encoder_input(waveform, self.encoders.codec.spec.sample_rate)

    def encode_opened(self, pairs: Sequence[tuple[Waveform, Waveform]]) -> list[EncodedUtterance | str]:
        """Codes and embeddings of recordings from `open_both`, or the reason why there are none."""
        codec, speaker = self.encoders.codec, self.encoders.speaker
        waveforms, seen = ([pair[part] for pair in pairs] for part in (0, 1))
        codes = apply_together(codec.encode, getattr(codec, "encode_batch", None), waveforms)
        embeddings = {
            role: apply_together(encoder.embed, getattr(encoder, "embed_batch", None), seen)
            for role, encoder in speaker.items()
        }
        return [
            join_parts(one, {role: values[index] for role, values in embeddings.items()})
            for index, one in enumerate(codes)
        ]

    def open(self, utterance: Utterance, folder: Path) -> Waveform:
        """The preprocessed recording; raises a MarsError with the reason where it is rejected."""
        check_text(utterance.text)
        waveform = read_recording(utterance, folder)
        check_length(waveform.seconds, utterance)
        check_signal(waveform, utterance)
        if not self.config.min_seconds <= waveform.seconds <= self.config.max_seconds:
            raise DataError(
                f"{waveform.seconds:.2f} s of audio; kept are {self.config.min_seconds} to {self.config.max_seconds} s"
            )
        if self.config.loudness_lufs is not None:
            waveform = audio.normalize_loudness(waveform, self.config.loudness_lufs)
        return waveform


def join_parts(codes: Codes | str, embeddings: Mapping[str, NDArray[np.float32] | str]) -> EncodedUtterance | str:
    """The utterance of its codes and embeddings; the reason where one is missing, or not finite in float16."""
    if isinstance(codes, str):
        return codes
    vectors = {}
    for role, vector in embeddings.items():
        if isinstance(vector, str):
            return vector
        with np.errstate(over="ignore"):
            if not np.isfinite(vector.astype(np.float16)).all():
                return "an embedding has values that are not finite"
        vectors[role] = vector
    return EncodedUtterance(codes, vectors)


def try_or_reason(act: Callable[[], Result]) -> Result | str:
    """The result of `act`, or the reason why there is none.

    One recording in ten million can break a decoder or a network in an unforeseen way. It is named and left out; a
    machine that breaks all of them is noticed by the ratio of rejects.
    """
    try:
        return act()
    except MarsError as error:
        return str(error)
    except Exception as error:
        return f"unforeseen {type(error).__name__}: {str(error)[:300]}"


def apply_together(
    one: Callable[[Waveform], Result],
    batch: Callable[[Sequence[Waveform]], Sequence[Result]] | None,
    waveforms: Sequence[Waveform],
) -> list[Result | str]:
    """The result of each, or the reason why not: by `batch` where there is one, one by one where a batch fails."""
    if batch is not None and waveforms:
        together = try_or_reason(partial(batch, waveforms))
        if not isinstance(together, str):
            return list(together)
    return [try_or_reason(partial(one, waveform)) for waveform in waveforms]


def check_text(text: str) -> None:
    """DataError unless the text can be spoken."""
    if not text.strip():
        raise DataError("the text is empty")
    if not (HAS_LETTER.search(text) or normalize(text).strip()):  # normalizing is slow, and letters are always spoken
        raise DataError(f"nothing in the text can be spoken: {text[:60]!r}")


def check_length(seconds: float, utterance: Utterance) -> None:
    """DataError if the recording is not as long as its manifest states: it may be cut, and then lacks words."""
    tolerance = LENGTH_TOLERANCE_SECONDS + LENGTH_TOLERANCE_RATIO * utterance.seconds
    if abs(seconds - utterance.seconds) > tolerance:
        raise DataError(
            f"{seconds:.2f} s of audio, but the manifest states {utterance.seconds:.2f} s: the file is cut, or another "
            "one; prepare the corpus again"
        )


def check_signal(waveform: Waveform, utterance: Utterance) -> None:
    """DataError if it is silent, or has a lower sample rate than the manifest states."""
    if not waveform.samples.any():
        raise DataError("the audio is digital silence")
    if waveform.sample_rate < utterance.source_rate:
        raise DataError(
            f"wrong rate: the manifest states the bandwidth of {utterance.source_rate} Hz, but the file has "
            f"{waveform.sample_rate} Hz"
        )
