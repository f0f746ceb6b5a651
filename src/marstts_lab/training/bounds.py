"""Types of configuration values with bounds, which trainings share, and seeds of their steps.

Upstream: TOML files.  Downstream: the `config` and `augmentation` modules of all trainings.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field

Probability = Annotated[float, Field(ge=0.0, le=1.0)]

Weight = Annotated[float, Field(ge=0.0, allow_inf_nan=False)]
"""Weight of a loss."""

LearningRate = Annotated[float, Field(gt=0.0, allow_inf_nan=False)]


def check_range(value: tuple[float, float]) -> tuple[float, float]:
    """A range (low, high); ValueError where the two are in another order."""
    if value[0] > value[1]:
        raise ValueError(f"expected the smaller number first, got {value[0]:g} and {value[1]:g}")
    return value


Finite = Annotated[float, Field(allow_inf_nan=False)]
Positive = Annotated[float, Field(gt=0.0, allow_inf_nan=False)]

Range = Annotated[tuple[Finite, Finite], AfterValidator(check_range)]
"""Two finite numbers, the smaller one first."""

PositiveRange = Annotated[tuple[Positive, Positive], AfterValidator(check_range)]
"""Two finite numbers above 0, the smaller one first."""


# The seed of everything that training draws at random: a function of the configured seed and of a number.
# Without state between steps, resumed training equals uninterrupted training.

PRIME = 1_000_003
"""Distance of the streams of neighboring seeds, which therefore do not meet for a million steps."""


def step_seed(seed: int, number: int) -> int:
    """The seed of step or batch `number` in a training that is configured with `seed`."""
    return seed * PRIME + number
