"""Recordings: checked as a whole before the test starts, equally loud, and turned into unmistakable anchors."""

from __future__ import annotations

import io
import random
from pathlib import Path

import numpy as np
import pytest
import soundfile

from marstts.audio import Waveform, read
from marstts.audio.loudness import integrated_loudness
from marstts.errors import DataError
from marstts_listening_test.config import Question
from marstts_listening_test.design import Anchor, ListeningTrial, TrialKind
from marstts_listening_test.service import ToneTrial, count_correct, plan_tones, synthesize_tones
from marstts_listening_test.stimuli import (
    OTHER_VOICE_FACTOR,
    AudioRequirements,
    Role,
    add_modulated_noise,
    apply_anchor,
    find_stimuli,
    open_stimuli,
)
from simulated_listeners import RATE, write_buzz

REQUIREMENTS = AudioRequirements(None, 20.0, -23.0)


def buzzes(folder: Path, names: str = "ab", **options) -> Path:
    for name in names:
        write_buzz(folder / f"{name}.wav", **options)
    return folder


def complaint(systems, recordings=None, references=None, terms=REQUIREMENTS) -> str:
    with pytest.raises(DataError) as error:
        find_stimuli(systems, recordings, references, terms)
    return str(error.value)


def test_everything_wrong_with_folders_is_reported_at_once(tmp_path):
    (tmp_path / "empty").mkdir()
    systems = {"x": buzzes(tmp_path / "x", "abc"), "y": buzzes(tmp_path / "y", "a"), "z": tmp_path / "none"}
    soundfile.write(tmp_path / "x" / "a.flac", np.ones(9), RATE)
    message = complaint(systems, tmp_path / "empty")
    assert (
        "x: a is there twice, a.flac and a.wav" in message and f"at {tmp_path / 'none'}, but there is none" in message
    )
    assert (
        "y: 2 of 3 sentences are missing (b, c)" in message and "recordings:" in message and "holds no .wav" in message
    )


def test_everything_wrong_with_recordings_is_reported_at_once(tmp_path):
    buzzes(tmp_path / "x", "abc")
    buzzes(tmp_path / "y", "ab", rate=8_000)
    (tmp_path / "x" / "a.wav").write_bytes(b"no audio")
    soundfile.write(tmp_path / "x" / "b.wav", np.zeros(RATE), RATE)
    write_buzz(tmp_path / "y" / "c.wav", seconds=21.0)
    message = complaint({"x": tmp_path / "x", "y": tmp_path / "y"})
    assert "x/a.wav" in message and "digital silence" in message and "y/c.wav" in message
    assert "8000 Hz in 2 (y/a, …)" in message and "set sample_rate" in message


def test_many_complaints_are_counted(tmp_path):
    folder = tmp_path / "x"
    folder.mkdir()
    for number in range(20):
        (folder / f"{number}.wav").write_bytes(b"")
    assert "and 8 more" in complaint({"x": folder})


def decode(content: bytes) -> Waveform:
    samples, rate = soundfile.read(io.BytesIO(content), dtype="float32")
    return Waveform(samples, rate)


def test_all_sounds_have_one_rate_and_one_loudness(tmp_path):
    systems = {"x": buzzes(tmp_path / "x", seconds=0.9), "y": buzzes(tmp_path / "y", seconds=0.9, rate=24_000)}
    quiet = read(tmp_path / "y" / "a.wav")
    soundfile.write(tmp_path / "y" / "a.wav", quiet.samples * 0.05, quiet.sample_rate)
    stimuli = find_stimuli(systems, systems["x"], systems["y"], AudioRequirements(16_000, 20.0, -26.0))
    trials = [
        ListeningTrial(Question.NATURALNESS, TrialKind.RATING, "x", "a"),
        ListeningTrial(Question.SIMILARITY, TrialKind.RATING, "y", "a"),
        ListeningTrial(Question.NATURALNESS, TrialKind.ATTENTION_CHECK, Anchor.DEGRADED.value, "b"),
        ListeningTrial(Question.SIMILARITY, TrialKind.ATTENTION_CHECK, Anchor.OTHER.value, "a"),
    ]
    for trial in trials:
        sound = decode(stimuli.encode(trial, Role.STIMULUS))
        assert sound.sample_rate == 16_000
        assert integrated_loudness(sound.samples, 16_000) == pytest.approx(-26.0, abs=0.5)
    assert stimuli.trial_seconds(trials[1]) == pytest.approx(1.8)
    assert stimuli.trial_seconds(trials[3]) == pytest.approx(0.9 + 0.9 / OTHER_VOICE_FACTOR)


