"""Codecs by name: from a name in a bundle or on the command line to a description and to the codec itself.

Upstream: `bundle`, the command line.  Downstream: the codecs of this package.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, model_validator

from marstts.codec import snac
from marstts.codec.base import MAX_HOP, Codec, check_levels
from marstts.codec.mini import MiniCodec
from marstts.codec.toy import ToyCodec
from marstts.errors import ConfigError, require
from marstts.io.config import Config
from marstts.weights.pretrained import MiniPart, PublishedPart, toy_size

TOY_CODEBOOK_SIZE = 64


class SnacPart(PublishedPart):
    """SNAC 24 kHz."""

    kind: Literal["snac"] = "snac"
    source: str = "hubertsiuzdak/snac_24khz"


class ToyCodecPart(Config):
    """Sine waves as speech, for tests."""

    kind: Literal["toy"] = "toy"
    codebook_size: int = Field(4096, ge=4, le=2**16)
    hop_lengths: tuple[Annotated[int, Field(ge=1, le=MAX_HOP)], ...] = Field(
        (2048, 1024, 512), min_length=1, max_length=16
    )
    sample_rate: int = Field(24_000, ge=1000, le=192_000)

    @model_validator(mode="after")
    def _hops_nest(self) -> ToyCodecPart:
        check_levels(self.hop_lengths)
        return self


class EncodecPart(PublishedPart):
    """EnCodec 24 kHz, decoded by Vocos."""

    kind: Literal["encodec"] = "encodec"
    source: str = "facebook/encodec_24khz"

    vocoder: str = "charactr/vocos-encodec-24khz"
    """Vocos' weights: a file, a folder or a name on the hub."""

    vocoder_sha256: str | None = None
    """Refuse any other weights of Vocos."""


CodecPart = MiniPart | SnacPart | EncodecPart | ToyCodecPart


def parse_codec(name: str) -> Path | CodecPart:
    """Describe a codec by its name: "snac", "encodec", "toy", "toy:CODES", or the folder of an exported codec."""
    if name == "snac":
        return SnacPart()
    if name == "encodec":
        return EncodecPart()
    size = toy_size(name, TOY_CODEBOOK_SIZE)
    if size is not None:
        return ToyCodecPart(codebook_size=size)
    if not Path(name).is_dir():
        raise ConfigError(f"codec {name!r}: expected snac, encodec, toy, toy:CODES, or the folder of an exported codec")
    return Path(name)


def open_codec(codec: str | Path | CodecPart, folder: Path | None = None, device: str = "cpu") -> Codec:
    """Open a codec by its name, its folder, or its description in a bundle.

    `folder` is where the bundle keeps a codec of kind mini. `device` is PyTorch's name.
    Raises ConfigError for an unknown name, CheckpointError for a corrupt folder.
    """
    part = parse_codec(codec) if isinstance(codec, str) else codec
    match part:
        case Path():
            return MiniCodec(part)
        case MiniPart():
            assert folder is not None, "a codec of kind mini has a folder"
            return MiniCodec(folder)
        case SnacPart():
            return snac.SnacCodec(part.source, sha256=part.sha256, device=device)
        case EncodecPart():
            return open_encodec(part, device)
        case ToyCodecPart():
            return ToyCodec(part.codebook_size, part.hop_lengths, part.sample_rate)


def open_encodec(part: EncodecPart, device: str) -> Codec:
    """EnCodec and Vocos; MissingExtraError without PyTorch."""
    require("torch", "released")
    from marstts.codec.encodec import EncodecEncoder, EncodecVocos
    from marstts.codec.vocos import VocosVocoder

    encoder = EncodecEncoder(part.source, sha256=part.sha256, device=device)
    return EncodecVocos(encoder, VocosVocoder(part.vocoder, sha256=part.vocoder_sha256, device=device))
