"""Codes that a model generated, as a second input in the training of the codec's decoder.

Upstream: folders of mined takes (`data.mined_takes`, written by `marstts preference mine`), and the recordings whose
voices they have.  Downstream: `task`.
Generated codes are less like the speaker than those of a recording. The decoder, which knows the speaker from the
timbre embedding, can correct that. No recording of these codes exists, so speaker consistency is the only loss.
Not in the papers.
Shapes: B batch · N samples · T codes of a level.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor

from marstts.codec.base import Codes
from marstts.codec.mini import MiniCodecConfig
from marstts.errors import AudioError, DataError
from marstts.io.config import Config
from marstts_lab.data.held_out_people import refuse_test_people
from marstts_lab.data.mined_takes import TAKES_PATTERN, read_takes
from marstts_lab.training.bounds import Probability, Weight
from marstts_lab.training.codec.new_speakers import NewSpeakersConfig, speed_of
from marstts_lab.training.codec.recordings import MAX_RECORDING_SECONDS, Recording


class GeneratedCodesConfig(Config):
    """Takes of a model, decoded in the voices of the recordings that were their references."""

    takes: tuple[str, ...] = Field(min_length=1)
    """Folders of `marstts preference mine`; the first halves of their cycles are used."""

    batch_size: int = Field(4, gt=0, le=2**14)
    weight: Weight = 1.0
    """Weight of the speaker consistency loss of generated codes."""

    swap_ratio: Probability = 0.0
    """Ratio of takes that are decoded in the voice of another speaker's reference."""

    former: str = ""
    """Run or folder of the codec whose output the takes are held to, e.g. the one that the stage begins with."""

    spectral_weight: Weight = 0.0
    """Weight of the spectral distance to the former codec's output, of takes in their own voices."""

    recognizer_weight: Weight = 0.0
    """Weight of the recognizer loss with the former codec's output, in all voices: it keeps the words."""


class GeneratedBatch(NamedTuple):
    """Generated codes and two segments of the recording whose voice they should have."""

    codes: list[Tensor]
    """Per level, coarse to fine, (B, T)."""

    reference: Tensor
    """(B, N), for the timbre embedding."""

    target: Tensor
    """(B, N), another segment where the recording is long enough, for the identity embedding."""

    own_reference: Tensor
    """(B, N), of the recording that the take was generated for, in whose voice the former codec decodes it."""

    is_own: Tensor
    """(B,), True where that is the same recording."""

    recordings: tuple[Recording, ...]
    """B, those of `reference`."""

    own_recordings: tuple[Recording, ...]
    """B, those of `own_reference`."""

    people: tuple[tuple[Recording, ...], ...]
    """B, all recordings of the speakers of `reference`."""

    def to(self, device: torch.device) -> GeneratedBatch:
        """The same batch on a device."""
        tensors = {name: getattr(self, name).to(device) for name in ("reference", "target", "own_reference", "is_own")}
        return self._replace(codes=[level.to(device) for level in self.codes], **tensors)


@dataclass(frozen=True)
class GeneratedTake:
    """The codes of a take, and the recording whose voice it has."""

    codes: Codes
    recording: Path
    speaker: str

    speed: float = 1.0
    """Factor of speed of the recording, where its voice is that of a new speaker."""

    @property
    def voice(self) -> Recording:
        """The recording whose voice it has."""
        return Recording(self.recording, speed=self.speed)


