"""The recipe by which MARS6 learns from the words of its own takes."""

from __future__ import annotations

import importlib.util
import random
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from toy_pairs import CONFIG, PAIRS, PROMPT_OF, SPEECH, model

from marstts.audio import Waveform
from marstts.generation.request import SamplingConfig
from marstts.mars6.config import eos_patch, patchify
from marstts.mars6.model import Mars6
from marstts.synthesis.backoff import BackoffConfig
from marstts_lab.training.loop import run
from marstts_lab.training.mars6.run_folder import trained_model

RECIPE = Path(__file__).resolve().parents[3] / "recipes" / "mini" / "policy_gradient.py"


@pytest.fixture
def recipe(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    spec = importlib.util.spec_from_file_location("policy_gradient_recipe", RECIPE)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)
    spec.loader.exec_module(module)
    return module


def settings(recipe: ModuleType, **changes: Any) -> Any:
    values = {
        "loop": {"steps": 8, "log_every": 1, "validate_every": 100}, "precision": "fp32", "rows_per_batch": 3,
        "optimizer": {"learning_rate": 2e-3, "warmup_steps": 0, "ema_decay": 0.0, "schedule": "constant"},
    }  # fmt: skip
    return recipe.PolicyConfig.model_validate(values | changes)


def takes(recipe: ModuleType, first: float, second: float) -> list[Any]:
    """The chosen sides of the pairs, and their rejected sides, with an advantage each."""
    found = []
    for pair in PAIRS:
        prompt = PROMPT_OF(pair.line.text, pair.voice)
        for side, value in ((pair.chosen, first), (pair.rejected, second)):
            tokens = patchify(side, CONFIG.patch_layout, CONFIG.codebook_size)
            patches = np.concatenate([tokens, *[eos_patch(CONFIG)]])
            found.append(recipe.RatedTake(prompt, patches, np.full(len(patches), value)))
    return found


def first_codes(of: Mars6, one: Any) -> torch.Tensor:
    """(T,) log-probabilities of the first code of each patch, one take at a time."""
    prompt, patches = one.prompt, torch.from_numpy(one.patches)[None]
    with torch.no_grad():
        output = of(
            torch.from_numpy(prompt.text_ids)[None], torch.tensor([len(prompt.text_ids)]),
            torch.from_numpy(prompt.identity)[None], torch.from_numpy(prompt.style)[None],
            patches, torch.tensor([patches.shape[1]]),
        )  # fmt: skip
    targets = patches[0, :, 0].clone()
    targets[targets == CONFIG.eos] = CONFIG.codebook_size
    return output.logits[0][:, 0].log_softmax(-1).gather(1, targets[:, None])[:, 0]


def test_a_token_is_compared_with_itself_in_the_other_takes_of_its_text(recipe: ModuleType) -> None:
    clear, unclear = np.array([-0.1, -0.2, -0.1]), np.array([-0.1, -5.2, -0.5])
    first, missing, second = recipe.token_advantages([clear, None, unclear])
    assert missing is None
    np.testing.assert_allclose(first, [0.0, 2.0, 0.2], atol=1e-9)  # 2.5, bounded
    np.testing.assert_allclose(second, [0.0, -2.0, -0.2], atol=1e-9)
    assert recipe.token_advantages([None, None]) == [None, None]


def test_an_advantage_counts_where_its_token_is_said_and_the_last_one_until_the_end(recipe: ModuleType) -> None:
    spans = np.array([[0.0, 0.2], [np.nan, np.nan], [1.0, 1.2]])
    found = recipe.patch_advantages(np.array([1.0, 9.0, -1.0]), spans, 20, 12.5)
    said, last = found > 0, found < 0
    assert said[0] and not said[5:].any()
    assert last[12] and last[-1] and not last[:10].any()
    assert not found[6:10].any()  # a token without a time counts nowhere
    crowded = recipe.patch_advantages(np.full(9, 1.0), np.tile([0.4, 0.6], (9, 1)), 20, 12.5)
    assert crowded.max() == 3.0


@pytest.mark.slow
def test_codes_with_an_advantage_become_likelier_than_those_without(recipe: ModuleType, tmp_path: Path) -> None:
    rated = takes(recipe, 1.0, -1.0)
    before = [float(first_codes(model(), one).mean()) for one in rated]
    task = recipe.PolicyTask(settings(recipe), model(), lambda *_: rated)
    recipe.write_config(recipe.PolicyRun(model=CONFIG, training=task.config), tmp_path / "config.json")
    run(task, task.config.loop, tmp_path)
    after = [float(first_codes(trained_model(tmp_path), one).mean()) for one in rated]
    gains = np.subtract(after, before)
    assert (gains[::2] > gains[1::2] + 0.1).all()
    kept, changed = model().local_decoder.state_dict(), task.model.local_decoder.state_dict()
    assert all(torch.equal(kept[name], changed[name]) for name in kept)


