"""The configuration of a speaker encoder's training: what `marstts train speaker --config` reads.

Upstream: TOML files such as those of `recipes/`.  Downstream: `task`, `clips`.
"""

from __future__ import annotations

from enum import Enum
from typing import Annotated

from pydantic import AfterValidator, Field

from marstts.io.config import Config
from marstts.io.precision import Precision
from marstts.speaker.mini import MiniEncoderConfig
from marstts_lab.training.bounds import LearningRate, Probability, Weight, check_range
from marstts_lab.training.loop import LoopConfig
from marstts_lab.training.optim import ScheduleConfig
from marstts_lab.training.speaker.augmentation import AugmentationConfig

GRAD_CLIP_NORM = 5.0

CropRange = Annotated[
    tuple[Annotated[float, Field(ge=0.1, le=60.0)], Annotated[float, Field(ge=0.1, le=60.0)]],
    AfterValidator(check_range),
]


class EncoderKind(str, Enum):
    """The role of the encoder."""

    IDENTITY = "identity"
    STYLE = "style"


class SpeakerTrainingConfig(Config):
    """Training of one encoder."""

    kind: EncoderKind
    model: MiniEncoderConfig
    loop: LoopConfig
    augmentation: AugmentationConfig = AugmentationConfig()

    vtlp_factors: tuple[Annotated[float, Field(ge=0.1, le=10.0)], ...] = Field((1.0,), min_length=1, max_length=100)
    """Factors of vocal-tract-length perturbation. For identity each makes another speaker, for style none."""

    batch_size: int = Field(64, gt=1, le=2**14)
    crop_seconds: CropRange = (1.5, 4.0)
    """Length of the crops of a step, drawn uniformly."""

    max_hours: float = Field(12.0, gt=0)
    """Hours of training speech that are held in memory (0.05 GB an hour and factor)."""

    learning_rate: LearningRate = 2e-3
    """Peak; it falls along a cosine to a hundredth."""

    warmup_steps: int = Field(100, ge=0)
    weight_decay: Weight = 0.02
    margin: float = Field(0.2, ge=0, lt=3.14)
    """Angular margin of the right class in radians, reached halfway through training; identity only."""

    scale: float = Field(30.0, gt=0, le=1e4)
    """Inverse temperature of the softmax over cosines."""

    attribute_weight: Weight = 0.5
    """Weight of the regression of `style_attributes.TARGETS`; style only."""

    adversary_weight: Weight = 0.1
    """Weight of the adversary that classifies the speaker, reached halfway through training; style only."""

    max_corrupt_ratio: Probability = 0.01
    """Recordings that cannot be used are skipped and listed, up to this ratio of them; more stop the run."""

    precision: Precision = Precision.BF16

    @property
    def schedule(self) -> ScheduleConfig:
        """The learning-rate schedule of the encoder."""
        return ScheduleConfig(learning_rate=self.learning_rate, warmup_steps=self.warmup_steps, final_lr_ratio=0.01)
