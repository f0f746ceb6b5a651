"""Training segments of the codec: random crops of the recordings of one or several corpora.

Upstream: manifests with their recordings and `f0.jsonl`.
Downstream: `task`.
Shapes: B segments · N samples · L latents · F spectral frames.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from marstts import audio
from marstts.errors import AudioError, ConfigError, DataError
from marstts_lab.data.manifest import Utterance, read_for_training
from marstts_lab.training.codec.augmentation import augment_waveform
from marstts_lab.training.codec.config import CodecTrainingConfig
from marstts_lab.training.codec.losses import f0_at, read_f0
from marstts_lab.training.codec.new_speakers import speed_of
from marstts_lab.training.codec.predicted_codes import PredictedCodes
from marstts_lab.training.codec.recordings import Recording, at_speed
from marstts_lab.training.run_log import CorruptFileLog

MAX_VALIDATION_SEGMENTS = 96
GAIN_DB = (-9.0, 6.0)
"""Random gain of training segments."""


class PredictedRows(NamedTuple):
    """Codes that replace those of some segments."""

    codes: list[Tensor]
    """Per level, coarse to fine, (B, T); zeros in rows without predicted codes."""

    is_predicted: Tensor
    """(B,) bool."""

    def to(self, device: torch.device) -> PredictedRows:
        """The same on a device."""
        return PredictedRows([level.to(device) for level in self.codes], self.is_predicted.to(device))


class SegmentBatch(NamedTuple):
    """Segments of recordings."""

    samples: Tensor
    """(B, N)."""

    around: Tensor
    """(B, N + context on either side), what the encoder reads: the codec's `context_patches` more, silence where the
    recording has none."""

    inside: Tensor
    """(B, L of `around`), 1 where the recording is, else 0."""

    f0: Tensor
    """(B, F) in Hertz, without gaps."""

    voiced: Tensor
    """(B, F), 1 where the recording is voiced, else 0."""

    reference: Tensor
    """(B, N), another segment of the same speaker; (B, 0) for a codec without timbre conditioning."""

    recordings: tuple[Recording, ...]
    """B, those of `reference`."""

    people: tuple[tuple[Recording, ...], ...]
    """B, all recordings of the speakers, in the styles and splits of the segments."""

    predicted: PredictedRows | None = None
    """The segments that are decoded from predicted codes; None where none is."""

    def to(self, device: torch.device) -> SegmentBatch:
        """The same batch on a device."""
        samples, around, inside, f0, voiced, reference = (tensor.to(device) for tensor in self[:6])
        predicted = None if self.predicted is None else self.predicted.to(device)
        return SegmentBatch(samples, around, inside, f0, voiced, reference, self.recordings, self.people, predicted)


class AudioSegment(NamedTuple):
    """One row of a batch."""

    samples: NDArray[np.float32]
    around: NDArray[np.float32]
    inside: NDArray[np.float32]
    f0: NDArray[np.float32]
    voiced: NDArray[np.float32]
    reference: NDArray[np.float32]
    recording: Recording
    person: tuple[Recording, ...]
    predicted: tuple[NDArray[np.int64], ...] | None = None


WeightedManifest = tuple[Path, float | None]
"""A corpus and its sampling weight relative to the others; None = the number of its recordings."""

Manifests = Path | Sequence[WeightedManifest]
"""One corpus, or several."""


def weighted_manifest(item: str) -> WeightedManifest:
    """Parse `FILE` or `FILE:WEIGHT`; ConfigError where the weight is not a positive number."""
    if Path(item).is_file() or ":" not in item:
        return Path(item), None
    name, _, weight = item.rpartition(":")
    try:
        value = float(weight)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise ConfigError(f"{item}: expected FILE or FILE:WEIGHT, with a positive number as the weight")
    return Path(name), value


@dataclass(frozen=True)
class SegmentSource:
    """A recording with its labels."""

    folder: Path
    utterance: Utterance
    f0: NDArray[np.float32]
    siblings: list[Utterance]
    """Recordings of the same speaker, style and split, itself included."""

    speed: float = 1.0
    """Factor of speed and of all frequencies, of a new speaker."""


class Segments:
    """The segments of one or several manifests; `train(step)` depends on seed and step alone."""

    def __init__(self, manifests: Manifests, config: CodecTrainingConfig, corrupt: Path | None = None) -> None:
        """`corrupt`: the file that lists recordings that cannot be used."""
        manifests = [(manifests, None)] if isinstance(manifests, Path) else manifests
        self.config, self.num_corpora = config, len(manifests)
        self.samples = config.segment_patches * config.model.hop_lengths[0]
        self.context = config.model.context_patches * config.model.hop_lengths[0]
        table = config.predicted_codes
        self.predicted = None if table is None else PredictedCodes(table, config.model)
        self.known: list[SegmentSource] = []
        self.held_out: list[tuple[int, SegmentSource]] = []
        weights: list[NDArray[np.float64]] = []
        for corpus, (manifest, weight) in enumerate(manifests):
            sources = self.read_sources(manifest)
            known = [source for source in sources if source.utterance.split == "train"]
            held_out = [source for source in sources if source.utterance.split == "validation"]
            self.check_enough(manifest, known, held_out)
            self.known += known
            self.held_out += [(corpus, source) for source in held_out[: MAX_VALIDATION_SEGMENTS // len(manifests)]]
            total = len(known) if weight is None else weight
            weights.append(sampling_weights(known, config.speaker_exponent) * total)
        self.cumulative_weights = np.cumsum(np.concatenate(weights))
        self.corrupt = CorruptFileLog(len(self.known) + len(self.held_out), config.max_corrupt_ratio, corrupt)

    def read_sources(self, manifest: Path) -> list[SegmentSource]:
        """The usable recordings of a corpus: long enough and with their F0."""
        config, folder = self.config, manifest.parent
        utterances = [u for u in read_for_training(manifest) if u.seconds * config.model.sample_rate > self.samples]
        f0 = read_f0(folder / config.f0.file)
        groups: dict[tuple[str, str, str], list[Utterance]] = {}
        for u in utterances:
            groups.setdefault((u.speaker, u.style, u.split), []).append(u)
        return [
            SegmentSource(folder, u, f0[u.id], groups[u.speaker, u.style, u.split]) for u in utterances if u.id in f0
        ]

    def check_enough(self, manifest: Path, known: Sequence[SegmentSource], held_out: Sequence[SegmentSource]) -> None:
        """DataError where a corpus has no recordings to train on or to validate with."""
        if not known or not held_out:
            raise DataError(
                f"{manifest}: needs training and validation recordings longer than {self.samples} samples, "
                f"with their F0 in {self.config.f0.file}"
            )

    def train(self, step: int) -> SegmentBatch:
        """Augmented segments of a step with random gains, each with a reference in the same acoustic conditions."""
        rng = np.random.default_rng((self.config.loop.seed, step))
        positions = rng.uniform(0, self.cumulative_weights[-1], size=self.config.batch_size)
        segments = []
        for index in np.searchsorted(self.cumulative_weights, positions, side="right"):
            segment = self.valid_segment(int(index), rng)
            gain = np.float32(10 ** (rng.uniform(*GAIN_DB) / 20))
            if segment.predicted is not None:  # its codes say how loud it is
                segments.append(segment)
                continue
            both = augment_waveform(
                np.concatenate([segment.around, segment.reference]) * gain, self.config.model.sample_rate,
                self.config.augmentation, rng,
            )  # fmt: skip
            around, reference = both[: len(segment.around)], both[len(segment.around) :]
            around = around / max(1.0, float(np.abs(around).max()))
            samples = around[self.context : self.context + self.samples]
            segments.append(segment._replace(samples=samples, around=around, reference=reference))
        return stack(segments)

    def validation(self) -> list[tuple[int, SegmentBatch]]:
        """Fixed batches from the middle of held-out recordings, without augmentation, and the index of their corpus."""
        batches: list[tuple[int, SegmentBatch]] = []
        for corpus in range(self.num_corpora):
            segments = []
            for source in (source for number, source in self.held_out if number == corpus):
                try:
                    segments.append(self.segment(source, 0.5, np.random.default_rng(0)))
                except AudioError as error:
                    self.corrupt.skip(source.utterance, error)
            size = self.config.batch_size
            batches += [(corpus, stack(segments[start : start + size])) for start in range(0, len(segments), size)]
        if not batches:
            raise DataError("none of the recordings for validation can be used")
        return batches

    def valid_segment(self, index: int, rng: np.random.Generator) -> AudioSegment:
        """A `segment` of the training recording with this index, or of the first one after it that can be used."""
        position, new = float(rng.uniform()), self.config.new_speakers
        is_new = new is not None and rng.uniform() < new.ratio
        for number in range(index, index + len(self.known)):
            source = self.known[number % len(self.known)]
            if is_new:
                source = self.at_new_speed(source)
            try:
                return self.segment(source, position, rng)
            except AudioError as error:
                self.corrupt.skip(source.utterance, error)
        raise DataError("none of the recordings for training can be used")

    def at_new_speed(self, source: SegmentSource) -> SegmentSource:
        """The recording as one of a new speaker; as it is where it would be shorter than a segment."""
        assert self.config.new_speakers is not None
        speed = speed_of(source.utterance.speaker, self.config.new_speakers)
        is_long_enough = source.utterance.seconds * self.config.model.sample_rate > speed * self.samples
        return replace(source, speed=speed) if is_long_enough else source

    def segment(self, source: SegmentSource, position: float, rng: np.random.Generator) -> AudioSegment:
        """One segment of a recording with its F0 and reference, read without decoding the rest.

        `position` is 0 for the first possible segment, 1 for the last. AudioError if it cannot be read.
        """
        utterance, model, speed = source.utterance, self.config.model, source.speed
        first = int(position * self.spare_samples(utterance, speed))
        predicted = self.predicted_codes(source, position, rng)
        if predicted is not None:
            first = predicted[0] * model.hop_lengths[0]
        around = self.read(recording_of(source.folder, utterance, speed), first, self.context)
        samples, latent = around[self.context : self.context + self.samples], model.hop_lengths[-1]
        middles = first - self.context + latent * (np.arange(len(around) // latent) + 0.5)
        inside = (middles >= 0) & (middles < utterance.seconds / speed * model.sample_rate)
        frames = (first + model.hop * (np.arange(self.samples // model.hop) + 0.5)) / model.sample_rate
        f0, voiced = f0_at(source.f0, frames * speed)
        reference, recording = self.reference(source, position, rng)
        person = tuple(recording_of(source.folder, sibling, speed) for sibling in source.siblings)
        return AudioSegment(
            samples, around, inside.astype(np.float32), f0 * np.float32(speed), voiced, reference, recording, person,
            None if predicted is None else predicted[1],
        )  # fmt: skip

    def predicted_codes(
        self, source: SegmentSource, position: float, rng: np.random.Generator
    ) -> tuple[int, tuple[NDArray[np.int64], ...]] | None:
        """Now and then the first patch of a segment and its predicted codes; None where its own codes are used."""
        table, count = self.config.predicted_codes, self.config.segment_patches
        if table is None or self.predicted is None or source.speed != 1 or source.utterance.split != "train":
            return None
        whole = self.spare_samples(source.utterance, 1.0) // self.config.model.hop_lengths[0]
        spare = min(self.predicted.num_patches(source.utterance.id) - count, whole)  # the last patch may be padded
        if rng.uniform() >= table.ratio or spare < 0:
            return None
        first = round(position * spare)
        return first, self.predicted.of(source.utterance.id, first, count)

    def reference(
        self, source: SegmentSource, position: float, rng: np.random.Generator
    ) -> tuple[NDArray[np.float32], Recording]:
        """A segment of another recording of the speaker, and which; without one, the other end of the same one."""
        if not self.config.model.timbre_width:
            return np.zeros(0, np.float32), recording_of(source.folder, source.utterance, source.speed)
        others = [u for u in source.siblings if u.id != source.utterance.id]
        utterance = others[int(rng.integers(len(others)))] if others else source.utterance
        where = float(rng.uniform()) if others else float(position < 0.5)
        recording = recording_of(source.folder, utterance, source.speed)
        return self.read(recording, int(where * self.spare_samples(utterance, source.speed))), recording

    def spare_samples(self, utterance: Utterance, speed: float) -> int:
        """Samples of a recording at a speed, at the codec's rate, beyond the length of a segment."""
        return max(0, round(utterance.seconds / speed * self.config.model.sample_rate) - self.samples)

    def read(self, recording: Recording, first: int, context: int = 0) -> NDArray[np.float32]:
        """A segment from sample `first` with `context` samples on either side, at the codec's rate.

        There is silence before the start of the recording and after its end.
        """
        rate, speed = self.config.model.sample_rate, recording.speed
        assert recording.seconds is not None
        missing = max(0, context - first)
        begin, length = first - context + missing, self.samples + 2 * context - missing
        total = max(first + self.samples, round(recording.seconds / speed * rate))
        start, seconds = recording.start + speed * begin / rate, speed * min(length, total - begin) / rate
        samples = at_speed(audio.read_span(recording.path, start, seconds), speed, rate)[:length]
        return np.pad(samples, (missing, length - len(samples)))


