"""Guidance, against two utterances spoken side by side by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from marstts.errors import ConfigError
from marstts.generation.engine import Engine
from marstts.generation.loop import generate, sample_codes, sample_positions, sampling_inputs
from marstts.generation.request import Generated, Limits, Request, RequestState, SamplingConfig
from marstts.mars6.engines.classifier_free_guidance import GuidedEngine, drop_text, guided
from marstts.mars6.engines.onnx import OnnxEngine
from marstts.mars6.engines.torch import TorchEngine
from marstts.mars6.prompt import Prompt, prompt_string
from marstts.models import load_for_training
from marstts.synthesis.loading import load
from marstts.text.tokenizers.bpe import BPE

pytestmark = pytest.mark.slow

WEIGHT = 2.5


@pytest.fixture(scope="module")
def tokenizer(toy_bundle: Path) -> BPE:
    return BPE.load(toy_bundle / "tokenizer.json")


@pytest.fixture(scope="module", params=["torch", "onnx"])
def engine(request: pytest.FixtureRequest, toy_bundle: Path) -> Engine[Any]:
    return TorchEngine(load_for_training(toy_bundle)) if request.param == "torch" else OnnxEngine(toy_bundle / "mars6")


def make_prompts(tokenizer: BPE) -> list[Prompt]:
    rng = np.random.default_rng(0)
    offsets = np.array([0, 64, 64, 128, 128, 128, 128])
    return [
        Prompt(
            np.array(tokenizer.encode(prompt_string(text, quality=24_000))),
            rng.normal(size=5).astype(np.float32),
            rng.normal(size=7).astype(np.float32),
            rng.integers(0, 64, (prefix, 7)) + offsets,
        )
        for text, prefix in [("the cat sat", 0), ("on the mat, she sells sea shells", 3)]
    ]


def make_requests(prompts: list[Prompt]) -> list[Request]:
    settings = SamplingConfig(ras_window=4, ras_max_ratio=0.3)
    return [
        Request(prompt, top_p, Limits(2, 6), np.random.default_rng(seed), settings)
        for seed, (prompt, top_p) in enumerate(zip(prompts, (0.9, 0.3), strict=True))
    ]


def speak(engine: Engine[Any], prompts: list[Prompt]) -> list[Generated]:
    requests = make_requests(prompts)
    return generate(
        engine,
        prompts,
        top_p=[request.top_p for request in requests],
        limits=[request.limits for request in requests],
        rngs=[request.rng for request in requests],
        sampling=requests[0].sampling,
    )


def by_hand(engine: Engine[Any], request: Request, unconditional: Prompt) -> list[list[int]]:
    """The patches of one prompt, generated next to its unconditional row."""
    config, row = engine.config, RequestState.begin(request, engine.layout)
    states = [engine.start([request.prompt]), engine.start([unconditional])]
    while row.stop is None:
        draws, tokens = sampling_inputs([row], engine.layout), np.zeros((1, 0), np.int64)
        for level in config.position_levels:
            (conditional, first), (without, second) = (engine.next_logits(state, tokens) for state in states)
            states = [first, second]
            logits = np.float32(WEIGHT) * conditional + np.float32(1 - WEIGHT) * without
            pick = sample_codes(logits, level, tokens, draws)
            token = np.where(pick == config.codebook_size, config.eos, pick + level * config.codebook_size)
            tokens = np.concatenate((tokens, token[:, None]), axis=1)
            if token[0] == config.eos:
                break
        row = row.after(tokens[0], engine.layout)
        if row.stop is None:
            states = [engine.append(state, tokens) for state in states]
    return [patch.tolist() for patch in row.patches]


def test_tokens_are_sampled_from_guided_logits(engine: Engine[Any], tokenizer: BPE) -> None:
    prompts = make_prompts(tokenizer)
    spoken = speak(guided(engine, tokenizer, WEIGHT), prompts)
    expected = [by_hand(engine, request, drop_text(tokenizer)(request.prompt)) for request in make_requests(prompts)]
    assert [take.tokens.tolist() for take in spoken] == expected
    assert expected != [take.tokens.tolist() for take in speak(engine, prompts)] and min(map(len, expected)) >= 2


def test_a_patch_in_one_run_is_the_patch_made_position_by_position(toy_bundle: Path, tokenizer: BPE) -> None:
    prompts = make_prompts(tokenizer)
    engine = guided(OnnxEngine(toy_bundle / "mars6"), tokenizer, WEIGHT)
    assert isinstance(engine, GuidedEngine)
    draws = sampling_inputs(
        [RequestState.begin(request, engine.layout) for request in make_requests(prompts)], engine.layout
    )
    at_once, _ = engine.sample_patch(engine.start(prompts), draws)
    in_turn, _ = sample_positions(engine, engine.start(prompts), draws)
    np.testing.assert_array_equal(at_once, in_turn)
    assert at_once.shape == (2, 7)


def test_without_guidance_the_engine_is_left_as_it_is(engine: Engine[Any], tokenizer: BPE) -> None:
    assert guided(engine, tokenizer, 1.0) is engine


def test_drop_text_keeps_only_special_tokens(tokenizer: BPE) -> None:
    [prompt, *_] = make_prompts(tokenizer)
    bare = drop_text(tokenizer)(prompt)
    assert bare.text_ids.tolist() == tokenizer.encode(prompt_string("", quality=24_000))
    assert bare.identity is prompt.identity and bare.style is prompt.style
    assert bare.prefix_tokens is prompt.prefix_tokens


def test_a_model_is_loaded_with_the_given_guidance(toy_bundle: Path) -> None:
    assert isinstance(load(toy_bundle, guidance=2.0).engine, GuidedEngine)
    assert not isinstance(load(toy_bundle).engine, GuidedEngine)
    with pytest.raises(ConfigError, match="guidance must lie between 1"):
        load(toy_bundle, guidance=0.5)
