"""The slow, obvious way to generate, to compare the engines with: nothing is kept from one patch or token to the next.

Upstream: `mars6.model.Mars6`, run as in training.  Downstream: `measures`.
For every patch the global decoder reads all patches so far again, memory included; for every token the local decoder
reads its whole patch again; tokens are chosen on the host. The text is encoded once. It could be slower still, by
running the global decoder for every token, but that would flatter whatever is compared with it.
Shapes: P positions of a patch · N patches so far · C codes per level · M memory places · D width.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from marstts.mars6.generate import PatchDraws, sample_codes
from marstts.mars6.model import Mars6
from marstts.mars6.prompt import Prompt


class Naive:
    """One utterance, one token after the other, by the teacher-forced model."""

    @torch.inference_mode()
    def __init__(self, model: Mars6, prompt: Prompt) -> None:
        """Reads the text."""
        self.model = model.eval()
        self.memory, self.memory_mask = model.encode(
            torch.as_tensor(prompt.text_ids)[None],
            torch.tensor([len(prompt.text_ids)]),
            torch.as_tensor(prompt.identity)[None],
            torch.as_tensor(prompt.style)[None],
        )

    @torch.inference_mode()
    def patch(self, said: NDArray[np.int64], draws: PatchDraws) -> NDArray[np.int64]:
        """said (N, P), draws of one row -> the next patch (P,), end of speech from where it was drawn."""
        config = self.model.config
        decoder, local = self.model.global_decoder, self.model.local_decoder
        x, _ = decoder(decoder.embed(torch.as_tensor(said)[None]), self.memory, self.memory_mask)
        tokens = np.full((1, config.patch_size), config.eos, np.int64)
        for position, level in enumerate(config.position_levels):
            logits = torch.cat(local(x[:, -1], torch.as_tensor(tokens)), dim=1)[:, position]  # (1, C + 1)
            [pick] = sample_codes(logits.numpy(), level, tokens[:, :position], draws)
            if pick == config.codebook_size:
                break
            tokens[0, position] = pick + level * config.codebook_size
        return tokens[0]
