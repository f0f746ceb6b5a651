"""MARS5 in PyTorch, as a runtime: arrays in, arrays out.

Upstream: `checkpoint.Models`.  Downstream: `bundled`, `tts`.
On a GPU the AR computes as the release does: weights and residual sums in float32, products and KV cache in float16
(autocast). Only the speaker vector, which is computed once, is in float32 throughout.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager

import numpy as np
import torch
from torch import Tensor, nn

from marstts.generation.engine import refuse_nan
from marstts.mars5.ar import CodecLM, DecoderState, join_states
from marstts.mars5.checkpoint import Models
from marstts.mars5.diffusion import ReverseStep
from marstts.mars5.nar import ResidualTransformer
from marstts.mars5.runtime import Floats, Ids, RunnableModels, StepInputs
from marstts.mars5.steps import Schedule


def runnable(models: Models) -> RunnableModels:
    """The models in PyTorch, on the device where they are."""
    return RunnableModels(TorchAR(models.ar), TorchNAR(models.nar), models.vocabulary)


class TorchAR:
    """A `runtime.RunnableAR`."""

    def __init__(self, model: CodecLM) -> None:
        self.model, self.config, self.device = model, model.config, device_of(model)
        self.mixed_precision = self.device.type == "cuda"

    @torch.inference_mode()
    def encode_speaker(self, codes: Ids, lengths: Ids) -> Floats:
        return encode_speaker(self.model, codes, lengths)

    @torch.inference_mode()
    def begin(self, tokens: Ids, lengths: Ids, speakers: Floats) -> DecoderState:
        with self._autocast():
            return self.model.begin(*(torch.from_numpy(part).to(self.device) for part in (tokens, lengths, speakers)))

    @torch.inference_mode()
    def advance(self, state: DecoderState, tokens: Ids) -> DecoderState:
        with self._autocast():
            return self.model.advance(state, torch.from_numpy(tokens).to(self.device))

    def logits(self, state: DecoderState) -> Floats:
        return refuse_nan(state.logits.float().cpu().numpy().copy())

    def select(self, state: DecoderState, rows: Sequence[int]) -> DecoderState:
        return state.select(torch.tensor(list(rows), device=self.device))

    def join(self, states: Sequence[DecoderState]) -> DecoderState:
        return join_states(states)

    def _autocast(self) -> AbstractContextManager[None]:
        return torch.autocast(self.device.type, torch.float16, enabled=self.mixed_precision)


class TorchNAR:
    """A `runtime.RunnableNAR`."""

    def __init__(self, model: ResidualTransformer) -> None:
        self.model, self.config, self.device = model, model.config, device_of(model)
        self.reverse_step = ReverseStep(model).to(self.device)

    @torch.inference_mode()
    def encode_speaker(self, codes: Ids, lengths: Ids) -> Floats:
        return encode_speaker(self.model, codes, lengths)

    @torch.inference_mode()
    def step(self, codes: Ids, schedule: Schedule, step: int, inputs: StepInputs, uniforms: Floats | None) -> Ids:
        legal = np.where(np.arange(self.config.num_classes) < inputs.num_legal, 0, -np.inf).astype(np.float32)
        feeds = (
            codes,
            inputs.lengths,
            np.full(len(codes), schedule.timesteps[step]),
            inputs.text_ids,
            inputs.text_lengths,
            inputs.speaker,
            np.array([inputs.temperature], np.float32),
            np.array([*schedule.all_steps_to(step - 1), *schedule.one_step(step)], np.float32),
            legal,
            np.array([uniforms is not None], np.float32),
            np.full((1, 1, 1, 1), 0.5, np.float32) if uniforms is None else uniforms,
        )
        tensors = [torch.from_numpy(part).to(self.device) for part in feeds]
        if inputs.guidance == 1:
            drawn, total = self.reverse_step(*tensors)
        else:
            weight = torch.tensor([inputs.guidance], device=self.device)
            drawn, total = self.reverse_step(*tensors, self.model.null_speaker(1), weight)
        refuse_nan(total.cpu().numpy())
        return np.asarray(drawn.cpu().numpy(), np.int64)


def encode_speaker(model: CodecLM | ResidualTransformer, codes: Ids, lengths: Ids) -> Floats:
    """Codes (B, R, L), lengths (B,) -> speaker vectors (B, D)."""
    device = device_of(model)
    vectors: Tensor = model.encode_speaker(torch.from_numpy(codes).to(device), torch.from_numpy(lengths).to(device))
    return np.asarray(vectors.float().cpu().numpy(), np.float32)


def device_of(model: nn.Module) -> torch.device:
    """The device of a model's weights."""
    return next(model.parameters()).device
