"""The recipe by which MARS6 learns from the words of its own takes."""

from __future__ import annotations

import importlib.util
import random
import re
import sys
from collections.abc import Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from toy_pairs import CONFIG, PAIRS, PROMPT_OF, SPEECH, model

from marstts.audio import Waveform
from marstts.errors import ConfigError
from marstts.generation.request import SamplingConfig
from marstts.mars6.config import eos_patch, patchify
from marstts.mars6.model import Mars6
from marstts.synthesis.backoff import BackoffConfig
from marstts.synthesis.words.pronunciation import SpokenWord, accepted_labels, goodness, spoken_phones
from marstts.text.phones import PHONE_RUN, without_phones
from marstts.text.pronunciation.heteronyms import UsedWord, in_context, table
from marstts.text.pronunciation.words import WORD
from marstts_lab.training.loop import run
from marstts_lab.training.mars6.run_folder import trained_model

RECIPE = Path(__file__).resolve().parents[3] / "recipes" / "mini" / "policy_gradient.py"


@pytest.fixture
def recipe(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    spec = importlib.util.spec_from_file_location("policy_gradient_recipe", RECIPE)
    assert spec is not None and spec.loader is not None
    monkeypatch.syspath_prepend(str(RECIPE.parent))
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
    first, missing, second = recipe.advantages_over_mean([clear, None, unclear])
    assert missing is None
    np.testing.assert_allclose(first, [0.0, 2.0, 0.2], atol=1e-9)  # 2.5, bounded
    np.testing.assert_allclose(second, [0.0, -2.0, -0.2], atol=1e-9)
    assert recipe.advantages_over_mean([None, None]) == [None, None]


def test_an_advantage_counts_where_its_token_is_said_and_the_last_one_until_the_end(recipe: ModuleType) -> None:
    spans = np.array([[0.0, 0.2], [np.nan, np.nan], [1.0, 1.2]])
    found = recipe.patch_advantages(np.array([1.0, 9.0, -1.0]), spans, 20, 12.5)
    said, last = found > 0, found < 0
    assert said[0] and not said[5:].any()
    assert last[12] and last[-1] and not last[:10].any()
    assert not found[6:10].any()  # a token without a time counts nowhere


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
@pytest.mark.parametrize("trained", [("encoder.*", "global_decoder.*"), ("*.cross_attention.key_value.*",)])
def test_only_parameters_of_the_patterns_learn(recipe: ModuleType, tmp_path: Path, trained: tuple[str, ...]) -> None:
    task = recipe.PolicyTask(settings(recipe, trained=trained), model(), lambda *_: takes(recipe, 1.0, 0.0))
    run(task, task.config.loop, tmp_path)
    parts = [pattern.strip("*") for pattern in trained]
    for name, before in model().named_parameters():
        after = task.model.get_parameter(name)
        assert torch.equal(before, after) != any(part in name for part in parts), name
    with pytest.raises(ConfigError, match="none matches 'decoder'"):
        recipe.PolicyTask(settings(recipe, trained=("encoder.*", "decoder")), model(), None)


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
    samples_of_patch = 1920

    def decode(self, codes: Any, voice: Any) -> Waveform:
        samples = np.zeros(len(codes[0]) * self.samples_of_patch, np.float32)
        samples[:: self.samples_of_patch] = 0.5
        return Waveform(samples, 24_000)


def rollout_of(recipe: ModuleType, judges: list[Any], session: Session | None = None, **changes: Any) -> Any:
    config = settings(recipe, texts_per_step=2, takes=3, **changes)
    return recipe.Rollout(
        config, replace(SPEECH, sampling=SamplingConfig()), session or Session(), [pair.voice for pair in PAIRS],
        lambda rng: iter(["The cat sat.", "She sells."]), judges,
    )  # fmt: skip


def ends(found: list[Any]) -> list[bool]:
    return [bool(one.patches[-1, 0] == CONFIG.eos) for one in found]


def test_takes_of_a_text_are_sampled_read_and_rated(recipe: ModuleType) -> None:
    read: list[Any] = []

    def words(take: Any) -> Any:
        read.append(take)
        return recipe.Reading(np.array([-1.0 * (len(read) % 3), -0.5]), np.array([[0.0, 0.1], [0.1, 0.2]]))

    rollout = rollout_of(recipe, [(SimpleNamespace(read=words), 1.0)])
    found = rollout(model(), 0)
    assert len(found) == 6 and {len(one.advantages) - len(one.patches) for one in found} == {0}
    assert sum(ends(found)) == len(read) and {take.line.text for take in read} <= {"The cat sat.", "She sells."}
    assert all(
        (one.advantages == recipe.ENDLESS).all() for one, ended in zip(found, ends(found), strict=True) if not ended
    )
    again = rollout(model(), 0)
    assert all(np.array_equal(one.patches, other.patches) for one, other in zip(found, again, strict=True))


def test_judges_add_up_by_their_weights_and_those_that_cannot_rate_a_text_count_nothing(recipe: ModuleType) -> None:
    counts = {"a": 0, "b": 0}

    def judge(name: str, step: float) -> Any:
        def read(_: Any) -> Any:
            counts[name] += 1
            return recipe.Reading(np.array([step * counts[name]]), np.array([[0.0, 0.1]]))

        return SimpleNamespace(read=read)

    silent = SimpleNamespace(read=lambda take: None)
    alone = rollout_of(recipe, [(judge("a", 0.01), 1.0)])(model(), 0)
    both = rollout_of(recipe, [(judge("b", 0.01), 1.0), (silent, 5.0)])(model(), 0)
    for one, other in zip(alone, both, strict=True):
        np.testing.assert_allclose(one.advantages, other.advantages)
    counts.update(a=0, b=0)
    doubled = rollout_of(recipe, [(judge("a", 0.01), 1.0), (judge("b", 0.02), 0.5)])(model(), 0)
    for one, other, ended in zip(alone, doubled, ends(alone), strict=True):
        np.testing.assert_allclose(other.advantages, one.advantages * (2 if ended else 1), atol=1e-9)
    loud = rollout_of(recipe, [(judge("a", 100.0), 9.0)])(model(), 0)
    assert max(np.abs(one.advantages).max() for one in loud) <= 3.0


def test_a_take_with_hardly_any_sound_is_as_bad_as_one_without_an_end(recipe: ModuleType) -> None:
    session = Session()
    session.samples_of_patch = 1
    never = SimpleNamespace(read=lambda take: pytest.fail("read a take of some samples"))
    found = rollout_of(recipe, [(never, 1.0)], session)(model(), 0)
    assert all((one.advantages == recipe.ENDLESS).all() for one in found)


def test_some_texts_are_prompted_with_words_in_phones(recipe: ModuleType) -> None:
    rollout = rollout_of(recipe, [], questions_per_step=1, phones_per_step=1)
    first, second = rollout.lines(random.Random(0))
    assert (first.said, first.text, second.text) == ("The cat sat.", "The cat sat.", "She sells.")
    prompted = {recipe.with_words_in_phones("She met Anna Reyes at the Zoo.", random.Random(seed)) for seed in range(9)}
    assert len(prompted) > 3
    assert all(without_phones(text).startswith("She ") or PHONE_RUN.match(text) for text in prompted)
    assert all("Anna" not in text and "Reyes" not in text and text.endswith(".") for text in prompted)


def test_a_step_begins_with_yes_no_questions_and_heteronyms_and_has_no_text_that_is_kept(recipe: ModuleType) -> None:
    asked = lambda _: iter(["He will come.", "Is it 5?", "Are you in?", "Where is it?", "Can we go?"])  # noqa: E731
    others = lambda _: iter(["It is 5.", "A cat sat.", "Go on."])  # noqa: E731
    texts = recipe.texts_of_step(asked, others, ["a cat sat.", "It is five.", "Are you in?"], 2)
    assert list(texts(random.Random(0))) == ["Is it five?", "Can we go?", "A cat sat.", "Go on."]
    assert next(iter(recipe.texts_of_step(asked, others, [], 0)(random.Random(0)))) == "It is five."
    question, used, *_ = recipe.texts_of_step(asked, others, [], 1, 1)(random.Random(0))
    assert question == "Is it five?" and used_in(used)


def used_in(text: str) -> list[UsedWord]:
    """The heteronyms of a text."""
    found = (in_context(word[0], text, word.start()) for word in WORD.finditer(text))
    return [one for one in found if one]


def test_heteronyms_are_used_as_nouns_and_verbs_and_differ_in_more_than_stress(recipe: ModuleType) -> None:
    found = [used_in(text) for text in islice(recipe.heteronym_texts(random.Random(1)), 300)]
    assert {len(used) for used in found} == {1}
    assert {used.use for (used,) in found} == {"noun", "verb"}
    for (used,) in found:
        noun, verb = (" ".join(table()[used.word].phones(use)) for use in ("noun", "verb"))
        assert re.sub("[012]", "", noun) != re.sub("[012]", "", verb)


def spoken_take(recipe: ModuleType, text: str, samples: np.ndarray, rate: int = 16_000) -> Any:
    line = recipe.Line(text, PAIRS[0].voice)
    return recipe.SpokenTake(line, (np.zeros(12, np.int64),), Waveform(samples.astype(np.float32), rate), 0.5)


def test_the_rise_of_a_yes_no_question_counts_at_its_end(recipe: ModuleType) -> None:
    asked: list[float] = []

    def rise(codes: Any, voice: Any, end: float) -> float:
        asked.append(end)
        return 20.0 if len(asked) == 1 else -1.0

    judge = recipe.RiseJudge(SimpleNamespace(rise=rise))
    take = spoken_take(recipe, "Is it far?", np.ones(16_000))
    high, level = judge.read(take), judge.read(take)
    assert asked == [1.5, 1.5] and high.values[0] == pytest.approx(4.0 / 2.5) and level.values[0] < 0
    np.testing.assert_allclose(high.spans, [[0.5, 1.0]])
    assert judge.read(spoken_take(recipe, "It is far.", np.ones(16_000))) is None


def emitted(labels: list[int], wrong: dict[int, int], positions: int = 3) -> np.ndarray:
    """Log-probabilities of labels in order, each for some positions; `wrong`: the label of a place that is louder."""
    log_probs = np.full((len(labels) * positions, 40), -9.0, np.float32)
    for place, label in enumerate(labels):
        log_probs[place * positions : (place + 1) * positions, label] = -0.1
        if place in wrong:
            log_probs[place * positions : (place + 1) * positions, wrong[place]] = 0.9
    return log_probs


def test_goodness_is_divided_among_the_words_along_the_best_path(recipe: ModuleType) -> None:
    text = "Big red dogs."
    words = list(spoken_phones(text))
    labels = [label for (label, *_) in accepted_labels(words)]
    log_probs = emitted(labels, {4: 39 if labels[4] != 39 else 38})  # a phone of "red"
    found = recipe.word_goodness(log_probs, words)
    assert [value < -0.5 for value in found.values] == [False, True, False]
    counts = [len(word.phones) for word in words]
    total = float((found.values * counts).sum()) / sum(counts)
    assert total == pytest.approx(goodness(log_probs, accepted_labels(words)), abs=1e-5)
    starts, stops = found.spans[:, 0], found.spans[:, 1]
    edges = np.cumsum([0, *counts]) * 3 * 0.02
    np.testing.assert_allclose(starts, edges[:-1], atol=0.05)
    np.testing.assert_allclose(stops, edges[1:], atol=0.05)
    assert recipe.word_goodness(log_probs[: len(labels)], words) is None


@pytest.mark.parametrize("seed", range(5))
def test_the_goodness_of_words_adds_up_to_that_of_the_take_whatever_was_said(recipe: ModuleType, seed: int) -> None:
    words = list(spoken_phones("Seven old radios, and some more."))
    logits = np.random.default_rng(seed).normal(size=(90, 40)) / 2
    log_probs = (logits - np.logaddexp.reduce(logits, axis=1, keepdims=True)).astype(np.float32)
    counts = np.array([len(word.phones) for word in words])
    found = recipe.word_goodness(log_probs, words)
    assert (found.values > recipe.LEAST_GOODNESS).all(), "bounded values do not add up"
    total = float((found.values * counts).sum() / counts.sum())
    assert total == pytest.approx(goodness(log_probs, accepted_labels(words)), abs=1e-5)
    assert (np.diff(found.spans[:, 0]) > 0).all() and (found.spans[1:, 0] >= found.spans[:-1, 1] - 1e-9).all()


def test_sounds_are_those_of_the_prompt_and_texts_without_phones_are_not_rated(recipe: ModuleType) -> None:
    codec = SimpleNamespace(phone_log_probs=lambda waveform: emitted([1] * 40, {}))
    judge = recipe.SoundJudge(codec)
    take = spoken_take(recipe, "Big dogs.", np.ones(16_000))
    assert len(judge.read(take).values) == 2
    prompted = replace(take, line=replace(take.line, prompted="\U0001bc0a dogs."))
    assert len(judge.read(prompted).values) == 2
    assert judge.read(spoken_take(recipe, "...", np.ones(16_000))) is None


def said_as(text: str, word: str, phones: Sequence[str]) -> np.ndarray:
    """Log-probabilities of a text whose heteronym has these phones."""
    said = [
        SpokenWord(one.text, tuple(phones) if one.text == word else one.phones, varies=False)
        for one in spoken_phones(text)
    ]
    return emitted([labels[0] for labels in accepted_labels(said)], {})


@pytest.mark.parametrize("text", ["We saw their record today.", "Nobody wants to record it."])
def test_a_heteronym_counts_by_how_much_nearer_it_is_to_its_own_use(recipe: ModuleType, text: str) -> None:
    (used,) = used_in(text)
    other = table()["record"].phones("verb" if used.use == "noun" else "noun")
    values = []
    for phones in (used.phones, other):
        log_probs = said_as(text, "record", phones)
        judge = recipe.UseJudge(SimpleNamespace(phone_log_probs=lambda _, found=log_probs: found))
        reading = judge.read(spoken_take(recipe, text, np.ones(16_000)))
        ((start, end),) = reading.spans
        before = sum(len(one.phones) for one in spoken_phones(text[: text.index("record")]))
        assert start == pytest.approx(before * 3 * 0.02, abs=0.1) and end > start
        values.append(float(reading.values[0]))
    assert values[0] > 0 > values[1]


@pytest.mark.parametrize("text", ["This is a garden.", "Records fall.", "I like records.", "He went to insult them."])
def test_texts_without_a_heteronym_that_sounds_like_its_use_are_not_rated(recipe: ModuleType, text: str) -> None:
    judge = recipe.UseJudge(SimpleNamespace(phone_log_probs=lambda _: emitted([1] * 40, {})))
    assert judge.read(spoken_take(recipe, text, np.ones(16_000))) is None


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
    found = judge.read(spoken_take(recipe, "Hi there.", np.zeros(4 * 16_000)))
    features, text = asked
    assert features.shape == (80, 500) and text == " Hi there."
    np.testing.assert_allclose(found.values, [np.log(0.5), -6.0, 0.0])
    np.testing.assert_allclose(found.spans, [[0.0, 0.1], [0.1, 0.12], [np.nan, np.nan]])
