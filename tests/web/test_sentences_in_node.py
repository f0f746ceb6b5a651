"""Which take of a sentence is kept in the tab, what is sent, the pauses between sentences: a scripted model."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from marstts.web.site import STATIC


@pytest.fixture(scope="module")
def found() -> dict[str, Any]:
    if shutil.which("node") is None:
        pytest.skip("needs Node.js")
    script = Path(__file__).with_name("check_sentences.mjs")
    ran = subprocess.run(["node", str(script), str(STATIC)], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr[-3000:]
    return json.loads(ran.stdout)


def test_an_acceptable_take_ends_a_sentence(found: dict[str, Any]) -> None:
    good = found["good"]
    assert [each["topP"] for each in good["asked"]] == [0.2] and good["attempts"] == 1 and good["warning"] == ""
    assert len(good["pieces"]) == 1 and good["pieces"][0][1]


def test_pieces_are_sent_while_a_take_is_made_where_the_listener_waits_for_them(found: dict[str, Any]) -> None:
    streamed, whole = found["streamed"], found["good"]
    assert len(streamed["pieces"]) > 3 and streamed["pieces"][-1][1]
    assert sum(size for size, _ in streamed["pieces"]) == whole["pieces"][0][0]


def test_end_of_speech_is_forbidden_until_the_words_can_have_been_said(found: dict[str, Any]) -> None:
    assert found["good"]["asked"][0]["mayEndFrom"] == 12  # 0.15 s and 27 characters at 32 a second, 11.7 patches


def test_a_refused_take_is_made_again_with_a_higher_top_p(found: dict[str, Any]) -> None:
    again = found["silentFirst"]
    assert [each["topP"] for each in again["asked"]] == [0.2, 0.4] and again["attempts"] == 2 and not again["warning"]


def test_the_best_take_is_kept_with_a_warning_where_none_is_acceptable(found: dict[str, Any]) -> None:
    assert [each["topP"] for each in found["never"]["asked"]] == [0.2, 0.4, 0.6]
    assert "after 3 attempts" in found["never"]["warning"] and "nothing is audible" in found["never"]["warning"]
    assert "cut off" in found["endless"]["warning"] and found["endless"]["pieces"][0][0] > 0
    most = {each["patches"] for each in found["endless"]["asked"]}
    assert most == {81}  # 1.5 times 0.75 s and 27 characters at 7 a second


def test_a_take_of_which_some_was_sent_is_kept_with_a_warning(found: dict[str, Any]) -> None:
    assert found["endlessStreamed"]["attempts"] == 1 and "was flawed" in found["endlessStreamed"]["warning"]


def test_a_speech_has_the_pauses_of_its_marks_and_those_that_the_text_asks_for(found: dict[str, Any]) -> None:
    speech = found["speech"]
    assert speech["silences"] == [0.5, 0.3, 1.0] and speech["sentences"] == [0, 1]
    assert 5.0 < speech["seconds"] < 7.0


def test_a_voice_that_is_not_there_is_named_whatever_its_name(found: dict[str, Any]) -> None:
    names = ["nobody", "constructor", "Zoom of a bedroom, out of memory"]
    assert found["unknown"] == [f"There is no voice called {name}." for name in names]


def test_errors_are_told_in_one_sentence(found: dict[str, Any]) -> None:
    small, grown, old, python, told, text = found["errors"]
    assert small == grown and "too little memory" in small
    assert old.startswith("This browser cannot run the model") and "\n" not in old
    assert python == "KeyError: 'rooms'"
    assert (told, text) == ("“Out of memory” has no words.", "a string")


def test_random_numbers_depend_on_their_seeds_alone(found: dict[str, Any]) -> None:
    random = found["random"]
    assert random["same"] and random["equal"] < 3 and abs(random["mean"] - 0.5) < 0.03
    assert 0 <= random["range"][0] < 0.01 and 0.99 < random["range"][1] < 1
    assert abs(random["power"] - 1) < 0.1


def test_resampling_keeps_what_the_lower_rate_can_hold(found: dict[str, Any]) -> None:
    resampled = found["resampled"]
    assert resampled["length"] == 3200 and resampled["error"] < 0.01 and resampled["left"] < 0.01
