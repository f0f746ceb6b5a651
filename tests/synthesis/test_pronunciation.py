"""Goodness of pronunciation: expected phones, the best path through them, and takes that are sampled again by it."""

from __future__ import annotations

import shutil
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import marstts
from marstts.audio import read, resample
from marstts.bundle import PACKAGED_MODELS
from marstts.codec.base import PhoneRecognizingCodec
from marstts.codec.mini import MiniCodec
from marstts.errors import CheckpointError
from marstts.synthesis.words.pronunciation import accepted, accepted_labels, goodness, spoken_phones
from marstts.text.phones import LABELS, VOWELS, as_characters

LABEL = {phone: number for number, phone in enumerate(LABELS, start=1)}


def collapsed(path: tuple[int, ...]) -> list[int]:
    """CTC's labels of a path: equal neighbors joined, blanks left out."""
    return [label for place, label in enumerate(path) if label and (not place or path[place - 1] != label)]


def slow_goodness(log_probs: np.ndarray, labels: list[tuple[int, ...]]) -> float:
    """By all paths of the given length."""
    steps, sizes = log_probs.shape
    fits = [
        sum(log_probs[step, label] for step, label in enumerate(path))
        for path in product(range(sizes), repeat=steps)
        if len(found := collapsed(path)) == len(labels)
        and all(label in accepting for label, accepting in zip(found, labels, strict=True))
    ]
    return (max(fits) - log_probs.max(axis=1).sum()) / len(labels) if fits else -np.inf


@pytest.mark.parametrize("labels", [[(1,)], [(1,), (2,)], [(1,), (1,)], [(2,), (1,), (2,)], [(1,), (2,), (2,)]])
def test_goodness_is_that_of_the_best_path(labels: list[tuple[int, ...]]) -> None:
    for seed in range(5):
        random = np.random.default_rng(seed).normal(size=(6, 3))
        log_probs = np.asarray(random - np.log(np.exp(random).sum(axis=1, keepdims=True)), np.float32)
        assert goodness(log_probs, labels) == pytest.approx(slow_goodness(log_probs, labels), abs=1e-4)


@pytest.mark.parametrize("labels", [[(1, 2), (1, 2)], [(1, 2), (1,)], [(1,), (1, 2), (2,)]])
def test_goodness_of_several_accepted_labels_is_at_least_that_of_the_best_path(labels: list[tuple[int, ...]]) -> None:
    """One sound may stand for two neighbors that accept several labels."""
    for seed in range(5):
        random = np.random.default_rng(seed).normal(size=(6, 3))
        log_probs = np.asarray(random - np.log(np.exp(random).sum(axis=1, keepdims=True)), np.float32)
        assert slow_goodness(log_probs, labels) - 1e-4 <= goodness(log_probs, labels) <= 0.0


def test_the_best_of_the_accepted_labels_counts() -> None:
    log_probs = np.log(np.array([[0.1, 0.1, 0.8], [0.8, 0.1, 0.1]], np.float32))
    assert goodness(log_probs, [(1, 2)]) == pytest.approx(0.0, abs=1e-6)
    assert goodness(log_probs, [(1,)]) == pytest.approx(np.log(0.1 / 0.8), abs=1e-4)


def test_more_phones_than_positions_are_the_worst() -> None:
    assert goodness(np.full((2, 3), -1.0, np.float32), [(1,), (2,), (1,)]) < -1e6


def test_words_are_expected_as_the_table_and_the_user_have_them() -> None:
    given = as_characters(["D", "AO1", "G"])
    words = {word.text: word for word in spoken_phones(f"I used that about cats, not a {given}'s.")}
    assert words["cats"].phones == ("K", "AE1", "T", "S") and not words["cats"].varies
    assert words["used"].varies and words["a"].varies, "heteronyms that no use decides, and weak forms"
    assert words[f"{given}'s"].phones == ("D", "AO1", "G", "Z")
    assert next(spoken_phones("Blorfle")).phones, "guessed"
    assert not next(spoken_phones("a" * 40)).phones, "too long for a guess"
    assert [word.text for word in spoken_phones("'Michael came,' she said; tell 'em it's 'fine'.")] == [
        "Michael", "came", "she", "said", "tell", "em", "it's", "fine",
    ]  # fmt: skip
    assert not list(spoken_phones("")) and not list(spoken_phones("…!"))


def test_weak_and_unstressed_vowels_stand_for_one_another() -> None:
    assert accepted("K", varies=True) == (LABEL["K"],) and accepted("AE1", varies=False) == (LABEL["AE"],)
    assert LABEL["IH"] in accepted("AH0", varies=False) and LABEL["AE"] not in accepted("AH0", varies=False)
    assert set(accepted("AH1", varies=True)) == {LABEL[vowel] for vowel in VOWELS}
    assert len(accepted_labels(list(spoken_phones("cats")))) == 4


SAID = "it is of the first importance that the letter used should be fine in form;"


@pytest.mark.slow
@pytest.mark.parametrize("rate", [16_000, 22_050, 44_100])
def test_what_a_person_says_is_nearer_to_its_text_than_to_others(rate: int) -> None:
    codec = marstts.load("mini").session.codec
    assert isinstance(codec, PhoneRecognizingCodec) and codec.recognizes_phones
    log_probs = codec.phone_log_probs(resample(read("examples/human.flac"), rate))
    np.testing.assert_allclose(np.exp(log_probs).sum(axis=1), 1.0, atol=1e-3)
    found = [
        goodness(log_probs, accepted_labels(list(spoken_phones(text))))
        for text in (SAID, SAID.replace("letter", "pepper"), SAID.replace("fine in form", "fine"), "nobody came.")
    ]
    assert found[0] == max(found) > -0.5 > found[-1]


@pytest.mark.slow
@pytest.mark.speaks
def test_an_unclear_sentence_is_spoken_again_until_a_take_is_clear() -> None:
    """What is kept is clear, or the attempts are used up; the paper has no such check."""
    tts = marstts.load("mini")
    backoff = tts.session.backoff
    for seed, text in enumerate(("My name is Acevedo Beauchamp.", "Stop!", "We met on Monday.")):
        take = tts.speak(text, "ada", seed=seed).takes[0]
        assert take.goodness is not None and take.goodness <= 0.0
        assert take.goodness >= backoff.min_goodness or take.attempts >= backoff.clearness_attempts
        assert tts.session.goodness(take) == pytest.approx(take.goodness, abs=1e-3)
        assert tts.session.as_in_paper().goodness(take) is None
        assert tts.session.goodness(replace(take, text="…")) is None, "no words"
        assert tts.session.goodness(replace(take, text=f"{text} {'a' * 40}")) is None, "a word without phones"


def test_takes_of_a_codec_without_a_phone_recognizer_are_kept(toy_bundle: Path, reference_file: Path) -> None:
    tts = marstts.load(toy_bundle)
    assert {take.goodness for take in tts.speak("Hello there.", str(reference_file)).takes} == {None}


@pytest.mark.slow
def test_a_phone_recognizer_that_computes_nan_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "codec"
    shutil.copytree(PACKAGED_MODELS / "mini" / "codec", folder)
    tensors = load_file(folder / "phones.safetensors")
    tensors["output.weight"][:] = np.nan
    save_file(tensors, folder / "phones.safetensors")
    with pytest.raises(CheckpointError, match=r"phones\.onnx.*NaN"):
        MiniCodec(folder).phone_log_probs(read("examples/human.flac"))
