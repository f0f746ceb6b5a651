"""The synthetic corpus: drawn speakers, held-out splits, and the rendering of a reading in another voice."""

from __future__ import annotations

import dataclasses
import gzip
import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from marstts.audio import Waveform
from marstts.errors import DataError
from marstts_lab.cli.prepare import weighted_file
from marstts_lab.data.corpora import speakers, synthetic
from marstts_lab.data.corpora import tts_engines as engines
from marstts_lab.data.corpora.speakers import STYLES, SyntheticSpeaker
from marstts_lab.data.corpora.tts_engines import BaseVoice
from marstts_lab.data.manifest import read_manifest
from marstts_lab.data.workers import Processes

FORMANT = 1500.0


def speak(text: str, voice: BaseVoice, rate: float, pitch: float) -> Waveform:
    """A stand-in for an engine: a pulse train of 100 Hz through one resonance, a tenth of a second per word."""
    seconds = 0.1 * len(text.split()) / rate + 0.3
    time = np.arange(int(seconds * 16000)) / 16000
    pulses = np.diff(np.floor(time * 100 * pitch), prepend=0.0)
    decay = np.arange(400) / 16000
    ring = np.exp(-decay * 300) * np.sin(2 * np.pi * FORMANT * decay)
    return Waveform((0.3 * np.convolve(pulses, ring)[: len(time)]).astype(np.float32), 16000)


@pytest.fixture
def base(monkeypatch: pytest.MonkeyPatch) -> BaseVoice:
    voice = BaseVoice(name="pulse", speak=speak, program="sh", packages=("dash",), engine_voice="pulse", female=False,
                      tier="green", license="own", bandwidth=16000)  # fmt: skip
    monkeypatch.setitem(engines.BASE_VOICES, "pulse", voice)
    return voice


def make_speaker(**changes: float) -> SyntheticSpeaker:
    facts = {"formants": 1.0, "semitones": 0.0, "pitch_range": 1.0, "rate": 1.0} | changes
    return SyntheticSpeaker(id="pulse.1", base="pulse", timbre_db=(0.0,) * 6, **facts)


def strongest_frequency(samples: np.ndarray) -> float:
    """Center of gravity of the power between 800 and 3000 Hz."""
    power = np.abs(np.fft.rfft(samples)) ** 2
    frequencies = np.fft.rfftfreq(len(samples), 1 / 24000)
    band = (frequencies > 800) & (frequencies < 3000)
    return float((power[band] * frequencies[band]).sum() / power[band].sum())


def test_a_shorter_vocal_tract_moves_the_formants_up_but_not_the_length(base: BaseVoice) -> None:
    text = "one two three four five six seven eight nine ten"
    plain = speakers.render_by_resampling(make_speaker(), STYLES["regular"], base, text)
    short = speakers.render_by_resampling(make_speaker(formants=1.2), STYLES["regular"], base, text)
    assert strongest_frequency(short) / strongest_frequency(plain) == pytest.approx(1.2, rel=0.05)
    assert len(short) / len(plain) == pytest.approx(1.0, rel=0.1)


def test_fast_speech_is_shorter_than_slow_speech(base: BaseVoice) -> None:
    text = "one two three four five six seven eight nine ten"
    fast, slow = (
        speakers.render(make_speaker(), style, text, speakers.draw_rng(style)).seconds for style in ("fast", "slow")
    )
    assert fast < 0.7 * slow


def test_the_loud_style_is_louder_than_the_regular_one(base: BaseVoice) -> None:
    def level(style: str) -> float:
        return float(np.std(speakers.render(make_speaker(), style, "one two three four", speakers.draw_rng(1)).samples))

    assert level("loud") > 1.5 * level("regular")


def test_no_utterance_is_digitally_silent_anywhere(base: BaseVoice) -> None:
    samples = speakers.render(make_speaker(), "regular", "one two three", speakers.draw_rng(1)).samples
    assert np.abs(samples[:200]).max() > 0


def test_the_empty_upper_band_is_filled(base: BaseVoice) -> None:
    samples = speakers.render_by_resampling(make_speaker(), STYLES["regular"], base, "one two three four five six")
    power = np.abs(np.fft.rfft(samples)) ** 2
    frequencies = np.fft.rfftfreq(len(samples), 1 / 24000)
    below, above = (power[(frequencies > low) & (frequencies < low + 1500)].mean() for low in (5500, 9000))
    assert above > 1e-4 * below


