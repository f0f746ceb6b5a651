"""Preprocessing of references, and references that are refused."""

from __future__ import annotations

import hashlib
import io
from pathlib import Path

import numpy as np
import pytest
import soundfile

from marstts.audio import Waveform, loudness_lufs, read, resample
from marstts.codec.toy import ToyCodec
from marstts.errors import AudioError, TextError
from marstts.speaker.toy import ToySpeakerEncoder
from marstts.synthesis.clone import (
    MAX_PREFIX_SECONDS,
    REFERENCE_LOUDNESS,
    ReferenceWarning,
    clone,
    lacks_high_frequencies,
    prepare,
)
from marstts.voice import Voice

pytestmark = pytest.mark.slow

CODEC = ToyCodec(codebook_size=64)
IDENTITY, STYLE = ToySpeakerEncoder("identity", 5), ToySpeakerEncoder("style", 7)


def make_voice(reference: Waveform | Path | str, transcript: str | None = None, **options: str) -> Voice:
    return clone(reference, transcript, codec=CODEC, encoders={"identity": IDENTITY, "style": STYLE}, **options)


def repeated(reference: Waveform, times: int) -> Waveform:
    return Waveform(np.tile(reference.samples, times), reference.sample_rate)


def save(path: Path, samples: np.ndarray, rate: int, **options: str) -> Path:
    soundfile.write(path, samples, rate, **options)
    return path


def test_without_a_transcript_the_clone_is_shallow(reference_file: Path):
    voice = make_voice(reference_file)
    assert voice.prefix is None
    assert (voice.embeddings["identity"].shape, voice.embeddings["style"].shape) == ((5,), (7,))
    assert (voice.codec, voice.encoders) == (CODEC.spec.name, {"identity": IDENTITY.name, "style": STYLE.name})


def test_with_a_transcript_the_clone_is_deep(reference_file: Path):
    voice = make_voice(reference_file, "It cost $5.")
    assert voice.prefix is not None
    assert "five dollars" in voice.prefix.transcript  # read as it was spoken, like any text
    patches = len(voice.prefix.codes[0])
    assert [len(codes) for codes in voice.prefix.codes] == [patches, 2 * patches, 4 * patches]
    assert patches * CODEC.spec.patch_samples / 24_000 == pytest.approx(2.6, abs=0.2)  # 3 s less the silent edges


def test_a_voice_records_the_hash_of_its_source(reference: Waveform, reference_file: Path):
    voice = make_voice(reference_file, consent="Anna agreed on 3 May")
    assert voice.name == "anna"
    assert voice.source_sha256 == hashlib.sha256(reference_file.read_bytes()).hexdigest()
    assert voice.consent == "Anna agreed on 3 May"
    from_memory = make_voice(reference, name="Anna")
    assert from_memory.name == "Anna" and len(from_memory.source_sha256) == 64


def test_references_are_encoded_at_one_loudness_without_their_silent_edges(reference: Waveform):
    quiet = Waveform(0.1 * reference.samples, reference.sample_rate)
    prepared = prepare(quiet, 24_000, "quiet.wav")
    assert loudness_lufs(prepared) == pytest.approx(REFERENCE_LOUDNESS, abs=0.5)
    assert 2.5 < prepared.seconds < 2.8
    np.testing.assert_allclose(
        make_voice(quiet).embeddings["identity"], make_voice(reference).embeddings["identity"], atol=1e-3
    )


def test_stereo_and_unusual_rates_are_fine(reference: Waveform, tmp_path: Path):
    stereo = save(tmp_path / "stereo.wav", np.stack([reference.samples] * 2, axis=1), 24_000)
    telephone = save(tmp_path / "8k.wav", reference.samples[::3], 8_000)
    high_rate = save(tmp_path / "192k.wav", resample(reference, 192_000).samples, 192_000)
    original = make_voice(save(tmp_path / "mono.wav", reference.samples, 24_000)).embeddings["identity"]
    for path, similarity in ((stereo, 0.999), (telephone, 0.5), (high_rate, 0.9)):
        assert float(make_voice(path, "Some words.").embeddings["identity"] @ original) > similarity


