"""Timbre embeddings in training: of a segment or of its whole recording, at times none, and frequency warp.

Upstream: references of `segments` and `generated_codes`; `frozen` (the speaker encoder).  Downstream: `takes`, `task`.
Shapes: B batch · N samples · S size of speaker embeddings · V size of timbre embeddings.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from marstts.codec.mini_model import MiniCodecModel
from marstts.errors import ConfigError
from marstts_lab.training.codec.config import CodecTrainingConfig, TimbreSpeakerConfig
from marstts_lab.training.codec.frozen import FrozenNetworks
from marstts_lab.training.codec.recordings import Recording, SpeakerTargets


class TimbreSpeaker:
    """The speaker embeddings that timbre embeddings depend on."""

    def __init__(self, config: TimbreSpeakerConfig, size: int, targets: SpeakerTargets) -> None:
        """ConfigError where the encoder has embeddings of another `size`."""
        found = targets.encoder.encoder.config.size
        if found != size:
            raise ConfigError(
                f"{config.encoder}: this encoder has embeddings of length {found}; set "
                f"model.timbre_speaker_size to that, not to {size}"
            )
        self.whole_ratio, self.targets = config.whole_ratio, targets

    @torch.no_grad()
    def embeddings(self, reference: Tensor, recordings: Sequence[Recording]) -> Tensor:
        """Embeddings (B, S) of segments (B, N), or of their whole recordings."""
        segments = self.targets.encoder.embed(reference)
        is_whole = torch.rand(len(reference), 1, device=reference.device) < self.whole_ratio
        if not is_whole.any():
            return segments
        return torch.where(is_whole, self.targets.embeddings(recordings), segments)


class Timbre:
    """What the decoder is conditioned on, and what the encoder reads instead of the recording as it is."""

    def __init__(self, config: CodecTrainingConfig, model: MiniCodecModel, networks: FrozenNetworks) -> None:
        self.config, self.model = config, model
        speaker, size = config.timbre_speaker, config.model.timbre_speaker_size
        self.speaker = None if speaker is None else TimbreSpeaker(speaker, size, networks.targets(speaker.encoder))

    @staticmethod
    def complaints(config: CodecTrainingConfig) -> Iterator[str]:
        """Where options of timbre lack what they need."""
        if config.frequency_warp and not config.model.timbre_width:
            yield "frequency_warp needs a timbre embedding: set model.timbre_width"
        if config.timbre_spread > 1 and (not config.model.timbre_width or config.freeze_timbre):
            yield "timbre_spread needs a timbre embedding that is trained: set model.timbre_width, drop freeze_timbre"
        if bool(config.timbre_speaker) != bool(config.model.timbre_speaker_size):
            yield (
                "model.timbre_speaker_size needs [timbre_speaker] with the folder of that encoder, and the other way "
                "round"
            )

    def speaker_embeddings(self, reference: Tensor, recordings: Sequence[Recording]) -> Tensor | None:
        """(B, S) of references (B, N) of B recordings; None where timbre depends on no speaker encoder."""
        return None if self.speaker is None else self.speaker.embeddings(reference, recordings)

    def of(self, reference: Tensor, recordings: Sequence[Recording] = ()) -> Tensor | None:
        """reference (B, N) of B recordings -> timbre embeddings (B, V); None for a codec without them."""
        return self.model.timbre_of(reference, self.speaker_embeddings(reference, recordings))

    def with_dropout(self, reference: Tensor, recordings: Sequence[Recording] = ()) -> Tensor | None:
        """`of`, with random rows zero."""
        timbre = self.of(reference, recordings)
        if timbre is None:
            return None
        return timbre * (torch.rand(len(timbre), 1, device=timbre.device) >= self.config.timbre_dropout)

    def frequency_factors(self, timbre: Tensor | None) -> Tensor | None:
        """Random factors (B,) of the frequencies that the encoder reads; 1 for rows without a timbre embedding."""
        warp = self.config.frequency_warp
        if warp is None or timbre is None:
            return None
        low, high = np.log(warp.factors)
        drawn = torch.exp(low + (high - low) * torch.rand(len(timbre), device=timbre.device))
        moved = torch.rand(len(timbre), device=timbre.device) < warp.probability
        return torch.where(moved & timbre.any(dim=1), drawn, torch.ones_like(drawn))
