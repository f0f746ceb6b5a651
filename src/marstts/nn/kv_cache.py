"""The KV cache: keys and values of earlier positions, as a value that the caller holds.

Upstream: `attention.Attention.project_kv`.  Downstream: decoders that run one position at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F


class KVCache(NamedTuple):
    """Keys and values of one attention layer, (B, H, S, d) each; never changed in place."""

    keys: Tensor
    values: Tensor

    def extended(self, later: KVCache) -> KVCache:
        """These positions followed by `later` ones."""
        return KVCache(torch.cat((self.keys, later.keys), dim=2), torch.cat((self.values, later.values), dim=2))

    def select(self, rows: Tensor) -> KVCache:
        """Return only the rows (N,) of the batch, in that order."""
        return KVCache(self.keys.index_select(0, rows), self.values.index_select(0, rows))

    def gathered(self, positions: Tensor) -> KVCache:
        """Return only the given positions (B, N) of each row, in that order."""
        index = positions[:, None, :, None]
        return KVCache(*(part.take_along_dim(index, dim=2) for part in self))

    @classmethod
    def joined(cls, caches: Sequence[KVCache], length: int) -> KVCache:
        """The rows of all caches, each padded at its end to `length` positions."""
        parts = zip(*caches, strict=True)
        return cls(*(torch.cat([F.pad(x, (0, 0, 0, length - x.shape[2])) for x in part]) for part in parts))
