"""Takes of a model, decoded by the codec in training and by the former codec.

Upstream: `generated_codes`, `timbre`.  Downstream: `terms`, as a second output next to that for recordings.
Shapes: B batch · N samples.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from marstts.codec.mini_model import MiniCodecModel
from marstts.errors import ConfigError
from marstts_lab.training.codec.config import CodecTrainingConfig
from marstts_lab.training.codec.export import load_codec
from marstts_lab.training.codec.generated_codes import GeneratedBatch, GeneratedCodes, GeneratedCodesConfig
from marstts_lab.training.codec.timbre import Timbre

CODE_SIZES = ("sample_rate", "hop", "strides", "codebook_size")
"""What codecs with the same codes have in common."""


@dataclass(frozen=True)
class DecodedTakes:
    """Generated codes of a step, decoded."""

    batch: GeneratedBatch

    samples: Tensor
    """(B, N)."""

    former: Tensor | None
    """(B, N), what the former codec makes of them in their own voices, if there is one."""


class Takes:
    """The takes of each step, decoded; those in their own voices with the F0 of the former codec, if there is one."""

    def __init__(
        self,
        takes: GeneratedCodesConfig,
        config: CodecTrainingConfig,
        model: MiniCodecModel,
        timbre: Timbre,
        device: torch.device,
    ) -> None:
        self.model, self.timbre, self.device = model, timbre, device
        self.codes = GeneratedCodes(takes, config.model, config.segment_patches, config.loop.seed, config.new_speakers)
        self.former = open_former(takes.former, config, device) if takes.former else None

    def decode(self, step: int) -> DecodedTakes:
        """The takes of a step."""
        batch = self.codes.train(step).to(self.device)
        former = pitch = None
        if self.former is not None:
            with torch.no_grad():
                speaker = None
                if self.former.timbre_speaker is not None:
                    speaker = self.timbre.speaker_embeddings(batch.own_reference, batch.own_recordings)
                timbre = self.former.timbre_of(batch.own_reference, speaker)
                pitch = self.former.predict_pitch(batch.codes, timbre)
                former = self.former.decode(batch.codes, timbre, pitch).float()
                pitch = pitch * batch.is_own[:, None]
        timbre = self.timbre.of(batch.reference, batch.recordings)
        return DecodedTakes(batch, self.model.decode(batch.codes, timbre, pitch), former)


def open_former(folder: str, config: CodecTrainingConfig, device: torch.device) -> MiniCodecModel:
    """The codec whose output the takes are held to; ConfigError where it does not have the same codes."""
    former = load_codec(Path(folder)).to(device).eval().requires_grad_(False)
    sizes = {name: getattr(config.model, name) for name in CODE_SIZES}
    if {name: getattr(former.config, name) for name in CODE_SIZES} != sizes:
        raise ConfigError(f"{folder}: the former codec has other codes; expected {sizes}")
    if former.config.timbre_speaker_size not in (0, config.model.timbre_speaker_size):
        raise ConfigError(f"{folder}: the former codec's timbre depends on another speaker encoder")
    return former