def test_f0_moves_by_semitones_and_unvoiced_frames_stay() -> None:
    f0 = np.array([0.0, 100.0, 120.0, 0.0])
    moved = speakers.move_pitch(f0, semitones=12, pitch_range=1.0)
    np.testing.assert_allclose(moved, [0, 200, 240, 0])


def test_whispering_needs_the_vocoder_and_plain_speech_does_not(base: BaseVoice) -> None:
    assert speakers.needs_vocoder(base, STYLES["whisper"])
    assert not speakers.needs_vocoder(base, STYLES["high"])


def test_whispers_are_aperiodic(base: BaseVoice) -> None:
    pytest.importorskip("pyworld", reason="the WORLD vocoder comes with marstts[synthetic]")
    samples = speakers.render_by_vocoder(make_speaker(), STYLES["whisper"], base, "one two three four five six seven")
    voiced = speak("one two three four five six seven", base, 1.0, 1.0).samples

    def periodicity(x: np.ndarray, lag: int) -> float:
        middle = x[len(x) // 3 : 2 * len(x) // 3]
        return float(np.dot(middle[:-lag], middle[lag:]) / np.dot(middle, middle))

    assert periodicity(voiced, 160) > 0.5
    assert abs(periodicity(samples, 240)) < 0.3


def test_spelling_variants_of_a_sentence_share_a_split() -> None:
    assert synthetic.split_of_sentence("Don't go, now!") == synthetic.split_of_sentence("dont go now")


@pytest.fixture
def config() -> synthetic.SyntheticConfig:
    return synthetic.SyntheticConfig(
        base_voices=("pulse",), speakers_per_voice=3, held_out_per_voice=1, train_hours=0.01, validation_utterances=2,
        test_utterances_per_speaker=7, band_limited_fraction=0.2,
    )  # fmt: skip


@pytest.fixture
def sentences(tmp_path: Path) -> Path:
    words = ["ship", "harbour", "window", "letter", "garden", "morning", "river", "mountain"]
    lines = [f"The {a} and the {b} were {c} on the road." for a in words for b in words for c in ("old", "new", "lost")]
    path = tmp_path / "sentences.txt"
    path.write_text("\n".join([*lines, "1984 is not allowed as it contains digits", "x"]))
    return path


@pytest.fixture
def without_vocoder(monkeypatch: pytest.MonkeyPatch) -> None:
    """No engine or vocoder is needed for the stand-in voice."""
    monkeypatch.setattr(speakers, "needs_vocoder", lambda base, style: False)


@pytest.mark.slow
def test_a_corpus_is_built_and_an_interrupted_build_resumes(
    base: BaseVoice, config: synthetic.SyntheticConfig, sentences: Path, tmp_path: Path, without_vocoder: None
) -> None:
    synthetic.build(config, [(sentences, 1.0)], tmp_path / "whole", Processes(1))
    whole = read_manifest(tmp_path / "whole" / "utterances.jsonl")
    assert {u.split for u in whole} == {"train", "validation", "test"}
    assert all((tmp_path / "whole" / u.audio).is_file() for u in whole)

    shutil.copytree(tmp_path / "whole", tmp_path / "part")
    lines = (tmp_path / "part" / "utterances.jsonl").read_text().splitlines(keepends=True)
    (tmp_path / "part" / "utterances.jsonl").write_text("".join(lines[:5]))
    synthetic.build(config, [(sentences, 1.0)], tmp_path / "part", Processes(1))
    assert read_manifest(tmp_path / "part" / "utterances.jsonl") == whole


def test_held_out_speakers_and_sentences_are_never_trained_on(
    base: BaseVoice, config: synthetic.SyntheticConfig, sentences: Path
) -> None:
    specs = list(synthetic.plan(config, synthetic.read_sentences([(sentences, 1.0)], config)))
    trained_speakers = {spec.speaker.id for spec in specs if spec.split == "train"}
    kept = {spec.speaker.id for spec in specs if spec.split == "test"}
    assert kept and not trained_speakers & kept
    trained = {spec.text for spec in specs if spec.split == "train"}
    assert not trained & {spec.text for spec in specs if spec.split != "train"}
    assert {spec.style for spec in specs if spec.split == "test"} == set(STYLES)


def test_band_limited_utterances_state_their_source_rate(
    base: BaseVoice, config: synthetic.SyntheticConfig, sentences: Path
) -> None:
    specs = synthetic.plan(config, synthetic.read_sentences([(sentences, 1.0)], config))
    rates = {spec.source_rate for spec in specs if spec.split == "train"}
    assert rates & {8000, 16000} and 24000 in rates


def test_the_shortest_text_and_the_fraction_of_regular_speech_follow_the_configuration(
    base: BaseVoice, config: synthetic.SyntheticConfig, sentences: Path
) -> None:
    short = sentences.with_name("short.txt")
    short.write_text(sentences.read_text() + "\nNo.\nOh, no!\n")
    all_lengths = synthetic.SyntheticConfig(base_voices=("pulse",), min_characters=3)
    kept = synthetic.read_sentences([(short, 1.0)], all_lengths)
    assert {"No.", "Oh, no!"} <= {text for split in kept.values() for text, _ in split}
    kept = synthetic.read_sentences([(short, 1.0)], config)
    assert not {"No.", "Oh, no!"} & {text for split in kept.values() for text, _ in split}
    for share in (0.2, 1.0):
        config = synthetic.SyntheticConfig(base_voices=("pulse",), train_hours=0.2, regular_fraction=share)
        styles = [spec.style for spec in synthetic.plan(config, kept) if spec.split == "train"]
        assert styles.count("regular") / len(styles) == pytest.approx(share, abs=0.07)


@pytest.mark.slow
def test_rejected_utterances_are_listed_with_a_reason(
    base: BaseVoice, config: synthetic.SyntheticConfig, sentences: Path, tmp_path: Path, without_vocoder: None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(synthetic, "MIN_SECONDS", 1.3)
    synthetic.build(config, [(sentences, 1.0)], tmp_path, Processes(1))
    rejects = [json.loads(line) for line in (tmp_path / "rejects.jsonl").open()]
    assert rejects and all("kept are" in reject["reason"] for reject in rejects)


def test_missing_engines_are_named_with_their_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines.shutil, "which", lambda program: None)
    with pytest.raises(DataError, match=r"apt-get install flite$"):
        engines.check_installed(("flite-slt",))


def test_files_of_sentences_that_cannot_be_read_are_named(config: synthetic.SyntheticConfig, tmp_path: Path) -> None:
    (tmp_path / "torn.gz").write_bytes(gzip.compress(b"The ship left.\n" * 999)[:-20])
    (tmp_path / "latin.txt").write_bytes("Das Mädchen.\n".encode("latin-1"))
    complaints = {
        "torn.gz": "expected a gzipped text, but it is corrupt or cut off; make the file again",
        "latin.txt": "expected UTF-8 text, but byte 5 is no part of a letter; convert it to UTF-8",
        "none.txt": "no such file",
    }
    for name, complaint in complaints.items():
        with pytest.raises(DataError, match=f"{name}: {complaint}$"):
            synthetic.read_sentences([(tmp_path / name, 1.0)], config)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(engines.BASE_VOICES))
