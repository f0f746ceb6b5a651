"""The sizes of a MARS5: an autoregressive `CodecLM` and a non-autoregressive `ResidualTransformer`.

Defaults are the published English model's (github.com/Camb-ai/MARS5-TTS, 750M and 450M parameters).  Vocabularies have
no default: they come from the tokenizers.
"""

from __future__ import annotations

from pydantic import Field, model_validator

from marstts.io.config import Config

HEAD_SIZE = 64
"""Width of one attention head in every published stack."""

MAX_LAYERS = 256


class CodecLMConfig(Config):
    """Architecture of the AR. Shapes: B batch · T tokens · D width · V joint vocabulary · L levels."""

    text_vocab_size: int = Field(gt=0, le=2**20)
    """Ids of the text tokenizer, special tokens included; they come first in the joint vocabulary."""

    speech_vocab_size: int = Field(gt=0, le=2**20)
    """Ids of the speech tokenizer: codes, merges, special tokens."""

    width: int = Field(1536, gt=0, le=2**14)
    layers: int = Field(26, gt=0, le=MAX_LAYERS)
    heads: int = Field(24, gt=0, le=1024)

    head_size: int = Field(HEAD_SIZE, gt=0, le=2**10)
    """Width of a head of the decoder, whatever the model's width; even, for rotary positions."""

    feed_forward_width: int = Field(3584, gt=0, le=2**16)
    """Inner width of the decoder's SwiGLU layers, 7/3 of D."""

    window: int = Field(3000, gt=0, le=2**20)
    """Sliding window: position i attends to positions i - window to i."""

    speaker_layers: int = Field(2, gt=0, le=MAX_LAYERS)
    speaker_heads: int = Field(24, gt=0, le=1024)

    speaker_feed_forward_width: int = Field(4608, gt=0, le=2**16)
    """Inner width of the speaker encoder's layers, 3 D."""

    levels: int = Field(8, gt=0, le=64)
    """L, codec levels of the reference."""

    codebook_size: int = Field(1024, gt=0, le=2**16)
    """Codes per level; one more row of each table stands for padding."""

    @property
    def vocab_size(self) -> int:
        """V, text ids and then speech ids."""
        return self.text_vocab_size + self.speech_vocab_size

    @model_validator(mode="after")
    def _sizes_fit(self) -> CodecLMConfig:
        check_divisors(self.width, speaker_heads=self.speaker_heads, levels=self.levels)
        if self.head_size % 2:
            raise ValueError(f"head_size ({self.head_size}) must be even, for rotary positions")
        return self


class ResidualTransformerConfig(Config):
    """Architecture of the NAR. Shapes: B batch · S text tokens · T frames · D width · L levels · K classes."""

    text_vocab_size: int = Field(gt=0, le=2**20)
    """Rows of the text table; the published one has a row more than the text tokenizer has ids."""

    width: int = Field(1024, gt=0, le=2**14)
    heads: int = Field(16, gt=0, le=1024)
    encoder_layers: int = Field(8, gt=0, le=MAX_LAYERS)
    decoder_layers: int = Field(16, gt=0, le=MAX_LAYERS)
    speaker_layers: int = Field(3, gt=0, le=MAX_LAYERS)

    feed_forward_width: int = Field(3072, gt=0, le=2**16)
    """Inner width of all layers, 3 D."""

    timestep_width: int = Field(1024, gt=0, le=2**14)
    """Width of the sinusoids of a timestep."""

    levels: int = Field(8, gt=0, le=64)
    codebook_size: int = Field(1024, gt=0, le=2**16)

    @property
    def num_classes(self) -> int:
        """K: the codes, and padding."""
        return self.codebook_size + 1

    @property
    def padding(self) -> int:
        """The class that stands for padding, last of all."""
        return self.codebook_size

    @model_validator(mode="after")
    def _sizes_fit(self) -> ResidualTransformerConfig:
        check_divisors(self.width, heads=self.heads, levels=self.levels)
        if self.timestep_width % 2:
            raise ValueError(f"timestep_width ({self.timestep_width}) must be even, for cosines and sines")
        return self


class Mars5Config(Config):
    """Both models; they share the text tokenizer, the codec, and nothing else."""

    ar: CodecLMConfig
    nar: ResidualTransformerConfig

    @model_validator(mode="after")
    def _parts_fit(self) -> Mars5Config:
        for name in ("levels", "codebook_size"):
            if getattr(self.ar, name) != getattr(self.nar, name):
                raise ValueError(f"{name} of ar ({getattr(self.ar, name)}) and nar ({getattr(self.nar, name)}) differ")
        if self.nar.text_vocab_size < self.ar.text_vocab_size:
            raise ValueError(
                f"the nar has {self.nar.text_vocab_size} text ids, fewer than the ar's {self.ar.text_vocab_size}"
            )
        return self


def check_divisors(width: int, **divisors: int) -> None:
    """Raise ValueError unless every divisor divides `width`, and `width` is even."""
    for name, value in divisors.items():
        if width % value:
            raise ValueError(f"{name} ({value}) must divide width ({width})")
    if width % 2:
        raise ValueError(f"width ({width}) must be even, for sinusoidal positions")
