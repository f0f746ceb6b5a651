"""The seed of everything that training draws at random: a function of the configured seed and of a number.

Upstream: the key `seed` of a configuration; the number of a step or of a batch.  Downstream: dropout, token noise,
augmentation. Without state between steps, resumed training equals uninterrupted training.
"""

from __future__ import annotations

PRIME = 1_000_003
"""Distance of the streams of neighboring seeds, which therefore do not meet for a million steps."""


def step_seed(seed: int, number: int) -> int:
    """The seed of step or batch `number` in a training that is configured with `seed`."""
    return seed * PRIME + number
