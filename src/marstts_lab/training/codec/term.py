"""A term of the codec's loss: one object, which knows its options, its networks and its values.

Upstream: `config`, `frozen`, the outputs of a step.  Downstream: `terms`, which lists all; `task`, which adds them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor, nn

from marstts.codec.mini_model import CodecOutput, MiniCodecModel
from marstts_lab.training.codec.config import CodecTrainingConfig
from marstts_lab.training.codec.frozen import FrozenNetworks
from marstts_lab.training.codec.segments import SegmentBatch
from marstts_lab.training.codec.takes import DecodedTakes
from marstts_lab.training.loss import Loss


@dataclass(frozen=True)
class CodecStep:
    """What the losses of a step are computed from."""

    step: int
    batch: SegmentBatch
    output: CodecOutput

    decoded_takes: DecodedTakes | None
    """None without `[generated_codes]`."""

    @property
    def takes(self) -> DecodedTakes:
        """The takes, for terms that are built with `[generated_codes]` only."""
        assert self.decoded_takes is not None
        return self.decoded_takes


@dataclass(frozen=True)
class ValidationStep:
    """Outputs for a batch of validation segments."""

    batch: SegmentBatch

    output: CodecOutput
    """With the true F0."""

    samples: Tensor
    """(B, N) with the F0 that the codes predict."""

    samples_without_timbre: Tensor | None
    """(B, N), the same without the timbre embedding; None for a codec without them."""


class Term(ABC):
    """A term, or several that belong together.

    To add one: a subclass, its line in `terms.TERMS`, and, for options that are read from a configuration, a `Config`
    beside the code that computes it (`envelope.EnvelopeConfig`), which is a field of `config.CodecTrainingConfig`.
    """

    modules: Mapping[str, nn.Module] = {}
    """What it trains, by the names of the files of a checkpoint."""

    optimizers: Mapping[str, torch.optim.Optimizer] = {}
    """Its own, by the names of the files of a checkpoint."""

    parameters: Sequence[nn.Parameter] = ()
    """What the codec's optimizer trains for it."""

    @staticmethod
    def complaints(config: CodecTrainingConfig) -> Iterable[str]:
        """Where its options contradict each other or lack what they need; nothing is opened."""
        return ()

    @classmethod
    @abstractmethod
    def build(cls, config: CodecTrainingConfig, model: MiniCodecModel, networks: FrozenNetworks) -> Self | None:
        """The term of a configuration that was checked, on the device of `networks`; None where it is not configured.

        ConfigError where a network that it opens does not fit.
        """

    def train_own(self, made: CodecStep) -> dict[str, Tensor]:
        """Update what has an optimizer of its own, before the codec's update; returns what to log."""
        return {}

    @abstractmethod
    def losses(self, made: CodecStep) -> Iterable[Loss]:
        """The losses of a step, in the order in which they are added."""

    def validate(self, made: ValidationStep) -> dict[str, Tensor]:
        """Scores on held-out segments."""
        return {}