class GeneratedCodes:
    """Segments of takes; `train(step)` depends on seed and step alone."""

    def __init__(
        self,
        config: GeneratedCodesConfig,
        model: MiniCodecConfig,
        num_patches: int,
        seed: int,
        new_speakers: NewSpeakersConfig | None = None,
    ) -> None:
        """`num_patches`: length of a segment. DataError where no take of the folders is as long."""
        self.config, self.model, self.num_patches, self.seed = config, model, num_patches, seed
        self.new_speakers = new_speakers
        self.takes = [take for folder in config.takes for take in self.read(Path(folder))]
        refuse_test_people(((take.speaker, (str(take.recording),)) for take in self.takes), ", ".join(config.takes))
        if not self.takes:
            raise DataError(
                f"{', '.join(config.takes)}: expected takes of at least {num_patches} patches, written by "
                "`marstts preference mine`, but there is none; mine longer texts, or lower segment_patches"
            )
        counts = Counter(take.speaker for take in self.takes)
        weights = np.array([1 / counts[take.speaker] for take in self.takes])
        self.cumulative_weights = np.cumsum(weights / weights.sum())
        recordings: dict[str, dict[Recording, None]] = {}  # in the order of the takes, each once
        for take in self.takes:
            recordings.setdefault(take.speaker, {})[Recording(take.recording)] = None
        self.people = {speaker: tuple(found) for speaker, found in recordings.items()}
        if config.swap_ratio and len(self.people) < 2:
            raise DataError(f"{', '.join(config.takes)}: swap_ratio needs takes of two speakers or more, not of one")

    def read(self, folder: Path) -> list[GeneratedTake]:
        """The takes of a folder that are long enough."""
        takes = []
        for path in sorted(folder.glob(TAKES_PATTERN)):
            for take in read_takes(path):
                if take.forward is not None and len(take.forward.codes[0]) >= self.num_patches * self.layout[0]:
                    self.check(take.forward.codes, path)
                    takes.append(GeneratedTake(take.forward.codes, take.plan.audio, take.plan.speaker))
        return takes

    @property
    def layout(self) -> tuple[int, ...]:
        """Codes of each level in a patch."""
        return tuple(self.model.strides[0] // stride for stride in self.model.strides)

    def check(self, codes: Codes, path: Path) -> None:
        """DataError where a take does not have the levels and the codebooks of this codec."""
        highest = max(int(level.max()) for level in codes)
        if len(codes) != len(self.layout) or highest >= self.model.codebook_size:
            raise DataError(
                f"{path}: these takes have codes up to {highest} on {len(codes)} levels, but the codec has "
                f"{len(self.layout)} levels of {self.model.codebook_size} codes; mine takes of a model with this codec"
            )

    def train(self, step: int) -> GeneratedBatch:
        """Segments of a step, every speaker equally often."""
        rng = np.random.default_rng((self.seed, step, 1))
        takes = [self.draw(position) for position in rng.uniform(size=self.config.batch_size)]
        rows = [self.row(take, rng) for take in takes]
        voices, references = list(takes), [(reference, target) for _, reference, target in rows]
        for number, take in enumerate(takes):
            if self.config.swap_ratio and rng.uniform() < self.config.swap_ratio:
                voices[number] = self.other(take, rng)
                _, other_reference, other_target = self.row(voices[number], rng)
                references[number] = other_reference, other_target
        codes = [torch.from_numpy(np.stack(level)) for level in zip(*(codes for codes, _, _ in rows), strict=True)]
        reference, target = (torch.from_numpy(np.stack(parts)) for parts in zip(*references, strict=True))
        return GeneratedBatch(
            codes, reference, target, torch.from_numpy(np.stack([own for _, own, _ in rows])),
            is_own=torch.tensor([voice is take for voice, take in zip(voices, takes, strict=True)]),
            recordings=tuple(voice.voice for voice in voices),
            own_recordings=tuple(take.voice for take in takes),
            people=tuple(
                tuple(one._replace(speed=voice.speed) for one in self.people[voice.speaker]) for voice in voices
            ),
        )  # fmt: skip

    def other(self, take: GeneratedTake, rng: np.random.Generator) -> GeneratedTake:
        """A take of another speaker, at times with the voice of a new one."""
        voice = take
        while voice.speaker == take.speaker:
            voice = self.draw(float(rng.uniform()))
        new = self.new_speakers
        if new is not None and rng.uniform() < new.take_ratio:
            voice = replace(voice, speed=speed_of(voice.speaker, new))
        return voice

    def draw(self, position: float) -> GeneratedTake:
        """A take for a number from 0 to 1, every speaker equally often."""
        index = np.searchsorted(self.cumulative_weights, position * self.cumulative_weights[-1], side="right")
        return self.takes[int(index)]

    def row(
        self, take: GeneratedTake, rng: np.random.Generator
    ) -> tuple[list[NDArray[np.int64]], NDArray[np.float32], NDArray[np.float32]]:
        """Codes of a random segment, and two segments of the recording, from both of its ends."""
        first = int(rng.integers(len(take.codes[0]) // self.layout[0] - self.num_patches + 1))
        codes = [
            level[first * size : (first + self.num_patches) * size]
            for level, size in zip(take.codes, self.layout, strict=True)
        ]
        try:
            samples = take.voice.read(self.model.sample_rate, MAX_RECORDING_SECONDS)
        except AudioError as error:
            raise DataError(f"{error}; it is the reference of a take in {', '.join(self.config.takes)}") from error
        position = float(rng.uniform())
        return codes, self.segment(samples, position), self.segment(samples, 1 - position)

    def segment(self, samples: NDArray[np.float32], position: float) -> NDArray[np.float32]:
        """N samples, the first possible ones for position 0, the last for 1; silence after a shorter recording."""
        length = self.num_patches * self.model.hop_lengths[0]
        start = int(position * max(0, len(samples) - length))
        segment = samples[start : start + length]
        return np.pad(segment, (0, length - len(segment)))
