"""The packaged model: clone, speak, and the bounds that its speech must meet."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from marstts import audio
from marstts.bundle import PACKAGED_MODELS
from marstts.cli.main import app
from marstts.codec.base import TIMBRE, with_timbre
from marstts.generation.request import StopReason
from marstts.synthesis.speech import Speech
from marstts.synthesis.synthesizer import Synthesizer
from marstts_lab.metrics.recognition import SphinxRecognizer, character_edits
from marstts_lab.metrics.words import plain_words

pytestmark = [pytest.mark.slow, pytest.mark.end_to_end]

MAKEFILE = Path(__file__).parents[2] / "Makefile"
EXAMPLES = Path(__file__).parents[2] / "examples"
MAX_CER = 0.2
"""Limit for the sentence of `make speak`; pocketsphinx, the judge without a download, gave 0.16."""

SENTENCE = "We can go outside this morning."


@pytest.fixture(scope="module")
def spoken(mini: Synthesizer) -> Speech:
    return mini.speak(SENTENCE, mini.clone(EXAMPLES / "reference.flac"))


def test_a_sentence_has_a_plausible_duration(spoken: Speech) -> None:
    [take] = spoken.takes
    assert take.stop is StopReason.EOS and take.warning is None
    assert len(SENTENCE) / 28 < spoken.seconds < len(SENTENCE) / 8


def test_the_same_seed_speaks_the_same_samples(mini: Synthesizer, spoken: Speech) -> None:
    again = mini.speak(SENTENCE, mini.clone(EXAMPLES / "reference.flac"))
    np.testing.assert_array_equal(again.samples, spoken.samples)


def test_speech_is_nearer_to_its_own_reference_than_to_another(mini: Synthesizer, spoken: Speech) -> None:
    def embedding(path: str) -> np.ndarray:
        return mini.clone(EXAMPLES / path).embeddings["identity"]

    embedded = mini.session.encoders["identity"].embed(spoken.waveform)
    assert embedded @ embedding("reference.flac") > embedded @ embedding("other.flac")


def test_a_deep_clone_speaks_too(mini: Synthesizer) -> None:
    words = "A crossing is a point where two lines paths or arcs and so on intersect."
    speech = mini.speak(SENTENCE, mini.clone(EXAMPLES / "reference.flac", transcript=words))
    assert speech.seconds > 0.5


def test_a_stream_has_the_same_codes_as_speak(mini: Synthesizer, spoken: Speech) -> None:
    voice = mini.clone(EXAMPLES / "reference.flac")
    chunks = list(mini.stream(SENTENCE, voice))
    [take], [expected] = [chunk.take for chunk in chunks if chunk.take], spoken.takes
    assert len(chunks) > 2 and chunks[0].seconds < 0.4
    for ours, theirs in zip(take.codes, expected.codes, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    middle = np.concatenate([chunk.samples for chunk in chunks])[512:-512]  # without what is faded
    whole = with_timbre(mini.session.codec, voice.embeddings[TIMBRE]).decode(take.codes).samples.clip(-1, 1)
    starts = range(0, len(whole) - len(middle) + 1, 512)  # edges lie between frames of 512 samples
    assert min(np.abs(whole[start : start + len(middle)] - middle).max() for start in starts) < 1e-3


def test_a_batch_has_the_same_codes_as_speak(mini: Synthesizer, spoken: Speech) -> None:
    texts = ["It rained.", SENTENCE, "Nobody on the quay said a word."]
    results = list(mini.speak_many(texts, mini.clone(EXAMPLES / "reference.flac"), batch=3))
    [ours] = [result.speech.takes[0] for result in results if result.speech and result.text == SENTENCE]
    for level, expected in zip(ours.codes, spoken.takes[0].codes, strict=True):
        np.testing.assert_array_equal(level, expected)
    assert len(results) == 3 and all(result.error is None for result in results)


def test_a_real_recording_is_a_reference(mini: Synthesizer) -> None:
    assert mini.speak(SENTENCE, mini.clone(EXAMPLES / "human.flac")).seconds > 0.5


@pytest.mark.parametrize("sample_rate", [8_000, 192_000])
def test_references_of_low_and_high_sample_rates_are_cloned(mini: Synthesizer, sample_rate: int) -> None:
    reference = audio.resample(audio.read(EXAMPLES / "reference.flac"), sample_rate)
    assert mini.speak("Yes.", mini.clone(reference)).seconds > 0.1


def test_the_package_stays_small() -> None:
    size = sum(path.stat().st_size for path in (PACKAGED_MODELS / "mini").rglob("*") if path.is_file())
    assert size < 70_000_000


def test_the_sentence_of_make_speak_is_understood_and_its_file_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    makefile = dict(re.findall(r"^(TEXT|REFERENCE) \?= (.+)$", MAKEFILE.read_text(), re.MULTILINE))
    monkeypatch.chdir(tmp_path)
    command = ["speak", makefile["TEXT"], "--reference", str(MAKEFILE.parent / makefile["REFERENCE"])]
    result = CliRunner().invoke(app, [*command, "--output", "speech.wav"])
    assert result.exit_code == 0 and result.stdout.startswith("Wrote speech.wav ("), result.output
    transcript = SphinxRecognizer().transcribe(audio.read("speech.wav"))
    edits = character_edits(plain_words(makefile["TEXT"]), transcript)
    assert edits.errors / edits.length <= MAX_CER, transcript
