"""Naive decoding, the baseline of benchmarks: no KV cache, nothing is kept from one patch or token to the next.

Upstream: `mars6.model.Mars6`, run as in training.  Downstream: `benchmark.measures`, through `bundled.naive_decoder`.
For every patch the global decoder processes all patches so far again, cross-attention included. For every token the
local decoder processes its whole patch again. Tokens are sampled on the host. The text is encoded once. Running the
global decoder for every token would be slower still, and would favor the engines that are compared with this one.
Shapes: P positions of a patch · N patches so far · C codes per level.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from marstts.generation.engine import SamplingInputs
from marstts.generation.loop import sample_codes
from marstts.mars6.model import Mars6
from marstts.mars6.prompt import Prompt


class NaiveDecoder:
    """Decodes one utterance, one token after the other, with the teacher-forced model."""

    @torch.inference_mode()
    def __init__(self, model: Mars6, prompt: Prompt) -> None:
        """Encode the text of the prompt."""
        self.model = model.eval()
        self.memory, self.memory_mask = model.encode(
            torch.as_tensor(prompt.text_ids)[None],
            torch.tensor([len(prompt.text_ids)]),
            torch.as_tensor(prompt.identity)[None],
            torch.as_tensor(prompt.style)[None],
        )

    @torch.inference_mode()
    def decode_patch(self, previous: NDArray[np.int64], inputs: SamplingInputs) -> NDArray[np.int64]:
        """previous (N, P), sampling inputs of one row -> the next patch (P,), end of speech from where it was drawn."""
        config = self.model.config
        decoder, local = self.model.global_decoder, self.model.local_decoder
        x, _ = decoder(decoder.embed(torch.as_tensor(previous)[None]), self.memory, self.memory_mask)
        tokens = np.full((1, config.patch_size), config.eos, np.int64)
        for position, level in enumerate(config.position_levels):
            logits = torch.cat(local(x[:, -1], torch.as_tensor(tokens)), dim=1)[:, position]  # (1, C + 1)
            [pick] = sample_codes(logits.numpy(), level, tokens[:, :position], inputs)
            if pick == config.codebook_size:
                break
            tokens[0, position] = pick + level * config.codebook_size
        return tokens[0]
