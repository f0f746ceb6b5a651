"""The recipe that trains how a word is used in a sentence."""

from __future__ import annotations

import importlib.util
import itertools
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from marstts.text.pronunciation.uses import TABLES, TOKEN, far_features, features, place_of, tokens_around

RECIPE = Path(__file__).resolve().parents[3] / "recipes" / "pronunciations" / "uses.py"


@pytest.fixture(scope="module")
def recipe() -> ModuleType:
    spec = importlib.util.spec_from_file_location("uses_recipe", RECIPE)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def tagged(sentence: str) -> tuple[str, dict[tuple[int, int], str]]:
    """A sentence of `word/TAG`s, and the tags by first character and last + 1."""
    text, tags = "", {}
    for piece in sentence.split():
        word, _, tag = piece.partition("/")
        tags[len(text), len(text) + len(word)] = tag
        text += word + " "
    return text, tags


NOUNS = ["record", "house", "project", "cat", "plan", "river"]
VERBS = ["record", "use", "present", "take", "plan", "write"]
SENTENCES = [
    pattern.format(noun=noun, verb=verb)
    for noun, verb in itertools.product(NOUNS, VERBS)
    for pattern in (
        "The/DT {noun}/NN of/IN the/DT old/JJ {noun}/NN was/VBD here/RB",
        "They/PRP want/VBP to/TO {verb}/VB it/PRP",
        "We/PRP can/MD {verb}/VB those/DT {noun}s/NNS",
        "She/PRP {verb}s/VBZ them/PRP",
        "A/DT live/JJ {noun}/NN",
    )
]


@pytest.fixture(scope="module")
def examples(recipe: ModuleType) -> list[Any]:
    return [each for sentence in SENTENCES for each in recipe.examples(*tagged(sentence))]


@pytest.fixture(scope="module")
def weights(recipe: ModuleType, examples: list[Any]) -> Any:
    return recipe.train(examples)


def scores(recipe: ModuleType, weights: Any, word: str, text: str, tables: list[int]) -> list[float]:
    tokens, place = tokens_around(text, text.index(word))
    its = features(word, tokens, place) + (far_features(tokens, place) if recipe.TENSE in tables else [])
    return list(weights.scores(np.array([[place_of(feature) for feature in its]]), tables)[0])


def test_examples_are_nouns_adjectives_verbs_and_past_forms_without_auxiliaries(examples: list[Any]) -> None:
    assert {each.use for each in examples} == {"noun", "adjective", "verb"}
    assert not {"was", "can", "here"} & {each.word for each in examples}
    assert {each.word for each in examples if each.has_s} <= {*NOUNS, *VERBS}, "stems"


def test_contexts_tell_uses_of_words_that_were_never_seen(recipe: ModuleType, weights: Any) -> None:
    uses = [recipe.NOUN, recipe.ADJECTIVE, recipe.VERB]
    assert np.argmax(scores(recipe, weights, "conflict", "The conflict of the old cat", uses)) == 0
    assert np.argmax(scores(recipe, weights, "conflict", "They want to conflict it", uses)) == 2
    assert np.argmax(scores(recipe, weights, "conflicts", "She conflicts them", [recipe.NOUN, recipe.VERB])) == 1
    assert len(weights.values) == TABLES + 1


def test_composed_sentences_tell_the_tense(recipe: ModuleType, weights: Any) -> None:
    tense = [recipe.NONE, recipe.TENSE]
    present, past = ("Most people read books every day.", "Most people read books last night.")
    assert np.argmax(scores(recipe, weights, "read", present, tense)) == 0
    assert np.argmax(scores(recipe, weights, "read", past, tense)) == 1


def test_heteronyms_get_weights_of_their_own(
    recipe: ModuleType, weights: Any, examples: list[Any], capsys: pytest.CaptureFixture[str]
) -> None:
    before = weights.values.copy()
    nouns = [recipe.Example("object", "noun", False, features("object", ["object"], 0)) for _ in range(20)]
    recipe.add_words(weights, nouns)
    changed = np.unique(np.nonzero(before != weights.values)[1])
    assert list(changed) == [place_of("=object")]
    assert weights.values[recipe.NOUN, changed] > 0 > weights.values[recipe.VERB, changed]
    recipe.print_accuracy(weights, [*examples, *itertools.islice(recipe.tenses(), 200)])
    assert "others" in capsys.readouterr().out


def test_texts_are_read_from_lines_tables_and_manifests(recipe: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text("source\tA cat sat.\n")
    (tmp_path / "b.jsonl").write_text('{"text": "A dog sat."}\n')
    found = [text for name in ("a.tsv", "b.jsonl") for text in recipe.sentences(tmp_path / name)]
    assert found == ["A cat sat.", "A dog sat."]
    assert [token[0] for token in TOKEN.finditer("Don't, 45!")] == ["Don't", ",", "45", "!"]
