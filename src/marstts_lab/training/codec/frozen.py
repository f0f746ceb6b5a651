"""Frozen networks that a codec's output is compared with, shared by the terms of the loss and by timbre embeddings.

Upstream: `losses`, `recognizer_loss`, `recordings`.  Downstream: `timbre`, `terms`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import torch
from torch import Tensor

from marstts.io.precision import autocast
from marstts_lab.training.codec.config import CodecTrainingConfig
from marstts_lab.training.codec.losses import SpeakerConsistencyLoss, SpeakerEmbedding, SpectralLoss
from marstts_lab.training.codec.recognizer_loss import RecognizerLoss
from marstts_lab.training.codec.recordings import Recording, SpeakerTargets


class FrozenNetworks:
    """Each is opened when it is first asked for. No random numbers are drawn for it: initial weights of what is trained
    do not depend on what it is compared with.
    """

    def __init__(self, config: CodecTrainingConfig, device: torch.device) -> None:
        self.config, self.device = config, device

    @cached_property
    def spectral(self) -> SpectralLoss:
        """The spectral distance of two waveforms."""
        return SpectralLoss(self.config.model.sample_rate).to(self.device)

    @cached_property
    def recognizer(self) -> RecognizerLoss:
        """The distance of two waveforms by the features of `[recognizer]`."""
        assert self.config.recognizer is not None
        with torch.random.fork_rng(devices=[]):
            return RecognizerLoss(self.config.recognizer, self.config.model.sample_rate).to(self.device)

    @cached_property
    def speaker(self) -> SpeakerConsistency:
        """Speaker consistency by the encoder of `[speaker_consistency]`."""
        return SpeakerConsistency(self.config, self.device)

    def targets(self, encoder: str) -> SpeakerTargets:
        """Targets of recordings by the speaker encoder of a folder; that of speaker consistency is shared."""
        consistency = self.config.speaker_consistency
        if consistency is not None and consistency.encoder == encoder:
            return self.speaker.targets
        with torch.random.fork_rng(devices=[]):
            embedding = SpeakerEmbedding(encoder, self.config.model.sample_rate).to(self.device)
        return SpeakerTargets(embedding, self.config.model.sample_rate, self.device)


class SpeakerConsistency:
    """Speaker consistency as it is configured: with a segment, or with the recordings of a person."""

    def __init__(self, config: CodecTrainingConfig, device: torch.device) -> None:
        assert config.speaker_consistency is not None
        self.config, self.precision, self.device = config.speaker_consistency, config.precision, device
        with torch.random.fork_rng(devices=[]):
            self.loss = SpeakerConsistencyLoss(self.config, config.model.sample_rate).to(device)
        self.targets = SpeakerTargets(self.loss, config.model.sample_rate, device)

    def __call__(self, output: Tensor, target: Tensor, people: Sequence[Sequence[Recording]]) -> Tensor:
        """Distance of output (B, N) from target (B, N), or from the means of the people's recordings."""
        with autocast(self.device.type, self.precision):
            wanted = self.wanted(target, people)
            return self.loss.distance(output, wanted, self.config.masked_bands)

    def wanted(self, target: Tensor, people: Sequence[Sequence[Recording]]) -> Tensor:
        """The embeddings (B, E) that an output should have."""
        if self.config.target_recordings:
            return self.targets.people(people, self.config.target_recordings)
        with torch.no_grad():
            return self.loss.embed(target)