def test_of_a_long_reference_the_start_is_used_with_a_warning(reference: Waveform, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("marstts.synthesis.clone.MAX_REFERENCE_SECONDS", 5.0)
    long = repeated(reference, 3)
    with pytest.warns(ReferenceWarning, match="first 5 s"):
        voice = make_voice(long)
    changed = long.samples.copy()
    changed[6 * 24_000 :] *= np.linspace(0, 1, len(changed) - 6 * 24_000) ** 2 > 0.1
    with pytest.warns(ReferenceWarning):
        np.testing.assert_allclose(
            make_voice(Waveform(changed, 24_000)).embeddings["identity"], voice.embeddings["identity"], atol=1e-3
        )


def test_a_long_reference_with_a_transcript_is_refused(reference: Waveform):
    with pytest.raises(AudioError, match=rf"at most {MAX_PREFIX_SECONDS:g} s can be used, so cut"):
        make_voice(repeated(reference, 5), "All of the words.")


@pytest.mark.filterwarnings("error")
def test_loud_recordings_and_low_pure_tones_are_not_taken_for_clipped(reference: Waveform):
    tone = 0.99 * np.sin(2 * np.pi * 110 * np.arange(2 * 192_000) / 192_000)
    make_voice(Waveform((np.round(tone * 32767) / 32767).astype(np.float32), 192_000), min_speech_ratio=0)
    make_voice(Waveform(reference.samples / np.abs(reference.samples).max(), reference.sample_rate))


@pytest.mark.parametrize("kind", ["noise", "hum", "chord"])
def test_a_reference_without_speech_is_refused(kind: str):
    time, rng = np.arange(3 * 24_000) / 24_000, np.random.default_rng(0)
    samples = {
        "noise": rng.normal(0, 0.1, len(time)),
        "hum": 0.3 * np.sin(2 * np.pi * 50 * time),
        "chord": sum(0.1 * np.sin(2 * np.pi * f * time) for f in (261, 329, 392)) * (1 + np.sin(4 * np.pi * time)),
    }[kind]
    with pytest.raises(AudioError, match=r"% of the recording is speech; cloning needs someone speaking"):
        make_voice(Waveform(np.asarray(samples, np.float32), 24_000))


def test_a_voice_keeps_its_reference_by_default(reference: Waveform):
    kept = make_voice(reference)
    again = make_voice(io.BytesIO(kept.reference))
    assert 1_000 < len(kept.reference) < 40_000
    assert float(again.embeddings["identity"] @ kept.embeddings["identity"]) > 0.9
    assert make_voice(reference, keep_reference=False).reference == b""


def test_a_clipped_reference_speaks_with_a_warning(reference: Waveform):
    clipped = Waveform(np.clip(5 * reference.samples, -0.9, 0.9), reference.sample_rate)
    with pytest.warns(ReferenceWarning, match="clipped"):
        assert make_voice(clipped).embeddings["identity"].shape == (5,)


def encoded(waveform: Waveform, container: str, encoding: str) -> bytes:
    buffer = io.BytesIO()
    soundfile.write(buffer, waveform.samples, waveform.sample_rate, format=container, subtype=encoding)
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("container", "encoding"),
    [("WAV", "PCM_16"), ("WAV", "FLOAT"), ("AIFF", "PCM_16"), ("FLAC", "PCM_16"), ("MP3", "MPEG_LAYER_III"),
     ("OGG", "VORBIS")],
)  # fmt: skip
def test_of_a_recording_that_is_cut_short_what_is_there_is_used_with_a_warning(
    reference: Waveform, container: str, encoding: str, tmp_path: Path
):
    content = encoded(repeated(reference, 2), container, encoding)
    path = tmp_path / "cut"
    path.write_bytes(content[: int(0.9 * len(content)) | 1])
    for source in (path, io.BytesIO(path.read_bytes())):
        with pytest.warns(ReferenceWarning, match=r"cut short.*taken from the beginning"):
            assert make_voice(source).embeddings["identity"].shape == (5,)


def test_a_cut_recording_with_too_little_left_is_refused_as_cut_short(reference: Waveform):
    content = encoded(reference, "WAV", "PCM_16")
    with pytest.raises(AudioError, match=r"cut short.*too little is there"):
        make_voice(io.BytesIO(content[:2000]))