def test_the_loss_is_the_mean_of_advantage_times_log_probability_over_patches(recipe: ModuleType) -> None:
    rng = np.random.default_rng(3)
    rated = [
        recipe.RatedTake(one.prompt, one.patches, rng.standard_normal(len(one.patches)))
        for one in takes(recipe, 0.0, 0.0)
    ]
    task = recipe.PolicyTask(settings(recipe), model(), lambda *_: rated)
    policy, words, fine = task.losses(rated).tolist()
    products = [first_codes(model(), one) * torch.from_numpy(one.advantages) for one in rated]
    assert policy == pytest.approx(-float(torch.cat(products).mean()), abs=1e-5)
    assert words == pytest.approx(0.0, abs=1e-6) and fine == pytest.approx(0.0, abs=1e-6)  # it is the initial model


@pytest.mark.slow
def test_the_divergence_holds_what_no_advantage_asks_for(recipe: ModuleType) -> None:
    def moved(weight: float) -> float:
        task = recipe.PolicyTask(settings(recipe, kl_weight=weight), model(), lambda *_: takes(recipe, 1.0, 0.0))
        for step in range(6):
            found = task.train_step(step)
        return float(found["kl_words"])

    assert moved(20.0) < moved(0.0) / 3


class Session:
    """A session whose sound is silence with a click at the beginning of each patch."""

    codec = SimpleNamespace(spec=SimpleNamespace(patch_rate=12.5))
    backoff = BackoffConfig()

    def decode(self, codes: Any, voice: Any) -> Waveform:
        samples = np.zeros(len(codes[0]) * 1920, np.float32)
        samples[::1920] = 0.5
        return Waveform(samples, 24_000)


def test_takes_of_a_text_are_sampled_read_and_rated(recipe: ModuleType) -> None:
    heard: list[str] = []

    def read(samples: np.ndarray, text: str) -> Any:
        heard.append(text)
        number = len(heard)
        return recipe.Reading(np.array([-1.0 * (number % 3), -0.5]), np.array([[0.0, 0.1], [0.1, 0.2]]))

    speech = replace(SPEECH, sampling=SamplingConfig())
    config = settings(recipe, texts_per_step=2, takes=3)
    voices = [pair.voice for pair in PAIRS]
    rollout = recipe.Rollout(
        config, speech, Session(), voices, lambda rng: iter(["The cat sat.", "She sells."]), SimpleNamespace(read=read)
    )
    found = rollout(model(), 0)
    assert len(found) == 6 and {len(one.advantages) - len(one.patches) for one in found} == {0}
    ended = [one for one in found if one.patches[-1, 0] == CONFIG.eos]
    assert len(ended) == len(heard)
    assert all((one.advantages == recipe.ENDLESS).all() for one in found if one.patches[-1, 0] != CONFIG.eos)
    again = rollout(model(), 0)
    assert all(np.array_equal(one.patches, other.patches) for one, other in zip(found, again, strict=True))


def test_kept_texts_are_not_spoken(recipe: ModuleType) -> None:
    texts = recipe.without_tests(lambda _: iter(["It is 5.", "A cat sat.", "Go on."]), ["a cat sat.", "It is five."])
    assert list(texts(random.Random(0))) == ["A cat sat.", "Go on."]


def test_whisper_is_asked_for_the_given_text_in_a_window_as_long_as_the_take(
    recipe: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []

    class Whisper:
        def __init__(self, source: str, **_: Any) -> None:
            self.hf_tokenizer, self.model = self, self

        def token_to_id(self, token: str) -> int:
            return 7

        def encode(self, given: Any, **_: Any) -> Any:
            asked.append(given)
            return SimpleNamespace(ids=[1, 2, 3]) if isinstance(given, str) else given

        def align(self, encoded: Any, start: list[int], texts: Any, frames: list[int], **_: Any) -> list[Any]:
            assert (start, texts, frames) == ([7], [[1, 2, 3]], [encoded.shape[1]])
            return [SimpleNamespace(text_token_probs=[0.5, 0.0, 1.0], alignments=[(0, 0), (0, 4), (1, 5), (3, 9)])]

    extractor = SimpleNamespace(
        FeatureExtractor=lambda chunk_length: lambda samples: np.ones((80, len(samples) // 160))
    )
    package = SimpleNamespace(WhisperModel=Whisper, feature_extractor=extractor)
    monkeypatch.setitem(sys.modules, "faster_whisper", package)
    judge = recipe.TextJudge("tiny.en")
    assert judge.read(np.zeros(800, np.float32), "Hi.") is None
    found = judge.read(np.zeros(4 * 16_000, np.float32), "Hi there.")
    features, text = asked
    assert features.shape == (80, 500) and text == " Hi there."
    np.testing.assert_allclose(found.log_probs, [np.log(0.5), -6.0, 0.0])
    np.testing.assert_allclose(found.spans, [[0.0, 0.1], [0.1, 0.12], [np.nan, np.nan]])
