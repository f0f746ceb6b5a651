"""Speaker encoders by name: what a bundle or a command line calls an encoder, as a description and as the encoder.

Upstream: `bundle`, the command line.  Downstream: the encoders of this package.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field

from marstts.errors import ConfigError
from marstts.io.config import Config
from marstts.speaker import clap, wavlm
from marstts.speaker.base import SpeakerEncoder
from marstts.speaker.mini import MiniSpeakerEncoder
from marstts.speaker.toy import ToySpeakerEncoder
from marstts.weights.pretrained import MiniPart, PublishedPart, toy_size

TOY_SIZE = 64


class WavLmPart(PublishedPart):
    """WavLM with a speaker verification head, for identity."""

    kind: Literal["wavlm"] = "wavlm"
    source: str = "microsoft/wavlm-base-plus-sv"


class ClapPart(PublishedPart):
    """MS-CLAP, for style."""

    kind: Literal["clap"] = "clap"
    source: str = "microsoft/msclap"


class ToyEncoderPart(Config):
    """Statistics of a spectrogram, for tests."""

    kind: Literal["toy"] = "toy"
    size: int = Field(gt=0, le=2**16)


EncoderPart = MiniPart | WavLmPart | ClapPart | ToyEncoderPart


def parse_encoder(name: str, role: str) -> Path | EncoderPart:
    """Describe an encoder by its name: "wavlm", "clap", "toy", "toy:SIZE", or the folder of an exported encoder."""
    if name == "wavlm":
        return WavLmPart()
    if name == "clap":
        return ClapPart()
    size = toy_size(name, TOY_SIZE)
    if size is not None:
        return ToyEncoderPart(size=size)
    if not Path(name).is_dir():
        raise ConfigError(
            f"{role} encoder {name!r}: expected wavlm, clap, toy, toy:SIZE, or the folder of an exported encoder"
        )
    return Path(name)


def open_encoder(
    encoder: str | Path | EncoderPart, role: str, folder: Path | None = None, device: str = "cpu"
) -> SpeakerEncoder:
    """Open the encoder of a role by its name, its folder, or its description in a bundle.

    `folder` is where the bundle keeps an encoder of kind mini. `device` is PyTorch's name.
    Raises ConfigError for an unknown name, CheckpointError for a corrupt folder.
    """
    part = parse_encoder(encoder, role) if isinstance(encoder, str) else encoder
    match part:
        case Path():
            return MiniSpeakerEncoder(part)
        case MiniPart():
            assert folder is not None, "an encoder of kind mini has a folder"
            return MiniSpeakerEncoder(folder)
        case WavLmPart():
            return wavlm.WavLmEncoder(part.source, sha256=part.sha256, device=device)
        case ClapPart():
            return clap.ClapEncoder(part.source, sha256=part.sha256, device=device)
        case ToyEncoderPart():
            return ToySpeakerEncoder(role, part.size)
