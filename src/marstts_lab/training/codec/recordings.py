"""What a frozen speaker encoder hears in whole recordings, computed once for each: embeddings and mean spectra.

Upstream: recordings of `segments` and `generated_codes`.  Downstream: `task`, as targets and as conditions.
A segment of two seconds says less of a speaker than a recording, and a recording less than all of a person.
Shapes: B rows · S embedding size · M bands.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from marstts import audio
from marstts.errors import AudioError, DataError
from marstts_lab.training.codec.envelope import envelope
from marstts_lab.training.codec.losses import SpeakerEmbedding

MAX_SECONDS = 8.5
"""Recordings are embedded up to here."""

MAX_RECORDING_SECONDS = 60.0
"""Files are read up to here."""


class Recording(NamedTuple):
    """A file, or a part of one."""

    path: Path
    start: float = 0.0
    seconds: float | None = None
    """None = to the end of the file."""

    speed: float = 1.0
    """Factor of speed and of all frequencies, of a new speaker (`new_speakers`)."""

    def read(self, sample_rate: int, max_seconds: float) -> NDArray[np.float32]:
        """Its samples (N,), as long as the recording or `max_seconds`; AudioError where it cannot be read."""
        if self.seconds is None:
            waveform = audio.read(self.path, max_seconds=MAX_RECORDING_SECONDS)
        else:
            waveform = audio.read_span(self.path, self.start, min(self.seconds, max_seconds * self.speed))
        return at_speed(waveform, self.speed, sample_rate)[: int(max_seconds * sample_rate)]


def at_speed(waveform: audio.Waveform, speed: float, sample_rate: int) -> NDArray[np.float32]:
    """The samples at another rate, faster by a factor, with all frequencies raised by it (speed perturbation)."""
    played = audio.Waveform(waveform.samples, round(speed * waveform.sample_rate))
    return audio.resample(played, sample_rate).samples


class SpeakerTarget(NamedTuple):
    """What a loss compares with: features of a recording."""

    embedding: Tensor
    """(S,) of unit length."""

    envelope: Tensor
    """(M,), see `envelope`."""


class SpeakerTargets:
    """Embeddings and mean spectra of recordings, computed when they are first asked for."""

    def __init__(self, encoder: SpeakerEmbedding, sample_rate: int, device: torch.device) -> None:
        self.encoder, self.sample_rate, self.device = encoder, sample_rate, device
        self.computed: dict[Recording, SpeakerTarget] = {}

    @torch.no_grad()
    def of(self, recording: Recording) -> SpeakerTarget:
        """The target of a recording; AudioError where it cannot be read."""
        if recording not in self.computed:
            samples = torch.from_numpy(recording.read(self.sample_rate, MAX_SECONDS))
            mel = self.encoder.log_mel(samples[None].to(self.device))
            self.computed[recording] = SpeakerTarget(self.encoder.encoder(mel)[0], envelope(mel)[0])
        return self.computed[recording]

    def embeddings(self, recordings: Sequence[Recording]) -> Tensor:
        """B recordings -> their embeddings (B, S); DataError where one cannot be read."""
        return torch.stack([self.known(recording).embedding for recording in recordings])

    def envelopes(self, recordings: Sequence[Recording]) -> Tensor:
        """B recordings -> their mean spectra (B, M); DataError where one cannot be read."""
        return torch.stack([self.known(recording).envelope for recording in recordings])

    def known(self, recording: Recording) -> SpeakerTarget:
        """The target of a recording of which a part was read before."""
        try:
            return self.of(recording)
        except AudioError as error:
            raise DataError(f"{error}; it is the reference of a take or of a segment") from error

    def people(self, people: Sequence[Sequence[Recording]], most: int) -> Tensor:
        """The recordings of B people -> the direction of the mean of at most `most` of them each, (B, S).

        Recordings that cannot be read are left out; DataError where none can be.
        """
        return torch.stack([self.person(recordings, most) for recordings in people])

    def person(self, recordings: Sequence[Recording], most: int) -> Tensor:
        """The direction of the mean of at most `most` recordings, (S,)."""
        found: list[Tensor] = []
        for recording in recordings:
            try:
                found.append(self.of(recording).embedding)
            except AudioError:
                continue
            if len(found) == most:
                break
        if not found:
            raise DataError(f"none of the recordings of a person can be read, such as {recordings[0].path}")
        return F.normalize(torch.stack(found).mean(dim=0), dim=0)
