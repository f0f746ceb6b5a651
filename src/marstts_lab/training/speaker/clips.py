"""The recordings of a speaker encoder's training, in memory as log-mels.

Upstream: manifests of recordings with speakers and styles.  Downstream: `task`.
Shapes: N samples · W VTLP factors · M mel bands · T frames.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from marstts import audio
from marstts.audio.spectral import LOG_FLOOR, magnitude_spectrogram
from marstts.errors import AudioError, DataError
from marstts.speaker.mini import MiniEncoderConfig
from marstts_lab.data.manifest import Utterance, read_for_training
from marstts_lab.training.run_log import CorruptFileLog
from marstts_lab.training.speaker.augmentation import vtlp_filterbank
from marstts_lab.training.speaker.config import EncoderKind, SpeakerTrainingConfig
from marstts_lab.training.speaker.losses import f0_level, measure_attributes, relative_to_speaker

NEUTRAL_STYLE = "regular"


@dataclass(frozen=True)
class Clip:
    """A recording in memory."""

    utterance: Utterance
    mels: NDArray[np.float16]
    """(W, M, T) log-mels at each of W VTLP factors; they are smaller than samples, and never change."""

    attributes: tuple[float, ...]
    """Style attributes; empty for identity."""


def read_corpora(
    manifests: Sequence[Path], config: SpeakerTrainingConfig, corrupt: Path | None = None
) -> tuple[list[Clip], list[list[Clip]]]:
    """Clips to train on, at most `config.max_hours`, and those of the held-out speakers of each corpus.

    Held out are speakers without clips in `train`. Recordings that cannot be read are skipped, and listed in `corrupt`;
    DataError where they are too many, or a corpus has too few speakers.
    """
    utterances = [read_absolute(manifest) for manifest in manifests]
    known = [utterance for corpus in utterances for utterance in corpus if utterance.split == "train"]
    held_out = [held_out_speakers(manifest, corpus) for manifest, corpus in zip(manifests, utterances, strict=True)]
    used = within_hours(known, config.max_hours)
    log = CorruptFileLog(len(used) + sum(map(len, held_out)), config.max_corrupt_ratio, corrupt)

    def clips(some: list[Utterance], vtlp_factors: tuple[float, ...]) -> Iterator[Clip]:
        for utterance in some:
            try:
                yield read_clip(utterance, config, vtlp_factors)
            except AudioError as error:
                log.skip(utterance, error)

    return list(clips(used, config.vtlp_factors)), [list(clips(each, (1.0,))) for each in held_out]


def read_absolute(manifest: Path) -> list[Utterance]:
    """The utterances of a manifest, with absolute paths of their recordings."""
    return [replace(u, audio=str((manifest.parent / u.audio).absolute())) for u in read_for_training(manifest)]


def held_out_speakers(manifest: Path, utterances: list[Utterance]) -> list[Utterance]:
    """The utterances of speakers without training utterances; DataError where speakers of either kind are too few."""
    known = {utterance.speaker for utterance in utterances if utterance.split == "train"}
    held_out = [u for u in utterances if u.split != "train" and u.speaker not in known]
    if len(known) < 2 or len({utterance.speaker for utterance in held_out}) < 2:
        raise DataError(f"{manifest}: expected at least two training speakers, and two others in validation or test")
    return held_out


def read_clip(utterance: Utterance, config: SpeakerTrainingConfig, vtlp_factors: tuple[float, ...]) -> Clip:
    """The recording of an utterance as log-mels at each of the VTLP factors."""
    path = Path(utterance.audio)
    if utterance.start is None:
        waveform = audio.read(path)
    else:
        waveform = audio.read_span(path, utterance.start, utterance.seconds)
    samples = audio.resample(waveform, config.model.sample_rate).samples
    magnitudes = magnitude_spectrogram(samples, config.model.fft_size, config.model.hop)
    mels = np.stack([vtlp_filterbank(config.model, factor) @ magnitudes for factor in vtlp_factors])
    is_style = config.kind is EncoderKind.STYLE
    attributes = measure_attributes(samples, utterance.text, config.model.sample_rate) if is_style else ()
    return Clip(utterance, np.log(np.maximum(mels, LOG_FLOOR)).astype(np.float16), attributes)


def within_hours(utterances: list[Utterance], hours: float) -> list[Utterance]:
    """The first `hours` of the utterances in an order by the hash of their ids, which later additions do not change."""
    shuffled = sorted(utterances, key=lambda utterance: hashlib.sha256(utterance.id.encode()).digest())
    totals = np.cumsum([utterance.seconds for utterance in shuffled])
    return [utterance for utterance, total in zip(shuffled, totals, strict=True) if total <= hours * 3600]


def num_frames(seconds: float, model: MiniEncoderConfig) -> int:
    """Spectral frames in this many seconds."""
    return int(seconds * model.sample_rate / model.hop)


def crop(mels: NDArray[np.float16], frames: int, position: float) -> NDArray[np.float16]:
    """(M, T) -> (M, frames), repeated if too short; `position` is 0 for the first possible start, 1 for the last."""
    if mels.shape[1] < frames:
        mels = np.tile(mels, (1, -(-frames // mels.shape[1])))
    start = int(position * (mels.shape[1] - frames))
    return mels[:, start : start + frames]


def target_attributes(clips: list[Clip]) -> NDArray[np.float32]:
    """(clips, 6), the values of `style_attributes.TARGETS`; nan = unknown."""
    measured = np.array([clip.attributes for clip in clips])
    speakers = np.array([clip.utterance.speaker for clip in clips])
    neutral = np.array([clip.utterance.style == NEUTRAL_STYLE for clip in clips])
    return np.concatenate([relative_to_speaker(measured, speakers, neutral), f0_level(measured)], axis=1)
