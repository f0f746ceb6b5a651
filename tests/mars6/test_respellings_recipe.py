"""The recipe that finds other letters for words that a model misreads."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from marstts.text.pronunciation import heteronyms
from marstts.text.pronunciation.letters_to_sounds import guess
from marstts.text.pronunciation.words import known_phones

RECIPES = Path(__file__).resolve().parents[2] / "recipes" / "mini"


def opened(name: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, RECIPES / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def reading(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    return opened("reading_model", monkeypatch)


@pytest.fixture
def recipe(reading: ModuleType, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    return opened("respellings", monkeypatch)


def examples(reading: ModuleType, words: str, *, without: str) -> list[object]:
    """Words of the table and their spellings, read well but for those with the letters `without`."""
    found = []
    for word in words.split():
        known = known_phones(word)
        assert known is not None
        written = reading.aligned(word, known.phones)
        for graphones in (written, *reading.sequences(known.phones)[:12]):
            is_good = without not in reading.letters_of(graphones)
            found.append(reading.Example(graphones, -0.1 if is_good else -1.5, 3))
    return found


PHONE_WORDS = "phone philip ralph graph phase phoebe joseph sophia murphy dolphin physics stephen"


def test_sequences_and_alignments_have_the_letters_and_the_phones(reading: ModuleType) -> None:
    for word in ("louise", "phone", "knight"):
        known = known_phones(word)
        assert known is not None
        found = reading.sequences(known.phones)
        assert len({reading.letters_of(each) for each in found}) == len(found) > 3
        for graphones in (reading.aligned(word, known.phones), *found):
            assert sum((phones for _, phones in graphones), ()) == reading.plain(known.phones)
        assert reading.letters_of(reading.aligned(word, known.phones)) == word
    assert reading.aligned("louise", ("B", "AA1")) is None


def test_letters_that_were_misread_are_predicted_to_be_misread_in_other_words(reading: ModuleType) -> None:
    model = reading.fit(examples(reading, PHONE_WORDS, without="ph"))
    for word, other in (("sphere", "sfear"), ("humphrey", "humfrey")):
        known = known_phones(word)
        assert known is not None
        written, others = (model.predict(reading.aligned(letters, known.phones)) for letters in (word, other))
        assert written < -0.8 < others


def test_the_fit_is_that_of_ridge_regression(reading: ModuleType) -> None:
    """By the matrix of all features, solved at once."""
    known = examples(reading, PHONE_WORDS, without="ph")
    model = reading.fit(known)
    names = list(model.weights)
    counts = np.array([[list(reading.features(one.graphones)).count(name) for name in names] for one in known], float)
    takes, goodness = np.array([one.takes for one in known], float), np.array([one.goodness for one in known])
    normal = counts.T @ (takes[:, None] * counts) + reading.PENALTY * np.eye(len(names))
    expected = np.linalg.solve(normal, counts.T @ (takes * (goodness - np.average(goodness, weights=takes))))
    np.testing.assert_allclose([model.weights[name] for name in names], expected, atol=1e-4)


def test_spellings_are_promising_letters_that_are_read_as_the_word(reading: ModuleType, recipe: ModuleType) -> None:
    model = reading.fit(examples(reading, PHONE_WORDS, without="ph"))
    for word in ("humphrey", "sphere", "alphonse"):
        known, found = known_phones(word), recipe.spellings(word, model)
        assert known is not None and found and len(set(found)) == len(found) <= recipe.MAX_SPELLINGS
        for letters in found:
            guessed = guess(letters)
            assert "ph" not in letters and guessed is not None and reading.plain(guessed) == reading.plain(known.phones)
    nothing_known = reading.fit(examples(reading, "anna", without="ph"))
    assert recipe.spellings("humphrey", nothing_known) == []
    assert recipe.spellings("read", model) == [] == recipe.spellings("blorfle", model), "heteronyms, unknown words"
    assert recipe.spellings("humphrey", reading.fit([])) == []


def test_letters_that_are_another_word_are_no_spelling(recipe: ModuleType) -> None:
    """Whatever the letter-to-sound model makes of them; words of the same sound are spellings."""
    assert not recipe.is_read_as("read", ("R", "AA1", "D")) and recipe.is_read_as("sites", ("S", "AY1", "T", "S"))
    for word in heteronyms.table():
        assert recipe.spellings(word, None) == []


class Scripted:
    """A judge to whom `right` are the spellings that a model reads well, `lucky` those that it does in one round.

    Whisper, if it is asked, writes the words of those that are `written`.
    """

    def __init__(self, right: set[str], lucky: set[str], written: set[str] | None = None) -> None:
        self.right, self.lucky, self.whisper = right, lucky, written
        self.asked: list[list[tuple[str, str]]] = []
        self.known: dict[tuple[str, str, int], list[float]] = {}

    def rate(self, asked: list[tuple[str, str]], takes: int, number: int) -> None:
        self.asked.append(sorted(set(asked)))
        for word, spelling in asked:
            if number == 4 and self.whisper is not None:
                self.known[word, spelling, number] = [float(spelling in self.whisper)] * takes
                continue
            is_good = spelling in self.right or (spelling in self.lucky and number < 3)
            self.known[word, spelling, number] = [-0.1 if is_good else -1.0] * takes

    def examples(self) -> list[object]:
        return []

    def mean(self, word: str, spelling: str, number: int) -> float:
        return sum(self.known[word, spelling, number]) / len(self.known[word, spelling, number])


def test_only_spellings_that_are_better_twice_are_kept(recipe: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    others = {"ann": ["an"], "louise": ["luis", "luise"], "diane": ["dyan"], "seitz": []}
    monkeypatch.setattr(recipe, "fit", lambda examples: None)
    monkeypatch.setattr(recipe, "spellings", lambda word, reading: others[word])
    judge = Scripted({"ann", "luise"}, {"dyan"})
    assert recipe.search(judge, list(others)) == {"louise": "luise"}
    assert recipe.search(judge, list(others), -0.05) == {}, "what is better may not be clear"
    assert ("ann", "an") not in judge.asked[1], "it is read well"
    last = [("diane", "diane"), ("diane", "dyan"), ("louise", "louise"), ("louise", "luise")]
    assert judge.asked[2] == judge.asked[5] == last


def test_present_letters_stay_unless_others_are_better(recipe: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    others = {"louise": ["luise"], "diane": ["dyan"], "ann": [], "seitz": ["sytes"]}
    present = {"louise": "luis", "diane": "diann", "ann": "an", "seitz": "sites"}
    monkeypatch.setattr(recipe, "fit", lambda examples: None)
    monkeypatch.setattr(recipe, "spellings", lambda word, reading: others[word])
    judge = Scripted({"luise", "diann", "ann"}, {"sytes"})
    found = recipe.search(judge, list(others), present=present)
    assert found == {"louise": "luise", "diane": "diann", "ann": "an", "seitz": "sites"}


def test_letters_that_whisper_writes_less_often_are_taken_back(
    recipe: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    others = {"louise": ["luise"], "diane": ["dyan"], "seitz": ["sytes"], "ann": []}
    present = {"seitz": "sites", "ann": "an"}
    monkeypatch.setattr(recipe, "fit", lambda examples: None)
    monkeypatch.setattr(recipe, "spellings", lambda word, reading: others[word])
    better = {"luise", "dyan", "sytes"}
    judge = Scripted(better, set(), {"luise", "diane", "sites"})
    assert recipe.search(judge, ["louise", "diane"]) == {"louise": "luise"}
    judge = Scripted(better, set(), {"luise", "diane", "sites"})
    assert recipe.search(judge, ["seitz", "ann"], present=present) == present
    assert judge.asked[-1] == [("seitz", "sites"), ("seitz", "sytes")], "letters that stay are not asked for"


def test_a_word_is_written_where_its_phones_are(recipe: ModuleType) -> None:
    assert recipe.is_written("sites", ["see", "sights"]) and not recipe.is_written("sites", ["see", "seats"])
    assert recipe.is_written("blorfle", ["blorfle"]) and not recipe.is_written("blorfle", ["blarfle"])


def test_words_are_those_of_the_table_each_once(recipe: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "words.txt").write_text("Louise\nlouise\nBlorfle\nO'Neil\nal\n")
    assert list(recipe.lines(tmp_path / "words.txt")) == ["louise"]


def test_measurements_are_kept(recipe: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a file has is not spoken again."""
    state = tmp_path / "state.jsonl"
    state.write_text(json.dumps({"word": "ann", "spelling": "ann", "round": 1, "goodness": [-0.5, -0.7]}) + "\n")
    judge = recipe.Judge("mini", [], state)
    judge.rate([("ann", "ann")], 2, 1)
    assert judge.mean("ann", "ann", 1) == pytest.approx(-0.6)
    [example] = judge.examples()
    assert example.goodness == pytest.approx(-0.6) and example.takes == 2


def test_words_are_searched_with_all_that_earlier_ones_taught(
    recipe: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A chunk has its reading model fitted to the chunks before, too."""
    seen = []
    monkeypatch.setattr(recipe, "CHUNK", 2)
    monkeypatch.setattr(recipe, "fit", len)
    monkeypatch.setattr(recipe, "spellings", lambda word, reading: seen.append((word, reading)) or [])
    judge = Scripted(set(), set())
    monkeypatch.setattr(judge, "examples", lambda: list(judge.known), raising=False)
    assert recipe.search(judge, ["ann", "diane", "louise"]) == {}
    assert seen == [("ann", 2), ("diane", 2), ("louise", 3)]
