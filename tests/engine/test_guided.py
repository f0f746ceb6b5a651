"""Guidance, against two utterances spoken side by side by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from marstts.checkpoint import load_bundle, load_mars6
from marstts.engine.guided import GuidedEngine, guided, without_words
from marstts.engine.onnx import OnnxEngine
from marstts.engine.torch import TorchEngine
from marstts.errors import ConfigError
from marstts.mars6.generate import (
    Generated,
    Job,
    Limits,
    Row,
    SamplingConfig,
    Stepper,
    generate,
    patch_draws,
    sample_codes,
    sample_positions,
)
from marstts.mars6.prompt import Prompt, prompt_string
from marstts.synthesis.loading import load
from marstts.text.bpe import BPE

WEIGHT = 2.5


@pytest.fixture(scope="module")
def tokenizer(toy_bundle: Path) -> BPE:
    return load_bundle(toy_bundle).tokenizer


@pytest.fixture(scope="module", params=["torch", "onnx"])
def engine(request: pytest.FixtureRequest, toy_bundle: Path) -> Stepper[Any]:
    return TorchEngine(load_mars6(toy_bundle)) if request.param == "torch" else OnnxEngine(toy_bundle / "mars6")


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


def make_jobs(prompts: list[Prompt]) -> list[Job]:
    settings = SamplingConfig(ras_window=4, ras_max_ratio=0.3)
    return [
        Job(prompt, top_p, Limits(2, 6), np.random.default_rng(seed), settings)
        for seed, (prompt, top_p) in enumerate(zip(prompts, (0.9, 0.3), strict=True))
    ]


def speak(engine: Stepper[Any], prompts: list[Prompt]) -> list[Generated]:
    jobs = make_jobs(prompts)
    return generate(
        engine,
        prompts,
        top_p=[job.top_p for job in jobs],
        limits=[job.limits for job in jobs],
        rngs=[job.rng for job in jobs],
        sampling=jobs[0].sampling,
    )


def by_hand(engine: Stepper[Any], job: Job, poorer: Prompt) -> list[list[int]]:
    """The patches of one prompt, which the engine speaks beside the poorer one."""
    config, row = engine.config, Row.begin(job, engine.config)
    states = [engine.start([job.prompt]), engine.start([poorer])]
    while row.stop is None:
        draws, tokens = patch_draws([row], config), np.zeros((1, 0), np.int64)
        for level in config.position_levels:
            (wanted, first), (without, second) = (engine.local_logits(state, tokens) for state in states)
            states = [first, second]
            logits = np.float32(WEIGHT) * wanted + np.float32(1 - WEIGHT) * without
            pick = sample_codes(logits, level, tokens, draws)
            token = np.where(pick == config.codebook_size, config.eos, pick + level * config.codebook_size)
            tokens = np.concatenate((tokens, token[:, None]), axis=1)
            if token[0] == config.eos:
                break
        row = row.after(tokens[0], config)
        if row.stop is None:
            states = [engine.append(state, tokens) for state in states]
    return [patch.tolist() for patch in row.patches]


def test_tokens_are_drawn_from_logits_pushed_away_from_wordless_ones(engine: Stepper[Any], tokenizer: BPE) -> None:
    prompts = make_prompts(tokenizer)
    spoken = speak(guided(engine, tokenizer, WEIGHT), prompts)
    wanted = [by_hand(engine, job, without_words(tokenizer)(job.prompt)) for job in make_jobs(prompts)]
    assert [take.tokens.tolist() for take in spoken] == wanted
    assert wanted != [take.tokens.tolist() for take in speak(engine, prompts)] and min(map(len, wanted)) >= 2


def test_a_patch_in_one_run_is_the_patch_made_position_by_position(toy_bundle: Path, tokenizer: BPE) -> None:
    prompts = make_prompts(tokenizer)
    engine = guided(OnnxEngine(toy_bundle / "mars6"), tokenizer, WEIGHT)
    assert isinstance(engine, GuidedEngine)
    draws = patch_draws([Row.begin(job, engine.config) for job in make_jobs(prompts)], engine.config)
    at_once, _ = engine.sample_patch(engine.start(prompts), draws)
    in_turn, _ = sample_positions(engine, engine.start(prompts), draws)
    np.testing.assert_array_equal(at_once, in_turn)
    assert at_once.shape == (2, 7)


def test_without_guidance_the_engine_is_left_as_it_is(engine: Stepper[Any], tokenizer: BPE) -> None:
    assert guided(engine, tokenizer, 1.0) is engine


def test_only_special_tokens_stay_of_a_text_without_words(tokenizer: BPE) -> None:
    [prompt, *_] = make_prompts(tokenizer)
    bare = without_words(tokenizer)(prompt)
    assert bare.text_ids.tolist() == tokenizer.encode(prompt_string("", quality=24_000))
    assert bare.identity is prompt.identity and bare.style is prompt.style
    assert bare.prefix_tokens is prompt.prefix_tokens


def test_a_model_is_loaded_with_the_guidance_asked_for(toy_bundle: Path) -> None:
    assert isinstance(load(toy_bundle, guidance=2.0).stepper, GuidedEngine)
    assert not isinstance(load(toy_bundle).stepper, GuidedEngine)
    with pytest.raises(ConfigError, match="guidance must be 1"):
        load(toy_bundle, guidance=0.5)
