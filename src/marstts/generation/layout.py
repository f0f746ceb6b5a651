"""Token layout: how many tokens one decoding step makes, and which codec level each of them belongs to.

Upstream: a model's configuration.  Downstream: `loop`, which samples tokens by it.
MARS6 (arXiv:2501.05787), Sec. III-B, makes a patch of seven tokens per step.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property


@dataclass(frozen=True)
class TokenLayout:
    """The tokens of one patch, which is what one decoding step makes."""

    codes_per_level: tuple[int, ...]
    """Codes of each level in one patch, coarse to fine, e.g. (1, 2, 4)."""

    codebook_size: int
    """C, codes of each level. Token = code + level * C."""

    @cached_property
    def patch_size(self) -> int:
        """P, tokens of one patch."""
        return sum(self.codes_per_level)

    @cached_property
    def position_levels(self) -> tuple[int, ...]:
        """Level of each of the P positions, e.g. (0, 1, 1, 2, 2, 2, 2)."""
        return tuple(level for level, count in enumerate(self.codes_per_level) for _ in range(count))

    @property
    def vocab_size(self) -> int:
        """V, codes of all levels and end of speech."""
        return len(self.codes_per_level) * self.codebook_size + 1

    @property
    def eos(self) -> int:
        """The end-of-speech token, last of the vocabulary."""
        return self.vocab_size - 1