def test_sample_rate_loudness_and_longest_duration_are_options(config):
    stimuli = open_stimuli(config.model_copy(update={"sample_rate": 8_000, "loudness_lufs": -30.0}))
    assert (stimuli.sample_rate, stimuli.loudness_lufs) == (8_000, -30.0)
    assert (
        decode(
            stimuli.encode(ListeningTrial(Question.NATURALNESS, TrialKind.RATING, "mini", "s00"), Role.STIMULUS)
        ).sample_rate
        == 8_000
    )
    with pytest.raises(DataError, match="and 43 more"):
        open_stimuli(config.model_copy(update={"max_seconds": 0.39}))


def test_the_digest_changes_with_any_recording(tmp_path):
    systems = {"x": buzzes(tmp_path / "x")}
    before = find_stimuli(systems, None, None, REQUIREMENTS).digest
    assert find_stimuli(systems, None, None, REQUIREMENTS).digest == before
    write_buzz(tmp_path / "x" / "a.wav", pitch=121)
    assert find_stimuli(systems, None, None, REQUIREMENTS).digest != before


@pytest.mark.parametrize("decibels", [0.0, 20.0])
def test_modulated_noise_has_the_requested_ratio_and_vanishes_in_silence(decibels):
    buzz = np.sign(np.sin(2 * np.pi * 120 * np.arange(RATE) / RATE)).astype(np.float32)
    reference = Waveform(np.concatenate([np.zeros(RATE // 5, np.float32), 0.2 * buzz]), RATE)
    noise = add_modulated_noise(reference, decibels).samples - reference.samples
    assert 10 * np.log10(np.sum(reference.samples**2) / np.sum(noise**2)) == pytest.approx(decibels, abs=0.2)
    assert not noise[reference.samples == 0].any()


def test_the_other_voice_is_raised_and_shortened_by_the_same_factor():
    tone = Waveform(np.sin(2 * np.pi * 200 * np.arange(RATE) / RATE).astype(np.float32), RATE)
    other = apply_anchor(tone, Anchor.OTHER.value)
    peak = np.argmax(np.abs(np.fft.rfft(other.samples))) / other.seconds
    assert other.sample_rate == RATE and tone.seconds / other.seconds == pytest.approx(OTHER_VOICE_FACTOR, rel=1e-3)
    assert peak == pytest.approx(200 * OTHER_VOICE_FACTOR, abs=2)
    assert apply_anchor(tone, "mini") is tone and apply_anchor(tone, Anchor.SAME.value) is tone


TONES = [ToneTrial(quiet, antiphase) for quiet in range(3) for antiphase in range(3) if quiet != antiphase]


@pytest.mark.parametrize("tone", TONES, ids=lambda tone: f"{tone.quiet}{tone.antiphase}")
def test_the_quiet_tone_is_the_quietest_over_headphones_and_the_antiphase_one_over_loudspeakers(tone):
    sound = synthesize_tones(tone)
    step = round(1.5 * 44_100)
    tones = [sound[place * step : place * step + 44_100] for place in range(3)]
    headphones = [np.sqrt(np.mean(one**2)) for one in tones]
    loudspeakers = [np.sqrt(np.mean(one.mean(axis=1) ** 2)) for one in tones]
    assert int(np.argmin(headphones)) == tone.quiet and int(np.argmin(loudspeakers)) == tone.antiphase
    assert 20 * np.log10(min(headphones) / max(headphones)) == pytest.approx(-6.0, abs=0.01)


def test_each_tone_is_the_quiet_one_twice_and_correct_answers_are_counted():
    tones = plan_tones(random.Random(1))
    assert sorted(tone.quiet for tone in tones) == [0, 0, 1, 1, 2, 2]
    assert count_correct(tones, [tone.quiet for tone in tones]) == 6
    assert count_correct(tones, [tone.antiphase for tone in tones]) == 0
