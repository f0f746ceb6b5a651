"""Preprocessing: the checks and changes before a recording is encoded, and how bad data is rejected by name."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import soundfile

from marstts import audio
from marstts.audio import Waveform
from marstts.codec.toy import ToyCodec
from marstts.errors import AudioError, DataError
from marstts.speaker.toy import ToySpeakerEncoder
from marstts.synthesis.clone import clone
from marstts_lab.data import tokenize as tokenizing
from marstts_lab.data.corpus import load_corpus
from marstts_lab.data.manifest import Utterance, utterance_line
from marstts_lab.data.preprocess import EncodedUtterance, Encoders, PreprocessConfig, UtteranceEncoder
from marstts_lab.data.shards import shard_path
from marstts_lab.data.tokenize import fingerprint_of, tokenize_manifest

RATE = 16_000
ROOT = Path(__file__).parents[2]
SPEECH = ROOT / "tests" / "audio" / "LJ001-0008.flac"


class CountingCodec(ToyCodec):
    """A toy that can take batches, and remembers how many it was given at a time."""

    def __init__(self) -> None:
        super().__init__(64)
        self.batches: list[int] = []

    def encode_batch(self, waveforms):
        self.batches.append(len(waveforms))
        if any(len(waveform.samples) == 9999 for waveform in waveforms):
            raise AudioError("one of these is broken")
        return [self.encode(waveform) for waveform in waveforms]

    def encode(self, waveform):
        if len(waveform.samples) == 9999:
            raise RuntimeError("broken")
        return super().encode(waveform)


def encoders(codec: ToyCodec | None = None) -> Encoders:
    return Encoders(
        codec or ToyCodec(64), {"identity": ToySpeakerEncoder("identity", 5), "style": ToySpeakerEncoder("style", 7)}
    )


def utterance(name: str, folder: Path, samples: np.ndarray | None = None, **changes: object) -> Utterance:
    """An utterance in order, its recording written, but for the changes."""
    if samples is None:
        samples = tone(0.5 + 0.1 * (len(name) % 3))
    soundfile.write(folder / f"{name}.wav", samples, RATE, subtype="FLOAT")
    facts = {
        "id": name, "audio": f"{name}.wav", "text": "Good morning.", "speaker": "s", "style": "regular",
        "seconds": len(samples) / RATE or 1.0, "source_rate": RATE, "split": "train", "license": "CC0",
    }  # fmt: skip
    return Utterance(**{**facts, **changes})


def tone(seconds: float, amplitude: float = 0.3) -> np.ndarray:
    return (amplitude * np.sin(2 * np.pi * 220 * np.arange(round(seconds * RATE)) / RATE)).astype(np.float32)


def encoded(one: Utterance, folder: Path, **options: object) -> EncodedUtterance | str:
    return UtteranceEncoder(encoders(), PreprocessConfig(**options)).encode_all([one], folder)[0]


def opened(one: Utterance, folder: Path, **options: object) -> Waveform:
    return UtteranceEncoder(encoders(), PreprocessConfig(**options)).open(one, folder)


# Batches


def test_recordings_of_similar_length_share_batches_and_come_back_in_order(tmp_path: Path) -> None:
    codec = CountingCodec()
    lengths = (0.9, 0.5, 0.7, 0.5, 0.9, 0.6, 0.8)
    rows = [utterance(f"u{i}", tmp_path, tone(seconds)) for i, seconds in enumerate(lengths)]
    results = UtteranceEncoder(encoders(codec), PreprocessConfig(batch_size=3)).encode_all(rows, tmp_path)
    assert codec.batches == [3, 3, 1]
    for row, result in zip(rows, results, strict=True):
        alone = encoded(row, tmp_path)
        assert isinstance(alone, EncodedUtterance) and isinstance(result, EncodedUtterance)
        for ours, theirs in zip(result.codes, alone.codes, strict=True):
            np.testing.assert_array_equal(ours, theirs)


class KeepingEncoder:
    """Keeps what it sees, alone or together."""

    name, size = "keeping", 1

    def __init__(self) -> None:
        self.seen: list[list[Waveform]] = []

    def embed_batch(self, waveforms):
        self.seen.append(list(waveforms))
        return np.full((len(waveforms), 1), 0.5, np.float32)

    def embed(self, waveform):
        return self.embed_batch([waveform])[0]


@pytest.mark.parametrize(("rate", "gain"), [(16_000, 1.0), (24_000, 0.05), (48_000, 0.3)])
def test_speaker_encoders_see_the_same_in_shards_as_in_synthesis(rate: int, gain: float, tmp_path: Path) -> None:
    speech = audio.resample(audio.read(SPEECH), rate)
    quiet = np.zeros(rate, np.float32)
    samples = np.concatenate([quiet, gain * speech.samples, quiet]) + np.float32(0.01)
    audio.write(Waveform(samples, rate), tmp_path / "a.flac")
    training, synthesis, codec = KeepingEncoder(), KeepingEncoder(), ToyCodec(64, sample_rate=24_000)
    one = utterance("b", tmp_path, audio="a.flac", seconds=len(samples) / rate)
    rows = [one, utterance("c", tmp_path), one]
    UtteranceEncoder(Encoders(codec, {"identity": training}), PreprocessConfig()).encode_all(rows, tmp_path)
    clone(tmp_path / "a.flac", codec=codec, encoders={"identity": synthesis})
    [batch], heard = training.seen, synthesis.seen[-1][0]
    assert len(batch) == 3 and heard.sample_rate == batch[-1].sample_rate == min(rate, 24_000)
    np.testing.assert_allclose(batch[-1].samples, heard.samples, atol=1e-4)


# Options


def test_loudness_is_normalized_when_asked(tmp_path: Path) -> None:
    one = utterance("quiet", tmp_path, tone(1.0, amplitude=0.02))
    assert audio.loudness_lufs(opened(one, tmp_path)) < -30
    assert audio.loudness_lufs(opened(one, tmp_path, loudness_lufs=-23.0)) == pytest.approx(-23.0, abs=0.2)


def test_a_segment_of_a_longer_file_is_read_alone(tmp_path: Path) -> None:
    whole = np.concatenate([tone(1.0), np.zeros(RATE, np.float32), tone(1.0, 0.1)])
    soundfile.write(tmp_path / "long.flac", whole, RATE)
    part = utterance("part", tmp_path, audio="long.flac", start=2.0, seconds=1.0)
    waveform = opened(part, tmp_path)
    assert waveform.seconds == 1.0 and np.abs(waveform.samples).max() == pytest.approx(0.1, abs=0.01)
    beyond = utterance("beyond", tmp_path, audio="long.flac", start=2.5, seconds=1.0)
    assert "ends after 3.00 s; expected audio from 2.50 to 3.50 s" in str(encoded(beyond, tmp_path))


def test_options_that_are_off_leave_fingerprints_alone_and_others_change_them(tmp_path: Path) -> None:
    rows, models = [utterance("a", tmp_path)], encoders()
    plain = fingerprint_of(rows, PreprocessConfig(), models)
    assert fingerprint_of(rows, PreprocessConfig(batch_size=2), models) == plain
    changes = [{"loudness_lufs": -20.0}, {"min_seconds": 0.1}, {"max_seconds": 9.0}]
    prints = {fingerprint_of(rows, PreprocessConfig(**change), models) for change in changes}
    assert len(prints | {plain}) == len(changes) + 1


# Bad data in a manifest


def test_every_kind_of_bad_data_is_counted_and_named_and_stops_nothing(tmp_path: Path) -> None:
    bad = {
        "missing file": utterance("missing", tmp_path, audio="gone.wav"),
        "no audio": utterance("garbage", tmp_path),
        "empty transcript": utterance("speechless", tmp_path, text="  "),
        "transcript without words": utterance("dots", tmp_path, text="…"),
        "wrong rate": utterance("boastful", tmp_path, source_rate=48_000),
        "not numbers": utterance("nan", tmp_path, np.full(RATE, np.nan, np.float32)),
        "silence": utterance("silent", tmp_path, np.zeros(RATE, np.float32)),
        "no samples": utterance("void", tmp_path, np.zeros(0, np.float32)),
    }
    (tmp_path / "garbage.wav").write_text("RIFF, but not quite")
    good = [utterance(f"good{i}", tmp_path) for i in range(4)]
    lines = [utterance_line(one) for one in (good[0], *bad.values(), *good[1:])]
    lines[3:3] = ["{not json", utterance_line(good[0]), json.dumps({"id": "poor"})]
    content = "\n".join(lines).encode() + b'\n{"id": "\xff"}\n'
    (tmp_path / "utterances.jsonl").write_bytes(content)

    report = tokenize_manifest(
        tmp_path / "utterances.jsonl", tmp_path / "shards", encoders, utterances_per_shard=5, max_reject_ratio=0.8,
    )  # fmt: skip
    assert (report.utterances, report.rejects) == (4, 12)
    assert [u.id for u in load_corpus(tmp_path / "shards").utterances] == [one.id for one in good]
    found = {row["id"]: row["reason"] for row in map(json.loads, (tmp_path / "shards/rejects.jsonl").open())}
    assert list(found)[:4] == ["utterances.jsonl:4", "utterances.jsonl:5", "utterances.jsonl:6", "utterances.jsonl:16"]
    expected = {
        "utterances.jsonl:4": "one JSON object per line", "utterances.jsonl:5": "'good0' was used before",
        "utterances.jsonl:6": "text: is missing", "utterances.jsonl:16": "expected UTF-8",
        "missing": "no such audio file", "garbage": "cannot be decoded", "speechless": "the text is empty",
        "dots": "nothing in the text can be spoken", "boastful": "states the bandwidth of 48000 Hz",
        "nan": "not numbers", "silent": "digital silence", "void": "holds no samples",
    }  # fmt: skip
    assert found.keys() == expected.keys()
    for name, words in expected.items():
        assert words in found[name]


def test_too_many_rejects_stop_the_run_with_a_clear_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [utterance(f"u{i}", tmp_path, None, **({"audio": "gone.wav"} if i in (1, 2) else {})) for i in range(6)]
    manifest, shards = tmp_path / "utterances.jsonl", tmp_path / "shards"
    manifest.write_text("".join(utterance_line(row) + "\n" for row in rows))

    def run(share: float):
        return tokenize_manifest(
            manifest, shards, encoders, utterances_per_shard=2, max_reject_ratio=share
        )  # fmt: skip

    with pytest.raises(
        DataError, match=r"2 of 6 utterances cannot be used \(33.3%; allowed are 30.0%\).*rejects.jsonl"
    ):
        run(0.3)
    assert [json.loads(line)["id"] for line in (shards / "rejects.jsonl").open()] == ["u1", "u2"]
    assert run(0.34).shards_made == 0  # what was finished is kept

    for path in shards.glob("*.safetensors"):
        path.unlink()
    monkeypatch.setattr(tokenizing, "MIN_UTTERANCES_FOR_RATIO", 4)
    with pytest.raises(DataError, match="2 of 4 utterances"):
        run(0.34)
    assert not shard_path(shards, 2).exists()  # it did not go on to the end
    assert len((shards / "rejects.jsonl").read_text().splitlines()) == 2