@pytest.mark.filterwarnings("ignore:.*clipped")
def test_music_under_the_voice_is_warned_about(reference: Waveform):
    speech = repeated(reference, 2)
    time = np.arange(len(speech.samples)) / speech.sample_rate
    chord = sum(np.sin(2 * np.pi * pitch * time) for pitch in (220, 277, 330)) / np.sqrt(1.5)
    level = np.sqrt((speech.samples**2).mean())
    for decibels in (6, 12):
        mixed = speech.samples + 10 ** (-decibels / 20) * level * chord
        with pytest.warns(ReferenceWarning, match="sounds under the voice"):
            make_voice(Waveform(0.5 * mixed.astype(np.float32), speech.sample_rate))


def chords(seconds: float, sample_rate: int, *, change: bool) -> np.ndarray:
    """A chord of power 1 that sounds on, or one each second that fades, with an overtone."""
    time = np.arange(round(seconds * sample_rate)) / sample_rate
    if not change:
        return sum(np.sin(2 * np.pi * pitch * time) for pitch in (220, 277, 330)) / np.sqrt(1.5)
    pitches = np.array([(220, 277, 330), (196, 247, 294), (175, 220, 262)])[(time // 1).astype(int) % 3].T
    sound = sum((np.sin(2 * np.pi * pitch * time) + 0.4 * np.sin(4 * np.pi * pitch * time)) for pitch in pitches)
    sound = sound * np.exp(-(time % 1.0))
    return sound / np.sqrt((sound**2).mean())


@pytest.mark.filterwarnings("ignore:.*clipped")
@pytest.mark.parametrize("decibels", [18, 20, 22])
@pytest.mark.parametrize("change", [False, True])
def test_soft_music_under_the_voice_is_warned_about(reference: Waveform, decibels: float, change: bool):
    """With pauses of a quiet room, more than 20 dB below the voice: softer music fills what pauses there are."""
    speech = repeated(reference, 2)
    music = chords(speech.seconds, speech.sample_rate, change=change)[: len(speech.samples)]
    level = np.sqrt((speech.samples**2).mean())
    mixed = 0.5 * (speech.samples + 10 ** (-decibels / 20) * level * music)
    with pytest.warns(ReferenceWarning, match="under the voice.*music"):
        make_voice(Waveform(mixed.astype(np.float32), speech.sample_rate))


def beats(kind: str, seconds: float, sample_rate: int) -> np.ndarray:
    """Two beats a second of power 1: a bass that fades, a drum whose pitch falls, or a cymbal."""
    time = np.arange(round(seconds * sample_rate)) / sample_rate
    age = time % 0.5
    sound = {
        "bass": sum(np.sin(2 * np.pi * 55 * harmonic * time) / harmonic**2 for harmonic in (1, 2, 3)),
        "high bass": np.sin(2 * np.pi * 98 * time),
        "drum": np.sin(2 * np.pi * (50 * age + 2.7 * (1 - np.exp(-age / 0.03)))),
        "cymbal": np.diff(np.random.default_rng(0).standard_normal(len(time) + 1)),
    }[kind] * np.exp(-age / (0.03 if kind == "cymbal" else 0.12))
    return sound / np.sqrt((sound**2).mean())


@pytest.mark.filterwarnings("ignore:.*clipped")
@pytest.mark.parametrize("decibels", [6, 14])
@pytest.mark.parametrize(
    ("kind", "file", "count"),
    [("bass", "LJ001-0008.flac", 4), ("high bass", "LJ001-0008.flac", 4), ("drum", "LJ001-0008.flac", 4),
     ("cymbal", "sense-0930.flac", 2)],
)  # fmt: skip
def test_a_beat_under_the_voice_is_warned_about(kind: str, file: str, count: int, decibels: float):
    """Of which the pauses between the beats are as quiet as the room."""
    speech = repeated(read(Path(__file__).parents[1] / "audio" / file), count)
    level = np.sqrt((speech.samples**2).mean())
    sound = beats(kind, speech.seconds, speech.sample_rate)[: len(speech.samples)]
    mixed = 0.5 * (speech.samples + 10 ** (-decibels / 20) * level * sound)
    with pytest.warns(ReferenceWarning, match="sounds? under the voice"):
        make_voice(Waveform(mixed.astype(np.float32), speech.sample_rate))


@pytest.mark.filterwarnings("error::marstts.synthesis.clone.ReferenceWarning")
@pytest.mark.parametrize("file", ["LJ001-0008.flac", "sense-0930.flac"])
def test_nothing_is_heard_under_the_voice_of_a_clean_recording(file: str):
    make_voice(repeated(read(Path(__file__).parents[1] / "audio" / file), 3))


@pytest.mark.filterwarnings("error::marstts.synthesis.clone.ReferenceWarning")
@pytest.mark.parametrize("decibels", [28, 35])
def test_a_room_with_noise_is_not_called_music(reference: Waveform, decibels: float):
    speech = repeated(reference, 2)
    noise = np.random.default_rng(0).standard_normal(len(speech.samples))
    noise = np.convolve(noise, np.ones(8) / np.sqrt(8), mode="same")  # duller, as of rooms
    level = np.sqrt((speech.samples**2).mean())
    mixed = 0.5 * (speech.samples + 10 ** (-decibels / 20) * level * noise)
    make_voice(Waveform(mixed.astype(np.float32), speech.sample_rate))


def test_telephone_quality_is_warned_about(reference: Waveform):
    with pytest.warns(ReferenceWarning, match="8 kHz, as telephones"):
        make_voice(resample(reference, 8_000))


def test_telephone_quality_is_warned_about_at_any_sample_rate(reference: Waveform):
    with pytest.warns(ReferenceWarning, match="no sound above 4 kHz, as of telephones"):
        make_voice(resample(resample(reference, 8_000), 24_000))


@pytest.mark.parametrize("file", ["LJ001-0008.flac", "sense-0930.flac"])
def test_a_recording_of_a_person_is_not_called_a_telephone(file: str):
    recording = read(Path(__file__).parents[1] / "audio" / file)
    assert not lacks_high_frequencies(recording)
    assert lacks_high_frequencies(resample(resample(recording, 8_000), 44_100))


def test_a_recording_that_is_too_quiet_is_not_called_silent(reference: Waveform):
    with pytest.raises(AudioError, match=r"too quiet: it reaches 0\.\d+% of full scale"):
        make_voice(Waveform(reference.samples / np.abs(reference.samples).max() * np.float32(1e-4), 24_000))


@pytest.mark.parametrize("transcript", ["Test.", "He said", "voice 01", "A b c d e f g."])
def test_with_a_transcript_that_lacks_words_the_clone_is_shallow(reference: Waveform, transcript: str):
    longer = repeated(reference, 2)
    with pytest.warns(ReferenceWarning, match="lacks words, and the clone is shallow"):
        voice = make_voice(longer, transcript)
    assert voice.prefix is None and voice == make_voice(longer)


@pytest.mark.parametrize("transcript", ["", "  ", "🙂", "..."])
def test_a_transcript_without_words_is_refused(reference: Waveform, transcript: str):
    with pytest.raises(TextError, match="transcript"):
        make_voice(reference, transcript)


@pytest.mark.parametrize(
    ("samples", "complaint"),
    [
        (np.zeros(48_000), "silent"),
        (np.full(48_000, 0.5), "silent"),  # a constant is no sound
        (0.3 * np.random.default_rng(0).standard_normal(2_400), "0.1 s of speech"),
        (np.full(48_000, np.nan), "not numbers"),
    ],
)
def test_unfit_references_are_refused_in_a_sentence(samples: np.ndarray, complaint: str):
    with pytest.raises(AudioError, match=complaint):
        make_voice(Waveform(samples.astype(np.float32), 24_000))


def test_files_that_are_no_recordings_are_refused(tmp_path: Path):
    (tmp_path / "text.wav").write_text("not a recording")
    (tmp_path / "empty.wav").write_bytes(b"")
    for name in ("text.wav", "empty.wav", "missing.wav"):
        with pytest.raises(AudioError, match=name):
            make_voice(tmp_path / name)


def test_a_transcript_longer_than_a_voice_may_keep_is_refused_before_the_work(reference: Waveform):
    with pytest.raises(TextError, match="the transcript of reference has 5000 characters; expected at most 4000"):
        make_voice(reference, "a" * 5000)
