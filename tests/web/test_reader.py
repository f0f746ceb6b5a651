"""The text side of the tab: no compiled package, and the prompts of the Python model."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import marstts
from marstts.bundle import PACKAGED_MODELS, read_info
from marstts.synthesis.loading import load
from marstts.synthesis.prepared_text import PreparedText
from marstts.web.reader import Reader

BUNDLE = PACKAGED_MODELS / "mini"
TEXT = """# The *Atlas* of 1984

Dr. Ray paid $5.50 at 7:30 a.m. for 3/4 lb of "Żubrówka". Nobody, not even J. R. Smith, knew the frabjulous zork!
[pause: 1s] Is Anna at the BBC? See https://example.org/a?b=1 or call 555-0199.
[Nguyen]{win} said [cat](/kæt/) [rising]? No, no, no.
"""

WITHOUT_COMPILED_PACKAGES = """
import json, sys

BLOCKED = {"pydantic", "pydantic_core", "tokenizers", "numpy", "docopt", "safetensors", "onnxruntime", "soundfile",
           "soxr", "google", "torch"}

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in BLOCKED:
            raise ModuleNotFoundError(f"{name} is a compiled package")

sys.meta_path.insert(0, Blocked())
from marstts.web.reader import Reader

given = json.load(sys.stdin)
reader = Reader(given["tokenizer"], given["settings"])
print(json.dumps([json.loads(reader.answer(json.dumps(each))) for each in given["requests"]]))
"""
"""A process in which a compiled package cannot be imported."""


def test_texts_are_read_without_compiled_packages_as_with_them() -> None:
    requests = [{"sentences": TEXT}, {"readings": TEXT}, {"sentences": TEXT, "lexicon": [["zork", "Z AO1 R K S"]]}]
    for phones in ("none", "given", "known", "graphones"):
        given = {
            "tokenizer": (BUNDLE / "tokenizer.json").read_text(encoding="utf-8"),
            "settings": {"spelling": "simple", "phones": phones},
            "requests": requests,
        }
        ran = subprocess.run(
            [sys.executable, "-c", WITHOUT_COMPILED_PACKAGES],
            input=json.dumps(given),
            capture_output=True,
            text=True,
            env={"PYTHONPATH": str(Path(marstts.__file__).parents[1]), "PATH": ""},
        )
        assert ran.returncode == 0, ran.stderr
        reader = Reader(given["tokenizer"], given["settings"])
        assert json.loads(ran.stdout) == [json.loads(reader.answer(json.dumps(each))) for each in requests]


@pytest.fixture(scope="module")
def reader() -> Reader:
    return Reader((BUNDLE / "tokenizer.json").read_text(encoding="utf-8"), dict(read_info(BUNDLE).settings))


def test_prompts_are_those_of_the_model(reader: Reader) -> None:
    tts = load("mini")
    voice = tts.open_voice("ada")
    answer = json.loads(reader.answer(json.dumps({"sentences": TEXT})))
    segments = list(PreparedText(TEXT))
    assert [each["text"] for each in answer["sentences"]] == [segment.text for segment in segments]
    for found, segment in zip(answer["sentences"], segments, strict=True):
        prompt = tts.session.model.prompt(segment.text, voice)
        assert found["ids"] == prompt.text_ids.tolist()
        np.testing.assert_array_equal(found["spans"], prompt.text_spans)
        assert (found["lead"], found["pause"]) == (segment.lead_seconds, segment.pause_seconds)


def test_the_words_of_a_text_come_with_their_reading_and_phones(reader: Reader) -> None:
    words = json.loads(reader.answer(json.dumps({"readings": "Dr. Ray paid $5."})))["words"]
    assert [(word["written"], word["read"]) for word in words] == [
        ("Dr.", "Doctor"), ("Ray", "Ray"), ("paid", "paid"), ("$5.", "five dollars."),
    ]  # fmt: skip
    assert words[1]["phones"] == ["R EY1"] and words[3]["phones"] == ["F AY1 V", "D AA1 L ER0 Z"]


def test_pronunciations_of_the_user_are_spoken(reader: Reader) -> None:
    plain, other = (
        json.loads(reader.answer(json.dumps({"sentences": "Ray came.", "lexicon": lexicon})))["sentences"][0]
        for lexicon in ([], [["Ray", "K AE1 T"]])
    )
    assert plain["ids"] != other["ids"] and other["readable"] == "{K AE1 T} came."


@pytest.mark.parametrize(
    "request_",
    [{"sentences": "☃"}, {"sentences": ""}, {"readings": "a", "lexicon": [["a", "QQ1"]]}, {"sentences": "<speak><"}],
)
def test_what_cannot_be_read_is_one_sentence(reader: Reader, request_: dict[str, object]) -> None:
    error = json.loads(reader.answer(json.dumps(request_)))["error"]
    assert error and "\n" not in error
