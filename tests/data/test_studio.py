"""The studio corpus: who is drawn, what is held out, and how a reading becomes another person's."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from marstts.audio import Waveform
from marstts.data.corpora import engines, speakers, studio
from marstts.data.corpora.engines import BaseVoice
from marstts.data.corpora.speakers import STYLES, StudioSpeaker
from marstts.data.manifest import read_manifest
from marstts.errors import DataError

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
    voice = BaseVoice(name="pulse", speak=speak, program="sh", package="dash", engine_voice="pulse", female=False,
                      tier="green", licence="own", bandwidth=16000)  # fmt: skip
    monkeypatch.setitem(engines.BASE_VOICES, "pulse", voice)
    return voice


def person(**changes: float) -> StudioSpeaker:
    facts = {"formants": 1.0, "semitones": 0.0, "pitch_range": 1.0, "rate": 1.0} | changes
    return StudioSpeaker(id="pulse.1", base="pulse", timbre_db=(0.0,) * 6, **facts)


def strongest_frequency(samples: np.ndarray) -> float:
    """Centre of gravity of the power between 800 and 3000 Hz."""
    power = np.abs(np.fft.rfft(samples)) ** 2
    frequencies = np.fft.rfftfreq(len(samples), 1 / 24000)
    band = (frequencies > 800) & (frequencies < 3000)
    return float((power[band] * frequencies[band]).sum() / power[band].sum())


def test_a_shorter_vocal_tract_moves_the_formants_up_but_not_the_length(base: BaseVoice) -> None:
    text = "one two three four five six seven eight nine ten"
    plain = speakers.render_by_resampling(person(), STYLES["regular"], base, text)
    short = speakers.render_by_resampling(person(formants=1.2), STYLES["regular"], base, text)
    assert strongest_frequency(short) / strongest_frequency(plain) == pytest.approx(1.2, rel=0.05)
    assert len(short) / len(plain) == pytest.approx(1.0, rel=0.1)


def test_fast_speech_is_shorter_than_slow_speech(base: BaseVoice) -> None:
    text = "one two three four five six seven eight nine ten"
    fast, slow = (
        speakers.render(person(), style, text, speakers.draw_rng(style)).seconds for style in ("fast", "slow")
    )
    assert fast < 0.7 * slow


def test_loud_is_louder_than_regular(base: BaseVoice) -> None:
    def level(style: str) -> float:
        return float(np.std(speakers.render(person(), style, "one two three four", speakers.draw_rng(1)).samples))

    assert level("loud") > 1.5 * level("regular")


def test_no_utterance_is_digitally_silent_anywhere(base: BaseVoice) -> None:
    samples = speakers.render(person(), "regular", "one two three", speakers.draw_rng(1)).samples
    assert np.abs(samples[:200]).max() > 0


def test_the_empty_upper_band_is_filled(base: BaseVoice) -> None:
    samples = speakers.render_by_resampling(person(), STYLES["regular"], base, "one two three four five six")
    power = np.abs(np.fft.rfft(samples)) ** 2
    frequencies = np.fft.rfftfreq(len(samples), 1 / 24000)
    below, above = (power[(frequencies > low) & (frequencies < low + 1500)].mean() for low in (5500, 9000))
    assert above > 1e-4 * below


def test_pitch_moves_by_semitones_and_keeps_unvoiced_frames() -> None:
    f0 = np.array([0.0, 100.0, 120.0, 0.0])
    moved = speakers.move_pitch(f0, semitones=12, pitch_range=1.0)
    np.testing.assert_allclose(moved, [0, 200, 240, 0])


def test_whispering_needs_the_vocoder_and_plain_speech_does_not(base: BaseVoice) -> None:
    assert speakers.needs_vocoder(base, STYLES["whisper"])
    assert not speakers.needs_vocoder(base, STYLES["high"])


def test_whispers_have_no_pitch(base: BaseVoice) -> None:
    pytest.importorskip("pyworld", reason="the WORLD vocoder comes with marstts[studio]")
    samples = speakers.render_by_vocoder(person(), STYLES["whisper"], base, "one two three four five six seven")
    voiced = speak("one two three four five six seven", base, 1.0, 1.0).samples

    def periodicity(x: np.ndarray, lag: int) -> float:
        middle = x[len(x) // 3 : 2 * len(x) // 3]
        return float(np.dot(middle[:-lag], middle[lag:]) / np.dot(middle, middle))

    assert periodicity(voiced, 160) > 0.5
    assert abs(periodicity(samples, 240)) < 0.3


def test_the_same_key_draws_the_same_person(base: BaseVoice) -> None:
    assert speakers.draw_speaker(base, 3, 8, 0) == speakers.draw_speaker(base, 3, 8, 0)
    assert speakers.draw_speaker(base, 3, 8, 0) != speakers.draw_speaker(base, 3, 8, 1)


def test_speaker_zero_is_the_engines_own_voice(base: BaseVoice) -> None:
    assert speakers.draw_speaker(base, 0, 8, 0).formants == 1.0


def test_spelling_variants_of_a_sentence_share_a_split() -> None:
    assert studio.split_of_sentence("Don't go, now!") == studio.split_of_sentence("dont go now")


@pytest.fixture
def config() -> studio.StudioConfig:
    return studio.StudioConfig(
        bases=("pulse",), speakers_per_base=3, held_out_per_base=1, train_hours=0.01, validation_utterances=2,
        test_utterances_per_speaker=7, band_limited_share=0.2,
    )  # fmt: skip


@pytest.fixture
def sentences(tmp_path: Path) -> Path:
    words = ["ship", "harbour", "window", "letter", "garden", "morning", "river", "mountain"]
    lines = [f"The {a} and the {b} were {c} on the road." for a in words for b in words for c in ("old", "new", "lost")]
    path = tmp_path / "sentences.txt"
    path.write_text("\n".join([*lines, "1984 is not speakable as it stands", "x"]))
    return path


@pytest.fixture
def in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """The stand-in voice lives in this process only."""

    class Pool:
        def __init__(self, workers: int) -> None: ...
        def __enter__(self) -> Pool:
            return self

        def __exit__(self, *error: object) -> None: ...
        def imap(self, function: object, jobs: object, chunksize: int) -> object:
            return map(function, jobs)  # type: ignore[call-overload]

    context = SimpleNamespace(Pool=Pool)
    monkeypatch.setattr(studio.multiprocessing, "get_context", lambda method: context)
    monkeypatch.setattr(speakers, "needs_vocoder", lambda base, style: False)


def test_a_corpus_is_built_and_a_stopped_build_goes_on(
    base: BaseVoice, config: studio.StudioConfig, sentences: Path, tmp_path: Path, in_this_process: None
) -> None:
    studio.build(config, [(sentences, 1.0)], tmp_path / "whole", 1, say=lambda _: None)
    whole = read_manifest(tmp_path / "whole" / "utterances.jsonl")
    assert {u.split for u in whole} == {"train", "validation", "test"}
    assert all((tmp_path / "whole" / u.audio).is_file() for u in whole)

    shutil.copytree(tmp_path / "whole", tmp_path / "part")
    lines = (tmp_path / "part" / "utterances.jsonl").read_text().splitlines(keepends=True)
    (tmp_path / "part" / "utterances.jsonl").write_text("".join(lines[:5]))
    studio.build(config, [(sentences, 1.0)], tmp_path / "part", 1, say=lambda _: None)
    assert read_manifest(tmp_path / "part" / "utterances.jsonl") == whole


def test_held_out_people_and_sentences_are_never_trained_on(
    base: BaseVoice, config: studio.StudioConfig, sentences: Path
) -> None:
    orders = list(studio.plan(config, studio.read_sentences([(sentences, 1.0)], config)))
    heard = {order.speaker.id for order in orders if order.split == "train"}
    kept = {order.speaker.id for order in orders if order.split == "test"}
    assert kept and not heard & kept
    trained = {order.text for order in orders if order.split == "train"}
    assert not trained & {order.text for order in orders if order.split != "train"}
    assert {order.style for order in orders if order.split == "test"} == set(STYLES)


def test_band_limited_utterances_say_so(base: BaseVoice, config: studio.StudioConfig, sentences: Path) -> None:
    orders = studio.plan(config, studio.read_sentences([(sentences, 1.0)], config))
    rates = {order.source_rate for order in orders if order.split == "train"}
    assert rates & {8000, 16000} and 24000 in rates


def test_unspeakable_lines_are_left_out(config: studio.StudioConfig, sentences: Path) -> None:
    texts = [text for split in studio.read_sentences([(sentences, 1.0)], config).values() for text, _ in split]
    assert not any("1984" in text or text == "x" for text in texts)


def test_the_shortest_text_and_the_share_of_ordinary_speech_are_as_asked_for(
    base: BaseVoice, config: studio.StudioConfig, sentences: Path
) -> None:
    short = sentences.with_name("short.txt")
    short.write_text(sentences.read_text() + "\nNo.\nOh, no!\n")
    all_lengths = studio.StudioConfig(bases=("pulse",), min_characters=3)
    kept = studio.read_sentences([(short, 1.0)], all_lengths)
    assert {"No.", "Oh, no!"} <= {text for split in kept.values() for text, _ in split}
    kept = studio.read_sentences([(short, 1.0)], config)
    assert not {"No.", "Oh, no!"} & {text for split in kept.values() for text, _ in split}
    for share in (0.2, 1.0):
        wanted = studio.StudioConfig(bases=("pulse",), train_hours=0.2, regular_share=share)
        styles = [order.style for order in studio.plan(wanted, kept) if order.split == "train"]
        assert styles.count("regular") / len(styles) == pytest.approx(share, abs=0.07)


def test_refused_utterances_are_listed_with_a_reason(
    base: BaseVoice, config: studio.StudioConfig, sentences: Path, tmp_path: Path, in_this_process: None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(studio, "MIN_SECONDS", 1.3)
    studio.build(config, [(sentences, 1.0)], tmp_path, 1, say=lambda _: None)
    rejects = [json.loads(line) for line in (tmp_path / "rejects.jsonl").open()]
    assert rejects and all("kept are" in reject["reason"] for reject in rejects)


def test_missing_engines_are_named_with_their_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines.shutil, "which", lambda program: None)
    with pytest.raises(DataError, match="apt-get install flite"):
        engines.check_installed(("flite-slt",))


def test_unknown_voices_are_named() -> None:
    with pytest.raises(DataError, match="unknown base voices"):
        engines.check_installed(("nobody",))


@pytest.mark.parametrize("name", sorted(engines.BASE_VOICES))
def test_every_installed_engine_speaks_at_its_rate(name: str) -> None:
    voice = engines.BASE_VOICES[name]
    if shutil.which(voice.program) is None:
        pytest.skip(f"{voice.package} is not installed")
    slow = voice.speak("The ship left the harbour at dawn.", voice, 0.8, 1.0)
    assert slow.seconds > 0.8
    if voice.has_rate:
        assert voice.speak("The ship left the harbour at dawn.", voice, 1.3, 1.0).seconds < 0.8 * slow.seconds
