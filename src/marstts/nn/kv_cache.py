"""Keys and values of what was already seen, as a value the caller holds.

Upstream: `attention.Attention.remember`.  Downstream: whoever steps a decoder one position at a time.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class KVCache(NamedTuple):
    """Keys and values of one attention layer, (B, H, S, d) each; never changed in place."""

    keys: Tensor
    values: Tensor

    def extended(self, later: KVCache) -> KVCache:
        """These positions followed by `later` ones."""
        return KVCache(torch.cat((self.keys, later.keys), dim=2), torch.cat((self.values, later.values), dim=2))

    def select(self, rows: Tensor) -> KVCache:
        """Only the rows (N,) of the batch, in that order."""
        return KVCache(self.keys.index_select(0, rows), self.values.index_select(0, rows))
