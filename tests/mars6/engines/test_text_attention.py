"""Attention to the text as every engine reports it: equal between engines, and to the teacher-forced model."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from pydantic import ValidationError

from marstts.generation.engine import Engine
from marstts.generation.loop import generate
from marstts.generation.request import Generated, Limits, SamplingConfig
from marstts.io.precision import WeightFormat
from marstts.mars6.aligned_heads import find_aligned_heads, score_heads
from marstts.mars6.config import Mars6Config
from marstts.mars6.engines.onnx import OnnxEngine
from marstts.mars6.engines.torch import TorchEngine
from marstts.mars6.export.graphs import export_mars6
from marstts.mars6.model import Mars6
from marstts.mars6.prompt import Mars6Prompt
from marstts.synthesis.clone.prefix_cut import attention_to

pytestmark = pytest.mark.slow

CONFIG = Mars6Config(
    text_vocab_size=31, codebook_size=13, width=24, encoder_layers=1, global_layers=3, local_layers=1, heads=4,
    local_heads=2, identity_size=5, style_size=9, aligned_heads=((0, 1), (2, 0), (2, 3)),
)  # fmt: skip
PLAIN = CONFIG.model_copy(update={"aligned_heads": ()})
LENGTHS = ((6, 0), (9, 4), (4, 1))


def model_with(config: Mars6Config) -> Mars6:
    torch.manual_seed(3)
    model = Mars6(config).eval()
    with torch.no_grad():  # codes sharp, so that rounding decides nothing, and end of speech rare
        model.local_decoder.output.weight[:-1] *= 4
    return model


@pytest.fixture(scope="module")
def model() -> Mars6:
    return model_with(CONFIG)


@pytest.fixture(scope="module")
def onnx_engine(tmp_path_factory: pytest.TempPathFactory) -> OnnxEngine:
    folder: Path = tmp_path_factory.mktemp("aligned")
    export_mars6(model_with(CONFIG), folder, WeightFormat.FLOAT32)
    return OnnxEngine(folder)


def prompts() -> list[Mars6Prompt]:
    """(text tokens, prefix patches) of each row."""
    rng = np.random.default_rng(0)
    offsets = np.array(CONFIG.position_levels) * CONFIG.codebook_size
    return [
        Mars6Prompt(
            rng.integers(0, 31, text), rng.normal(size=5).astype(np.float32), rng.normal(size=9).astype(np.float32),
            rng.integers(0, 13, (prefix, 7)) + offsets,
        )
        for text, prefix in LENGTHS
    ]  # fmt: skip


def speak(engine: Engine, limits=(5, 7, 3)) -> list[Generated]:
    bounds = [Limits(count, count) for count in limits]  # rows end at different steps
    rngs = [np.random.default_rng(row) for row in range(len(bounds))]
    sampling = SamplingConfig(ras_window=4)
    return generate(engine, prompts(), top_p=[0.5] * 3, limits=bounds, rngs=rngs, sampling=sampling)


def teacher_forced(model: Mars6, prompt: Mars6Prompt, generated: Generated) -> np.ndarray:
    """(T, S) mean of the aligned heads, from one pass over prefix and generated patches."""
    patches = np.concatenate([prompt.prefix_tokens, generated.tokens, generated.tokens[:1]])  # the last is not seen
    with torch.inference_mode():
        output = model(
            torch.as_tensor(prompt.text_ids[None]), torch.tensor([len(prompt.text_ids)]),
            torch.as_tensor(prompt.identity[None]), torch.as_tensor(prompt.style[None]),
            torch.as_tensor(patches[None]), torch.tensor([len(patches)]), attention_layers=(0, 1, 2),
        )  # fmt: skip
    heads = [output.cross_attention[layer][0, head] for layer, head in CONFIG.aligned_heads]
    steps = slice(len(prompt.prefix_tokens), len(prompt.prefix_tokens) + len(generated.attention))
    return torch.stack(heads).mean(dim=0)[steps, model.num_slots :].numpy()


def test_attention_of_generation_is_that_of_the_teacher_forced_model(model):
    for prompt, generated in zip(prompts(), speak(TorchEngine(model)), strict=True):
        assert len(generated.attention) == len(generated.tokens)
        attention = np.stack([step[: len(prompt.text_ids)] for step in generated.attention])
        np.testing.assert_allclose(attention, teacher_forced(model, prompt, generated), atol=1e-5)


def test_text_beyond_a_row_gets_no_attention(model):
    for prompt, generated in zip(prompts(), speak(TorchEngine(model)), strict=True):
        assert all((step[len(prompt.text_ids) :] == 0).all() for step in generated.attention)


def test_engines_report_the_same_attention(model, onnx_engine):
    for prompt, one, two in zip(prompts(), speak(TorchEngine(model)), speak(onnx_engine), strict=True):
        assert one.tokens.tolist() == two.tokens.tolist()
        width = len(prompt.text_ids)
        for ours, theirs in zip(one.attention, two.attention, strict=True):
            np.testing.assert_allclose(theirs[:width], ours[:width], atol=1e-5)


def test_reporting_attention_leaves_tokens_as_they_are(model):
    with_heads, without = speak(TorchEngine(model)), speak(TorchEngine(model_with(PLAIN)))
    assert [made.tokens.tolist() for made in with_heads] == [made.tokens.tolist() for made in without]


def test_engines_without_aligned_heads_report_none(tmp_path):
    export_mars6(model_with(PLAIN), tmp_path, WeightFormat.FLOAT32)
    for engine in (TorchEngine(model_with(PLAIN)), OnnxEngine(tmp_path)):
        assert all(made.attention == () for made in speak(engine))


def test_engines_attend_alike_to_a_text_that_they_are_made_to_say(model, onnx_engine):
    prompt = next(prompt for prompt in prompts() if not len(prompt.prefix_tokens))
    tokens = next(prompt.prefix_tokens for prompt in prompts() if len(prompt.prefix_tokens))
    width = len(prompt.text_ids)
    said: Any = SimpleNamespace(tokens=tokens, attention=range(len(tokens) + 1))
    expected = teacher_forced(model, prompt, said)
    for engine in (TorchEngine(model), onnx_engine):
        speech_model: Any = SimpleNamespace(engine=engine)
        steps = attention_to(speech_model, prompt, tokens)
        assert steps is not None and len(steps) == len(tokens) + 1
        np.testing.assert_allclose(np.stack([step[:width] for step in steps]), expected, atol=1e-4)


def test_heads_that_do_not_exist_are_refused():
    with pytest.raises(ValidationError, match="aligned_heads"):
        Mars6Config(**{**PLAIN.model_dump(), "aligned_heads": ((3, 0),)})


def test_a_head_is_scored_by_how_it_follows_the_text():
    diagonal, constant = np.eye(8, dtype=np.float32), np.zeros((8, 8), np.float32)
    constant[:, 3] = 0.5
    scores = score_heads(np.stack([diagonal, constant])[None])
    np.testing.assert_allclose(scores[0, 0], [1, 1, 1], atol=1e-6)
    assert scores[0, 1].tolist() == [0.5, 0.5, 0.0]


def test_random_models_have_no_aligned_heads():
    assert find_aligned_heads(model_with(PLAIN), prompts()) == ()
