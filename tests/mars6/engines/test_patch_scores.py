"""Log-probabilities of the patches of a row, with and without a part of the text, by every engine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from engine_inputs import OFFSETS, model_with, prompts

from marstts.generation.engine import Engine, PatchScorer
from marstts.io.precision import WeightFormat
from marstts.mars6.config import Mars6Config
from marstts.mars6.engines.onnx import OnnxEngine
from marstts.mars6.engines.torch import TorchEngine
from marstts.mars6.export.graphs import export_mars6
from marstts.mars6.prompt import Prompt


@pytest.fixture(scope="module", params=["torch", pytest.param("onnx", marks=pytest.mark.slow)])
def engine(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> PatchScorer:
    if request.param == "torch":
        return TorchEngine(model_with())
    folder: Path = tmp_path_factory.mktemp("scores")
    export_mars6(model_with(), folder, WeightFormat.FLOAT32)
    return OnnxEngine(folder)


def forced_state(engine: Engine, patches: np.ndarray) -> Any:
    """The state of three rows after `patches` (T, P), the same for each."""
    state = engine.start(prompts())
    for patch in patches:
        state = engine.append(state, patch[None].repeat(3, axis=0))
    return state


def new_patches() -> np.ndarray:
    return np.random.default_rng(1).integers(0, 13, (6, 7)) + OFFSETS


@torch.no_grad()
def slow_scores(prompt: Prompt, tokens: np.ndarray, hidden: tuple[int, int], first: int) -> np.ndarray:
    """The same by one forward pass over all patches; what is hidden from patch `first` on changes the memory's mask."""
    model = model_with().eval()
    config: Mars6Config = model.config
    memory, mask = model.encode(
        torch.as_tensor(prompt.text_ids)[None], torch.tensor([len(prompt.text_ids)]),
        torch.as_tensor(prompt.identity)[None], torch.as_tensor(prompt.style)[None],
    )  # fmt: skip
    state = model.begin(memory, mask, torch.zeros(1, 0, 7, dtype=torch.long), torch.zeros(1, dtype=torch.long))
    found = []
    sequence = np.concatenate([prompt.prefix_tokens, tokens])
    start = len(prompt.prefix_tokens) + first
    for index in range(len(sequence) + 1):
        if index == start:
            hiding = mask.clone()
            hiding[0, model.num_slots + hidden[0] : model.num_slots + hidden[1]] = False
            state = state.__class__(**{**state.__dict__, "memory_mask": hiding})
        if index >= start:
            patch = torch.as_tensor(sequence[index - 1][None])
            state = model.advance(state, patch)
            code = sequence[index][0] if index < len(sequence) else config.codebook_size
            logits, _ = model.local_decoder.step(state.vectors, None, ())
            found.append(float(logits.log_softmax(dim=1)[0, code]))
        elif index < start - 1:
            state = model.advance(state, torch.as_tensor(sequence[index][None]))
    return np.array(found)


def vectors_of(engine: Engine, patches: np.ndarray) -> list[np.ndarray]:
    """(3, D) what each of these patches, and end of speech, are made from."""
    state = engine.start(prompts())
    found = [engine.patch_vectors(state)]
    for patch in patches:
        state = engine.append(state, patch[None].repeat(3, axis=0))
        found.append(engine.patch_vectors(state))
    return found


def test_scores_equal_a_pass_over_the_whole_row(engine):
    tokens, hidden, first = new_patches(), (1, 3), 2
    state, vectors = forced_state(engine, tokens), vectors_of(engine, tokens)
    for row, prompt in enumerate(prompts()):
        made_from = np.stack([step[row] for step in vectors[first:]])
        scores = engine.score_patches(engine.ended_row(state, row), tokens, (first, len(tokens) + 1), hidden, made_from)
        expected = [slow_scores(prompt, tokens, part, first) for part in ((0, 0), hidden)]
        np.testing.assert_allclose(scores, expected, atol=1e-4)
        assert np.abs(scores[0] - scores[1]).max() > 1e-3


def test_scoring_leaves_the_state_as_it_was(engine):
    tokens = new_patches()
    state, vectors = engine.ended_row(forced_state(engine, tokens), 0), vectors_of(engine, tokens)
    made_from = np.stack([step[0] for step in vectors[1:4]])
    first = engine.score_patches(state, tokens, (1, 4), (0, 4), made_from)
    np.testing.assert_array_equal(first, engine.score_patches(state, tokens, (1, 4), (0, 4), made_from))
    np.testing.assert_array_equal(engine.patch_vectors(state)[0], vectors[-1][0])
    assert first.shape == (2, 3)