def sampling_weights(sources: Sequence[SegmentSource], exponent: float) -> NDArray[np.float64]:
    """Probability of every recording, with speakers of n recordings in proportion to n ** exponent."""
    counts = Counter(source.utterance.speaker for source in sources)
    weights = np.array([counts[source.utterance.speaker] ** (exponent - 1.0) for source in sources])
    return np.asarray(weights / weights.sum())


def stack(segments: Sequence[AudioSegment]) -> SegmentBatch:
    """Segments -> a batch."""
    samples, around, inside, f0, voiced, reference = (
        torch.from_numpy(np.stack(rows)) for rows in zip(*(segment[:6] for segment in segments), strict=True)
    )
    recordings = tuple(segment.recording for segment in segments)
    people = tuple(segment.person for segment in segments)
    predicted = predicted_rows(segments)
    return SegmentBatch(samples.float(), around, inside, f0, voiced, reference, recordings, people, predicted)


def predicted_rows(segments: Sequence[AudioSegment]) -> PredictedRows | None:
    """The predicted codes of segments, if any has some."""
    known = [segment.predicted for segment in segments if segment.predicted is not None]
    if not known:
        return None
    rows = [segment.predicted or tuple(np.zeros_like(level) for level in known[0]) for segment in segments]
    codes = [torch.from_numpy(np.stack(level)) for level in zip(*rows, strict=True)]
    return PredictedRows(codes, torch.tensor([segment.predicted is not None for segment in segments]))


def recording_of(folder: Path, utterance: Utterance, speed: float = 1.0) -> Recording:
    """The recording of an utterance, at a speed."""
    return Recording(folder / utterance.audio, utterance.start or 0.0, utterance.seconds, speed)
