"""Evidence of words by attention and sound: what a calibration learns, and files that are refused."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import safetensors.numpy
from test_attention_path import places_of

from marstts.bundle import find_bundle
from marstts.errors import CheckpointError, ConfigError
from marstts.synthesis.attention_path import SentencePlaces, search_path
from marstts.synthesis.flaws import FlawKind
from marstts.synthesis.forced_takes import SpokenSentence, forced_rows, said_words, speak_once
from marstts.synthesis.loading import load
from marstts.synthesis.word_calibrating import calibrate_words, learn_letters, logistic_weights
from marstts.synthesis.word_evidence import (
    CALIBRATION_FILE,
    NUM_FEATURES,
    WordCalibration,
    letter_number,
    load_calibration,
    word_features,
)

CODES = 40
SENTENCES = ("pack my box with five dozen", "quick jugs of liquid glaze", "the wizards jump over vexed lions")


def take_of(sentence: str, without: str = "") -> SpokenSentence:
    """A take with a patch for every letter, whose first token is its number; `without` is attended, not said."""
    places = places_of(sentence)
    tokens, attention = [], []
    for index, letter in enumerate(sentence):
        if sentence.find(without) <= index < sentence.find(without) + len(without):
            continue
        tokens.append([letter_number(letter), 0])
        attention.append(np.eye(len(places.spans), dtype=np.float32)[2 + index])
    if without:  # attention passes slowly over what is not said
        middle = sentence.find(without) + len(without) // 2
        for step in (sentence.find(without), sentence.find(without) + 1):
            attention[step] = np.eye(len(places.spans), dtype=np.float32)[2 + middle]
    made = SimpleNamespace(tokens=np.array(tokens), attention=tuple(attention))
    return SpokenSentence(sentence, None, made, places)  # type: ignore[arg-type]


def learned() -> WordCalibration:
    session = SimpleNamespace(
        engine=SimpleNamespace(layout=SimpleNamespace(codebook_size=CODES)),
        codec=SimpleNamespace(spec=SimpleNamespace(name="letters")),
    )
    return learn_letters(session, [take_of(sentence) for sentence in SENTENCES] * 10)  # type: ignore[arg-type]


def test_letters_are_learned_from_the_attention_of_sound_takes():
    scores = learned().letter_scores(take_of(SENTENCES[0]).tokens)
    expected = [letter_number(letter) for letter in SENTENCES[0]]
    assert np.mean(scores.argmax(axis=1) == expected) > 0.9


def test_a_word_that_is_attended_to_but_not_heard_is_the_most_suspicious():
    calibration = replace(learned(), weights=-np.eye(NUM_FEATURES + 1, dtype=np.float32)[len((3, 5, 7, 9)) + 1])
    take = take_of("quick jugs of liquid glaze", without="liquid")
    odds = calibration.suspicions(take.places, np.stack(take.generated.attention), take.tokens)
    assert take.text.split()[int(odds.argmax())] == "liquid"


def test_features_of_a_sentence_without_letters_are_finite():
    empty = SentencePlaces.of("", np.full((2, 2), -1))
    found = word_features(places_of("a"), np.zeros((4, 2), np.float32), np.ones((28, 2), np.float32))
    assert np.isfinite(found).all() and found.shape == (1, NUM_FEATURES)
    assert not empty.words


def test_logistic_weights_separate_what_can_be_separated():
    rng = np.random.default_rng(0)
    features = rng.normal(size=(200, 3)) * [1.0, 5.0, 0.1] + [0.0, 20.0, 3.0]
    labels = features[:, 1] > 22.0
    weights = logistic_weights(features, labels)
    assert np.mean((features @ weights[:-1] + weights[-1] > 0) == labels) > 0.95


def test_a_calibration_comes_back_from_its_file(tmp_path: Path):
    made = learned()
    made.save(tmp_path / CALIBRATION_FILE)
    again = load_calibration(tmp_path, "letters")
    assert again is not None and (again.codec, again.scale) == (made.codec, pytest.approx(made.scale))
    for name in ("table", "letters", "attention", "evidence", "weights"):
        np.testing.assert_array_equal(getattr(again, name), getattr(made, name))
    assert load_calibration(tmp_path / "elsewhere", "letters") is None


def test_a_calibration_for_another_codec_is_refused(tmp_path: Path):
    learned().save(tmp_path / CALIBRATION_FILE)
    with pytest.raises(CheckpointError, match=r"codec 'letters'.*bundle calibrate"):
        load_calibration(tmp_path, "snac")


@pytest.mark.parametrize("change", ["cut", "empty", "shape", "nan", "type"])
def test_a_corrupt_calibration_is_refused_in_one_sentence(tmp_path: Path, change: str):
    path, made = tmp_path / CALIBRATION_FILE, learned()
    changed = {
        "shape": replace(made, letters=made.letters[1:]),
        "nan": replace(made, weights=made.weights * np.float32(np.nan)),
        "type": replace(made, table=made.table.astype(np.int16)),
    }
    changed.get(change, made).save(path)
    if change in ("cut", "empty"):
        path.write_bytes(path.read_bytes()[: 50 if change == "cut" else 0])
    with pytest.raises(CheckpointError, match=r"words\.safetensors: expected a calibration of words"):
        load_calibration(tmp_path, "letters")


def test_a_file_of_other_tensors_is_no_calibration(tmp_path: Path):
    (tmp_path / CALIBRATION_FILE).write_bytes(safetensors.numpy.save({"a": np.zeros(3, np.float32)}))
    with pytest.raises(CheckpointError, match="expected a calibration"):
        load_calibration(tmp_path, "letters")


@pytest.mark.slow
def test_mini_has_a_calibration_and_few_sentences_make_none():
    synthesizer = load("mini")
    assert synthesizer.word_calibration is not None
    assert load_calibration(find_bundle("mini"), synthesizer.codec.spec.name) is not None
    with pytest.raises(ConfigError, match="40 sentences"):
        calibrate_words(synthesizer, ["One."], [synthesizer.open_voice("ada")])


def test_a_word_cut_out_of_a_single_take_of_mini_is_a_flaw():
    synthesizer = load("mini")
    text = "The old sailor gave them a map of the sea."
    [spoken] = speak_once(synthesizer, [text], [synthesizer.open_voice("ada")])
    words = said_words(synthesizer, spoken)
    first, last = words[text.split().index("sailor")]
    cut = np.concatenate([spoken.tokens[:first], spoken.tokens[last:]])
    for tokens, expected in ((spoken.tokens, []), (cut, ["sailor"])):
        [row] = forced_rows(synthesizer, spoken, [tokens])
        flaws = synthesizer.take_flaws(search_path(spoken.places, row.attention), row)
        assert [flaw.word for flaw in flaws if flaw.kind is FlawKind.SKIPPED] == expected


@pytest.mark.slow
def test_mini_can_be_calibrated_from_its_own_takes():
    synthesizer, rng = load("mini"), random.Random(1)
    nouns, verbs = ("sailor", "garden", "window", "letter", "doctor"), ("found", "painted", "carried", "sold")
    texts = [f"The {rng.choice(nouns)} {rng.choice(verbs)} a {rng.choice(nouns)} today." for _ in range(40)]
    voices = [synthesizer.open_voice(name) for name in ("ada", "kal")]
    seen: list[tuple[int, int]] = []
    made = calibrate_words(synthesizer, texts, voices, on_sentences=lambda done, count: seen.append((done, count)))
    assert seen[-1] == (40, 40) and made.codec == synthesizer.codec.spec.name
    [spoken] = speak_once(synthesizer, ["The doctor painted a window today."], voices, seed=5)
    odds = made.suspicions(spoken.places, np.stack(spoken.generated.attention), spoken.tokens)
    assert np.isfinite(odds).all() and odds.max() < 1.0
