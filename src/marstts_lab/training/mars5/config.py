"""Configuration of a training of MARS5's AR or NAR, as it stands in a TOML file.

Upstream: recipes.  Downstream: `tasks`.
"""

from __future__ import annotations

from pydantic import Field

from marstts.io.config import Config
from marstts.io.precision import Precision
from marstts.mars5.config import CodecLMConfig, ResidualTransformerConfig
from marstts.mars5.objective import ObjectiveConfig
from marstts_lab.data.batching import BatchingConfig
from marstts_lab.training.loop import LoopConfig
from marstts_lab.training.optim import OptimizerConfig


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

    gradient_checkpointing: bool = False
    """Compute the activations of each layer again in the backward pass (arXiv:1604.06174): a third more time, and
    memory for the inputs of the layers alone."""

    validation_batches: int = Field(8, gt=0)
    """Most batches of held-out utterances that are scored."""


class ArTrainConfig(TrainConfig):
    """A training of `CodecLM`."""

    model: CodecLMConfig


class NarTrainConfig(TrainConfig):
    """A training of `ResidualTransformer`."""

    model: ResidualTransformerConfig
