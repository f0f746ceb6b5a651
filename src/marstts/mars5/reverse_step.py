"""One reverse step of the diffusion in PyTorch: what `engines.torch` runs and `export.graphs` exports.

Upstream: `nar.ResidualTransformer`.  Downstream: `engines.torch`, `export.graphs`.
Guidance by the speaker (classifier-free, arXiv:2207.12598) on logits, both passes as rows of one batch; temperature;
the posterior (`diffusion.p_posterior`); the draw.
Shapes: B batch · T frames · L levels · K classes · S text ids · D width.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from marstts.mars5.diffusion import gumbel_noise, mix_with_uniform
from marstts.mars5.nar import Conditioning, ResidualTransformer
from marstts.mars5.steps import SMALLEST


class ReverseStep(nn.Module):
    """Noisy codes to those of the step before."""

    classes: Tensor

    def __init__(self, model: ResidualTransformer) -> None:
        super().__init__()
        self.model = model
        self.register_buffer("classes", torch.arange(model.config.num_classes), persistent=False)

    def logits(
        self,
        codes: Tensor,
        lengths: Tensor,
        timesteps: Tensor,
        given: Conditioning,
        null_speaker: Tensor | None = None,
        guidance: Tensor | None = None,
    ) -> Tensor:
        """Logits (B, T, L, K) of the clean codes; with a null speaker (1, D) and a weight (1,), guided ones."""
        if null_speaker is None or guidance is None:
            return self.model(codes, lengths, timesteps, given)
        unknown = null_speaker.expand(given.speaker.shape[0], -1)
        both = Conditioning(
            given.text_ids.repeat(2, 1), given.text_lengths.repeat(2), torch.cat((given.speaker, unknown))
        )
        doubled = self.model(codes.repeat(2, 1, 1), lengths.repeat(2), timesteps.repeat(2), both)
        known, without = doubled.unflatten(0, (2, -1)).unbind(0)
        return guidance * known + (1 - guidance) * without

    def forward(
        self,
        codes: Tensor,
        lengths: Tensor,
        timesteps: Tensor,
        text_ids: Tensor,
        text_lengths: Tensor,
        speaker: Tensor,
        temperature: Tensor,
        rates: Tensor,
        legal: Tensor,
        noise: Tensor,
        uniforms: Tensor,
        null_speaker: Tensor | None = None,
        guidance: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """codes (B, T, L), lengths and timesteps (B,), texts (B, S), speaker (B, D), uniforms (B, T, L, K).

        rates (4,): logarithms of what all steps up to the one before keep and lose, and of what this one does.
        legal (K,) is 0 for classes that may be drawn, else minus infinity. noise (1,) is 0 for the most probable codes,
        1 for a draw. -> codes (B, T, L), and the sum of the logits (B,), which shows whether they are numbers.
        """
        given = Conditioning(text_ids, text_lengths, speaker)
        logits = self.logits(codes, lengths, timesteps, given, null_speaker, guidance)
        log_x0 = torch.log_softmax(logits / temperature + legal, dim=-1)
        log_xt = (codes.unsqueeze(-1) == self.classes).float().clamp_min(SMALLEST).log()
        before = mix_with_uniform(log_x0, rates[0], rates[1])
        log_probabilities = torch.log_softmax(before + mix_with_uniform(log_xt, rates[2], rates[3]), dim=-1)
        drawn = (log_probabilities + noise * gumbel_noise(uniforms)).argmax(dim=-1)
        return drawn, logits.sum(dim=(1, 2, 3))
