"""The recipe that finds other letters for nouns and verbs that are written alike."""

from __future__ import annotations

import importlib.util
import json
import shutil
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from marstts.bundle import read_info, write_info
from marstts.mars6.bundled import parse_settings
from marstts.text.phones import LABELS
from marstts.text.pronunciation.heteronyms import table
from marstts.text.pronunciation.letters_to_sounds import guess

FOLDER = Path(__file__).resolve().parents[2] / "recipes" / "mini"


@pytest.fixture
def recipe(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(FOLDER))
    spec = importlib.util.spec_from_file_location("heteronyms_recipe", FOLDER / "heteronyms.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)
    spec.loader.exec_module(module)
    return module


def test_spellings_are_read_as_the_use_but_for_weak_vowels(recipe: ModuleType) -> None:
    for word, use in (("wind", "verb"), ("rebel", "noun"), ("protest", "verb")):
        found = recipe.spellings(word, use)
        assert found and word not in found and len(set(found)) == len(found)
        for letters in found:
            if "-" not in letters:
                reading, phones = guess(letters), table()[word].phones(use)
                assert reading is not None
                is_exact = recipe.without_stress(reading) == recipe.without_stress(phones)
                assert is_exact or recipe.relax(reading) == recipe.relax(phones), letters
    assert "pro-test" in recipe.spellings("protest", "verb")


def test_uses_that_differ_in_stress_alone_are_left_out(recipe: ModuleType) -> None:
    found = list(recipe.uses())
    assert ("record", "noun") in found and ("record", "verb") in found and ("insult", "noun") not in found


def test_a_take_is_measured_by_the_phones_of_both_uses(recipe: ModuleType) -> None:
    """log-probabilities of exactly the phones of the verb"""

    class Codec:
        def phone_log_probs(self, waveform: Any) -> np.ndarray:
            places = [labels[0] for labels in recipe.expected_labels("They wind it.", "wind", "verb")]
            frames = [place for each in places for place in (each, 0)]
            log_probs = np.full((len(frames), 1 + len(LABELS)), -9.0, np.float32)
            log_probs[np.arange(len(frames)), frames] = -0.01
            return log_probs

    judge = recipe.Judge.__new__(recipe.Judge)
    judge.session = type("Session", (), {"codec": Codec()})()
    as_verb = judge.measure(None, "They wind it.", recipe.Spoken("wind", "verb", "whined"))
    as_noun = judge.measure(None, "They wind it.", recipe.Spoken("wind", "noun", "wind"))
    assert as_verb.goodness == pytest.approx(0, abs=0.01) and as_verb.margin > 5
    assert as_noun.margin == pytest.approx(-as_verb.margin) and as_noun.goodness < as_verb.goodness


class Scripted:
    """What spellings are: right, right in the first rounds alone, mumbled, or not what Whisper writes; others wrong."""

    def __init__(self, recipe: ModuleType, state: Path, kinds: dict[str, str]) -> None:
        class Judge(recipe.Judge):  # type: ignore[name-defined, misc]
            def __init__(self) -> None:
                self.state, self.known, self.asked = state, {}, set()

            def speak(self, group: list[Any], takes: int, number: int) -> dict[Any, list[Any]]:
                assert len({each.word for each in group}) == len(group), "a word has one spelling at a time"
                self.asked |= {(each.spelling, number) for each in group}
                return {each: [self.take(each.spelling, number)] * takes for each in group}

            def take(self, spelling: str, number: int) -> Any:
                kind = kinds.get(spelling, "wrong")
                is_right = kind in ("right", "mumbled", "unwritten") or (kind == "lucky" and number < recipe.LAST)
                return recipe.Measured(-0.8 if kind == "mumbled" else -0.2, 3.0 if is_right else -3.0, kind == "right")

        self.judge = Judge()


def test_only_letters_that_are_right_and_clear_in_every_round_are_kept(
    recipe: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    others = {"record": ["reckerd"], "wind": ["whined"], "live": ["lyve"], "tear": ["tare"], "rebel": ["rebble"]}
    kinds = {"reckerd": "right", "whined": "lucky", "tare": "mumbled", "rebel": "wrong", "rebble": "unwritten"}
    monkeypatch.setattr(recipe, "uses", lambda: ((word, use) for word in others for use in ("noun", "verb")))
    monkeypatch.setattr(recipe, "spellings", lambda word, use: others[word])
    judge = Scripted(recipe, tmp_path / "s.jsonl", kinds).judge
    monkeypatch.setattr(
        judge, "written", lambda each: 0.5 if each.spelling == each.word else each.spelling == "reckerd"
    )
    assert recipe.search(judge) == {"record": {"noun": "reckerd", "verb": "reckerd"}}
    assert ("lyve", recipe.LAST) in judge.asked and ("rebble", recipe.BY_WHISPER) in judge.asked
    assert len((tmp_path / "s.jsonl").read_text().splitlines()) == len(judge.known)


def test_uses_that_are_right_keep_their_letters(
    recipe: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recipe, "uses", lambda: iter([("live", "noun")]))
    judge = Scripted(recipe, tmp_path / "s.jsonl", {"live": "right"}).judge
    assert recipe.search(judge) == {} and judge.asked == {("live", recipe.FIRST)}


@pytest.mark.parametrize(
    ("transcript", "is_written"),
    [(["they", "whined"], True), (["they", "wind"], True), (["they", "wine"], False), ([], False)],
)
def test_a_word_of_the_same_phones_counts_as_written(
    recipe: ModuleType, transcript: list[str], is_written: bool
) -> None:
    assert recipe.is_written(recipe.Spoken("wind", "verb", "whined"), transcript) == is_written


def test_measurements_are_kept(recipe: ModuleType, tmp_path: Path) -> None:
    """What a file has is not spoken again."""
    state = tmp_path / "s.jsonl"
    row = {"word": "live", "use": "noun", "spelling": "live", "round": 1, "takes": [[-0.1, 2.0], [-0.3, -1.0]]}
    state.write_text(json.dumps(row) + "\n")
    judge, live = recipe.Judge("mini", [], state, None), recipe.Spoken("live", "noun", "live")
    judge.rate([live], 2, 1)
    assert judge.right(live, 1) == 0.5 and judge.goodness(live, 1) == pytest.approx(-0.2)


def test_what_was_found_joins_the_respellings_of_the_bundle(
    recipe: ModuleType, toy_bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundle = tmp_path / "bundle"
    shutil.copytree(toy_bundle, bundle)
    info = read_info(bundle)
    write_info(info.model_copy(update={"settings": {**info.settings, "respellings": {"diane": "dyan"}}}), bundle)
    monkeypatch.setattr(recipe, "search", lambda judge: {"live": {"noun": "lyve"}})
    reference = FOLDER.parents[1] / "examples" / "human.flac"
    monkeypatch.setattr(recipe, "FasterWhisperRecognizer", lambda model: None)
    arguments = [str(bundle), str(tmp_path / "s"), str(reference), "--whisper", "tiny.en", "--write"]
    monkeypatch.setattr(sys, "argv", ["heteronyms.py", *arguments])
    recipe.main()
    found = parse_settings(read_info(bundle).settings, "bundle.json").respellings
    assert found == {"diane": "dyan", "live": {"noun": "lyve"}}