def test_every_installed_engine_speaks_at_its_rate(name: str) -> None:
    voice = engines.BASE_VOICES[name]
    if shutil.which(voice.program) is None:
        pytest.skip(f"{voice.packages} are not installed")
    slow = voice.speak("The ship left the harbour at dawn.", voice, 0.8, 1.0)
    assert slow.seconds > 0.8
    assert voice.speak("The ship left the harbour at dawn.", voice, 1.3, 1.0).seconds < 0.8 * slow.seconds


@pytest.mark.parametrize(
    ("item", "expected"),
    [("a.txt", ("a.txt", 1.0)), ("a.txt:0.5", ("a.txt", 0.5)), ("c:x/a.txt:2", ("c:x/a.txt", 2.0))],
)
def test_files_of_sentences_may_have_weights(item: str, expected: tuple[str, float]) -> None:
    assert weighted_file(item) == (Path(expected[0]), expected[1])


def test_an_engine_that_differs_once_leaves_the_corpus_as_it_is(base: BaseVoice) -> None:
    """Engines were seen to give another waveform in one of some hundred calls."""
    calls = []

    def differ_at(*wrong: int) -> BaseVoice:
        calls.clear()

        def speak_and_differ(*arguments: object) -> Waveform:
            calls.append(arguments)
            waveform = speak(*arguments)
            return Waveform(waveform.samples * (1 + 0.01 * len(calls)), 16000) if len(calls) in wrong else waveform

        return dataclasses.replace(base, speak=speak_and_differ)

    right = speak("One two.", base, 1.0, 1.0).samples
    for wrong, needed in (((), 2), ((1,), 3), ((2,), 3), ((1, 3), 4)):
        found = engines.read_twice("One two.", differ_at(*wrong), 1.0, 1.0)
        assert np.array_equal(found.samples, right) and len(calls) == needed
    with pytest.raises(DataError, match="pulse read the same text in 4 ways"):
        engines.read_twice("One two.", differ_at(1, 2, 3, 4), 1.0, 1.0)
