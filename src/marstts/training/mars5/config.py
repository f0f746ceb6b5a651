"""Configuration of a training of MARS5's AR or NAR, as it stands in a TOML file.

Upstream: recipes.  Downstream: `tasks`.
"""

from __future__ import annotations

from pydantic import Field

from marstts.config import Config
from marstts.data.batching import BatchingConfig
from marstts.mars5.config import CodecLMConfig, ResidualTransformerConfig
from marstts.mars5.objective import ObjectiveConfig
from marstts.precision import Precision
from marstts.training.loop import LoopConfig
from marstts.training.optim import OptimizerConfig


class TrainConfig(Config):
    """Configuration that both trainings have in common."""

    loop: LoopConfig
    batching: BatchingConfig = BatchingConfig()
    """References come from the same row, whatever the value of `cross_reference_probability`."""

    optimizer: OptimizerConfig = OptimizerConfig()
    objective: ObjectiveConfig = ObjectiveConfig()
    precision: Precision = Precision.BF16

    device: str = "auto"
    """A PyTorch device, or `auto`: the first GPU if there is one."""

    validation_batches: int = Field(8, gt=0)
    """Batches of held-out utterances that are scored, as far as there are so many."""


class ArTrainConfig(TrainConfig):
    """A training of `CodecLM`."""

    model: CodecLMConfig


class NarTrainConfig(TrainConfig):
    """A training of `ResidualTransformer`."""

    model: ResidualTransformerConfig
