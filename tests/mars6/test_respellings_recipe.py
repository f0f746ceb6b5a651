"""The recipe that finds other letters for words that a model misreads."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType

import pytest

from marstts.text.pronunciation.letters_to_sounds import guess
from marstts.text.pronunciation.words import known_phones

RECIPE = Path(__file__).resolve().parents[2] / "recipes" / "mini" / "respellings.py"


@pytest.fixture
def recipe(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    spec = importlib.util.spec_from_file_location("respellings", RECIPE)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)
    spec.loader.exec_module(module)
    return module


def test_spellings_are_other_letters_that_are_read_as_the_word(recipe: ModuleType) -> None:
    for word in ("louise", "seitz", "phone"):
        known, found = known_phones(word), recipe.spellings(word, 3)
        assert known is not None and found and word not in found and len(set(found)) == len(found)
        for letters in found:
            reading = guess(letters)
            assert reading is not None and recipe.plain(reading) == recipe.plain(known.phones)
    assert recipe.spellings("read", 3) == [] == recipe.spellings("blorfle", 3), "heteronyms, words without phones"


class Scripted:
    """A judge to whom `right` are the spellings that a model reads well, `lucky` those that it does in one round."""

    def __init__(self, right: set[str], lucky: set[str]) -> None:
        self.right, self.lucky = right, lucky
        self.asked: list[list[tuple[str, str]]] = []
        self.known: dict[tuple[str, str, int], list[float]] = {}

    def rate(self, asked: list[tuple[str, str]], takes: int, number: int) -> None:
        self.asked.append(sorted(set(asked)))
        for word, spelling in asked:
            is_good = spelling in self.right or (spelling in self.lucky and number < 3)
            self.known[word, spelling, number] = [-0.1 if is_good else -1.0] * takes

    def mean(self, word: str, spelling: str, number: int) -> float:
        return sum(self.known[word, spelling, number]) / len(self.known[word, spelling, number])


def test_only_spellings_that_are_better_twice_are_kept(recipe: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    others = {"ann": ["an"], "louise": ["luis", "luise"], "diane": ["dyan"], "seitz": []}
    monkeypatch.setattr(recipe, "spellings", lambda word, most: others[word])
    judge = Scripted({"ann", "luise"}, {"dyan"})
    assert recipe.search(judge, list(others)) == {"louise": "luise"}
    assert ("ann", "an") not in judge.asked[1], "it is read well"
    assert judge.asked[2] == [("diane", "diane"), ("diane", "dyan"), ("louise", "louise"), ("louise", "luise")]


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
