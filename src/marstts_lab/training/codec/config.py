"""The configuration of a codec training: what `marstts train codec --config` reads.

Upstream: TOML files such as those of `recipes/`.  Downstream: `task`, `segments`.
"""

from __future__ import annotations

from enum import Enum
from typing import Annotated

from pydantic import Field

from marstts.codec.mini import MiniCodecConfig
from marstts.io.config import Config
from marstts.io.precision import Precision
from marstts_lab.training.bounds import LearningRate, PositiveRange, Probability, Weight
from marstts_lab.training.codec.augmentation import AugmentationConfig
from marstts_lab.training.codec.envelope import EnvelopeConfig
from marstts_lab.training.codec.generated_codes import GeneratedCodesConfig
from marstts_lab.training.codec.losses import F0Config, FeaturePredictionConfig, SpeakerConsistencyConfig
from marstts_lab.training.codec.new_speakers import NewSpeakersConfig
from marstts_lab.training.codec.predicted_codes import PredictedCodesConfig
from marstts_lab.training.codec.recognizer_loss import RecognizerConfig
from marstts_lab.training.loop import LoopConfig
from marstts_lab.training.optim import ScheduleConfig

BETAS, WEIGHT_DECAY, GRAD_CLIP_NORM = (0.8, 0.99), 1e-3, 1.0
"""AdamW and gradient clipping of the codec."""

DISCRIMINATOR_GRAD_CLIP_NORM = 10.0


class Stage(str, Enum):
    """The part of the codec that is trained."""

    FULL = "full"
    DECODER = "decoder"
    """Encoder and codebooks are frozen, so that codes made before remain valid."""


class AdversarialConfig(Config):
    """Discriminators, used from the first step of the stage that configures them."""

    fft_sizes: tuple[Annotated[int, Field(ge=64, le=2**16)], ...] = Field((1024, 512, 256), min_length=1)
    """One log-magnitude discriminator each; one of them is drawn for each step."""

    channels: int = Field(24, gt=1, le=2**12)
    crop_samples: int = Field(8192, ge=1024, le=2**24)
    """Samples of each segment that the discriminators see."""

    learning_rate: LearningRate = 2e-4
    weight: Weight = 1.0
    """Weight of the adversarial loss of the decoder."""

    feature_matching_weight: Weight = 2.0

    generated: bool = False
    """Decoded takes of `generated_codes` are output, too: half of the fakes, and half of the adversarial loss."""

    pretraining_steps: int = Field(0, ge=0)
    """First steps of the stage, in which the discriminators alone are trained, all of them in each step."""

    pretraining_learning_rate: LearningRate = 1e-3


class TimbreSpeakerConfig(Config):
    """The frozen speaker encoder that the timbre embeddings depend on, of a codec with `timbre_speaker_size`."""

    encoder: str = Field(min_length=1)
    """Its folder, such as that of CAM++."""

    whole_ratio: Probability = 0.6
    """Probability that a reference's embedding is that of its whole recording, as in synthesis, not of the segment."""


class FrequencyWarpConfig(Config):
    """Information perturbation (NANSY, arXiv:2110.14513) for a decoder with a timbre embedding.

    The encoder reads segments all of whose frequencies are moved. The decoder has to reproduce the recording as it is,
    so it learns to take F0 range and formants from the timbre embedding. Segments without one are not moved.
    """

    probability: Probability = 0.5
    factors: PositiveRange = (0.87, 1.15)
    """Factors of all frequencies, drawn uniformly in their logarithm."""


class CodecTrainingConfig(Config):
    """One stage of codec training."""

    model: MiniCodecConfig = MiniCodecConfig()
    loop: LoopConfig
    stage: Stage = Stage.FULL
    adversarial: AdversarialConfig | None = None
    """None = no discriminators."""

    batch_size: int = Field(16, gt=0, le=2**14)
    segment_patches: int = Field(12, gt=1, le=2**14)
    """Length of a training segment (12 patches = 1.02 s)."""

    learning_rate: LearningRate = 6e-4
    """Peak; it falls along a cosine to a twentieth."""

    warmup_steps: int = Field(200, ge=0)
    spectral_weight: Weight = 10.0
    augmentation: AugmentationConfig = AugmentationConfig()
    """Acoustic conditions that are simulated in training segments."""

    frequency_warp: FrequencyWarpConfig | None = None
    """None = the encoder reads the segments as they are."""

    new_speakers: NewSpeakersConfig | None = None
    """None = the speakers of the corpora alone."""

    recognizer: RecognizerConfig | None = None
    """A frozen recognizer that compares output and target, so that words are kept; None = no such loss. The encoder of
    a codec with `model.recognizer_layers` reads its features, too."""

    speaker_consistency: SpeakerConsistencyConfig | None = None
    """None = no such loss."""

    generated_codes: GeneratedCodesConfig | None = None
    """Codes of a model's takes that are decoded, too, for the speaker consistency loss; None = recordings alone."""

    predicted_codes: PredictedCodesConfig | None = None
    """Codes of recordings as a model predicts them, which segments are decoded from; None = those of the recordings."""

    envelope: EnvelopeConfig | None = None
    """The long-term spectrum of decoded takes and their references; None = no such loss."""

    timbre_speaker: TimbreSpeakerConfig | None = None
    """Needed by a model with `timbre_speaker_size`."""

    f0: F0Config = F0Config()
    feature_prediction: FeaturePredictionConfig | None = None
    """None = no such loss."""

    speaker_exponent: float = Field(1.0, ge=0, le=1)
    """Speakers with n recordings are sampled in proportion to n to this power: 1 = recordings uniformly, 0 = speakers
    uniformly."""

    timbre_spread: float = Field(1.0, ge=1, le=16)
    """Factor by which differences between timbre embeddings grow when a run begins with the weights of another codec;
    projections undo it, so that the output is nearly the same (`timbre_spread`)."""

    timbre_dropout: Probability = 0.1
    """Probability that a segment is decoded without its timbre embedding, so that decoding without one works too."""

    freeze_timbre: bool = False
    """In the decoder stage: leave timbre encoder and prediction of F0 as they are, so that voices stay valid."""

    initial_weight_ratio: float = Field(0.0, ge=0, lt=1)
    """Ratio of the initial weights in the exported codec; the rest is the trained ones'. Less is lost of what the
    initial ones do better (weight interpolation, arXiv:2109.01903). 0 = as trained."""

    max_corrupt_ratio: Probability = 0.01
    """Recordings that cannot be used are skipped and listed, up to this ratio of them; more stop the run."""

    precision: Precision = Precision.BF16

    @property
    def schedule(self) -> ScheduleConfig:
        """The learning-rate schedule of the codec."""
        return ScheduleConfig(learning_rate=self.learning_rate, warmup_steps=self.warmup_steps, final_lr_ratio=0.05)

    @property
    def pretraining_steps(self) -> int:
        """First steps, in which the discriminators alone are trained."""
        return 0 if self.adversarial is None else self.adversarial.pretraining_steps
