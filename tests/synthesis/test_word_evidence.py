"""Evidence of words by attention and sound: what a calibration learns, and files that are refused."""

from __future__ import annotations

import random
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import safetensors.numpy
from test_attention_path import places_of

from marstts.bundle import find_bundle
from marstts.errors import CheckpointError, ConfigError
from marstts.generation.engine import EngineKind
from marstts.synthesis.attention_path import SentencePlaces, search_path
from marstts.synthesis.flaws import FlawKind
from marstts.synthesis.forced_takes import SpokenSentence, forced_rows, said_words, speak_once
from marstts.synthesis.loading import load, open_synthesizer
from marstts.synthesis.word_calibrating import (
    WEIGHT_PENALTY,
    calibrate_words,
    learn_letters,
    perceptron_slopes,
    train_perceptron,
    without_a_word,
)
from marstts.synthesis.word_evidence import (
    CALIBRATION_FILE,
    NUM_FEATURES,
    WordCalibration,
    letter_number,
    letter_numbers,
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


def suspected(take: SpokenSentence) -> tuple[SentencePlaces, np.ndarray, np.ndarray, np.ndarray]:
    """The inputs of suspicion."""
    path = search_path(take.places, take.generated.attention).path
    return take.places, np.stack(take.generated.attention), take.tokens, path


def test_letters_are_learned_from_the_attention_of_sound_takes():
    scores = learned().letter_scores(take_of(SENTENCES[0]).tokens)
    expected = [letter_number(letter) for letter in SENTENCES[0]]
    assert np.mean(scores.argmax(axis=1) == expected) > 0.9


def test_a_word_that_is_attended_to_but_not_heard_is_the_most_suspicious():
    hidden = np.zeros((NUM_FEATURES + 1, 1), np.float32)
    hidden[len((3, 5, 7, 9)) + 1] = -1.0  # little evidence in a window of five tokens
    calibration = replace(learned(), hidden=hidden, output=np.array([1.0, 0.0], np.float32))
    take = take_of("quick jugs of liquid glaze", without="liquid")
    odds = calibration.suspicions(*suspected(take))
    assert take.text.split()[int(odds.argmax())] == "liquid"


def test_features_of_a_word_of_one_letter_and_of_no_word_are_finite():
    empty = np.zeros((0, 2), np.int64)
    for sentence, number in (("a", 1), ("-", 0)):
        places = places_of(sentence)
        attention, path = np.zeros((1, len(places.spans)), np.float32), np.zeros(1, np.int64)
        found = word_features(learned(), places, attention, empty, path)
        assert np.isfinite(found).all() and found.shape == (number, NUM_FEATURES)


def test_the_numbers_of_letters_do_not_depend_on_the_script_around_them():
    plain = letter_numbers("It's Zoe - 7!")
    assert plain.tolist() == [letter_number(letter) for letter in "It's Zoe - 7!"]
    np.testing.assert_array_equal(letter_numbers("It's Zoe - 7!é")[:-1], plain)


def test_a_perceptron_separates_what_can_be_separated():
    rng = np.random.default_rng(0)
    features = rng.normal(size=(800, 3)) * [1.0, 5.0, 0.1] + [0.0, 20.0, 3.0]
    labels = np.abs(features[:, 1] - 20.0) > 4.0  # no line separates them
    hidden, output = train_perceptron(features, labels, rng)
    odds = np.maximum(features @ hidden[:-1] + hidden[-1], 0.0) @ output[:-1] + output[-1]
    assert np.mean((odds > 0) == labels) > 0.9


def test_slopes_of_the_perceptron_are_those_of_its_loss():
    rng = np.random.default_rng(1)
    features, labels = np.append(rng.normal(size=(9, 3)), np.ones((9, 1)), axis=1), rng.random(9) > 0.5
    hidden, output = rng.normal(size=(4, 2)), rng.normal(size=3)

    def loss(hidden: np.ndarray, output: np.ndarray) -> float:
        odds = np.maximum(features @ hidden, 0.0) @ output[:-1] + output[-1]
        penalty = 0.5 * WEIGHT_PENALTY * ((hidden[:-1] ** 2).sum() + (output[:-1] ** 2).sum())
        return float(np.mean(np.logaddexp(0.0, odds) - labels * odds) + penalty)

    of_hidden, of_output = perceptron_slopes(hidden, output, features, labels)
    for index in np.ndindex(hidden.shape):
        moved = hidden.copy()
        moved[index] += 1e-6
        assert (loss(moved, output) - loss(hidden, output)) / 1e-6 == pytest.approx(of_hidden[index], abs=1e-4)
    for index in range(len(output)):
        moved = output.copy()
        moved[index] += 1e-6
        assert (loss(hidden, moved) - loss(hidden, output)) / 1e-6 == pytest.approx(of_output[index], abs=1e-4)


def test_a_word_is_left_out_of_a_text_with_its_marks_and_not_at_its_ends():
    text = "Ah - the gentle, kind dog."
    found = {without_a_word(text, random.Random(seed)) for seed in range(20)}
    assert found == {("Ah - the kind dog.", 2), ("Ah - the gentle, dog.", 3)}
    assert without_a_word("Gentle dogs.", random.Random(0)) is None


def test_a_bundle_whose_calibration_is_refused_can_be_opened_to_calibrate_it_anew(toy_bundle, tmp_path: Path):
    bundle = tmp_path / "outdated"
    shutil.copytree(toy_bundle, bundle)
    (bundle / CALIBRATION_FILE).write_bytes(b"of an older version")
    with pytest.raises(CheckpointError, match="bundle calibrate"):
        load(bundle)
    assert open_synthesizer(bundle, EngineKind.ONNX).word_calibration is None


def test_a_calibration_comes_back_from_its_file(tmp_path: Path):
    made = learned()
    made.save(tmp_path / CALIBRATION_FILE)
    again = load_calibration(tmp_path, "letters")
    assert again is not None and (again.codec, again.scale) == (made.codec, pytest.approx(made.scale))
    for name in ("table", "letters", "attention", "evidence", "hidden", "output"):
        np.testing.assert_array_equal(getattr(again, name), getattr(made, name))
    assert load_calibration(tmp_path / "elsewhere", "letters") is None


def test_a_calibration_for_another_codec_is_refused(tmp_path: Path):
    learned().save(tmp_path / CALIBRATION_FILE)
    with pytest.raises(CheckpointError, match=r"codec 'letters'.*bundle calibrate"):
        load_calibration(tmp_path, "snac")


@pytest.mark.parametrize("change", ["cut", "empty", "shape", "nan", "units", "type"])
def test_a_corrupt_calibration_is_refused_in_one_sentence(tmp_path: Path, change: str):
    path, made = tmp_path / CALIBRATION_FILE, learned()
    changed = {
        "shape": replace(made, letters=made.letters[1:]),
        "nan": replace(made, output=made.output * np.float32(np.nan)),
        "units": replace(made, output=made.output[1:]),
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
    odds = made.suspicions(*suspected(spoken))
    assert np.isfinite(odds).all() and odds.max() < 1.0
