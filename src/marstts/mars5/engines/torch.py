"""The engine over PyTorch's AR.

Upstream: `ar.CodecLM`.  Downstream: `bundled`, `speech`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from marstts.generation.engine import refuse_nan
from marstts.mars5.ar import DecoderState, join_states
from marstts.mars5.engines.tokens import TokenEngine


class TorchEngine(TokenEngine):
    """The engine of an `ar.CodecLM`."""

    @torch.inference_mode()
    def begin(self, tokens: NDArray[np.int64], lengths: NDArray[np.int64], speakers: Sequence[Tensor]) -> DecoderState:
        device = speakers[0].device
        state: DecoderState = self.model.begin(
            torch.from_numpy(tokens).to(device), torch.from_numpy(lengths).to(device), torch.stack(list(speakers))
        )
        return state

    @torch.inference_mode()
    def advance(self, decoder: DecoderState, tokens: NDArray[np.int64]) -> DecoderState:
        state: DecoderState = self.model.advance(decoder, torch.from_numpy(tokens).to(decoder.logits.device))
        return state

    def joint_logits(self, decoder: DecoderState) -> NDArray[np.float32]:
        return refuse_nan(decoder.logits.float().cpu().numpy().copy())

    def select_rows(self, decoder: DecoderState, rows: Sequence[int]) -> DecoderState:
        return decoder.select(torch.tensor(list(rows), device=decoder.logits.device))

    def join_rows(self, decoders: Sequence[DecoderState]) -> DecoderState:
        return join_states(decoders)
