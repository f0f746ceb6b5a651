"""Tokenization with the smallest encoders: a codec of sample averages, embeddings of loudness."""

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import soundfile

from marstts.audio import Waveform
from marstts.codec.base import CodecSpec
from marstts.errors import DataError
from marstts.io.files import LOCK_FILE
from marstts.speaker.base import encoder_input
from marstts_lab.data.corpus import load_corpus
from marstts_lab.data.manifest import Utterance, write_manifest
from marstts_lab.data.preprocess import Encoders, PreprocessConfig
from marstts_lab.data.shards import EncoderInfo, read_info, shard_path
from marstts_lab.data.tokenize import tokenize_manifest
from marstts_lab.data.workers import Processes

SPEC = CodecSpec(name="averages", sample_rate=8000, codebook_size=19, hop_lengths=(800, 400, 200))


class AverageCodec:
    spec = SPEC

    def encode(self, waveform: Waveform) -> tuple[np.ndarray, ...]:
        whole = -len(waveform.samples) % SPEC.patch_samples
        samples = np.abs(np.pad(waveform.samples, (0, whole)))
        return tuple(
            np.minimum(samples.reshape(-1, hop).mean(axis=1) * 19, 18).astype(np.int64) for hop in SPEC.hop_lengths
        )

    def decode(self, codes):
        raise AssertionError("tokenization never decodes")


@dataclass(frozen=True)
class LoudnessEncoder:
    name: str
    size: int

    def embed(self, waveform: Waveform) -> np.ndarray:
        return np.full(self.size, np.abs(waveform.samples).mean(), np.float32)


def load_encoders() -> Encoders:
    return Encoders(AverageCodec(), {"identity": LoudnessEncoder("who", 3), "style": LoudnessEncoder("how", 5)})


def load_other_encoders() -> Encoders:
    return Encoders(AverageCodec(), {"identity": LoudnessEncoder("another", 3), "style": LoudnessEncoder("how", 5)})


def make_corpus(folder: Path, count: int, **changes: object) -> Path:
    """`count` seconds-long utterances of growing length and loudness; returns the manifest."""
    utterances = []
    for index in range(count):
        seconds = 0.5 + 0.15 * index
        samples = np.random.default_rng(index).uniform(-1, 1, int(8000 * seconds)) * (index + 1) / count
        soundfile.write(folder / f"{index}.flac", samples, 8000)
        utterances.append(
            Utterance(
                id=f"u{index}",
                audio=f"{index}.flac",
                text=f"Number {index}.",
                speaker=f"s{index % 2}",
                style="regular",
                seconds=seconds,
                source_rate=8000,
                split="train" if index % 3 else "validation",
                license="CC0",
            )
        )
    write_manifest(utterances, folder / "utterances.jsonl")
    return folder / "utterances.jsonl"


def tokenize(manifest: Path, output: Path, **options):
    return tokenize_manifest(manifest, output, options.pop("encoders", load_encoders), **options)


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name != LOCK_FILE}


def test_the_corpus_is_what_the_encoders_computed(tmp_path):
    report = tokenize(make_corpus(tmp_path, 5), tmp_path / "shards", utterances_per_shard=2)
    assert (report.shards, report.shards_made, report.utterances, report.rejects) == (3, 3, 5, 0)
    corpus = load_corpus(tmp_path / "shards")
    assert [u.id for u in corpus.utterances] == ["u0", "u1", "u2", "u3", "u4"]
    assert corpus.codec == SPEC and corpus.encoders == {
        "identity": EncoderInfo("who", 3),
        "style": EncoderInfo("how", 5),
    }
    embeddings = corpus.embeddings_of(range(5))
    assert {role: values.shape for role, values in embeddings.items()} == {"identity": (5, 3), "style": (5, 5)}
    encoders = load_encoders()
    for index in range(5):
        samples, rate = soundfile.read(tmp_path / f"{index}.flac", dtype="float32")
        expected = encoders.codec.encode(Waveform(samples, rate))
        for found, right in zip(corpus.codes_of(index), expected, strict=True):
            np.testing.assert_array_equal(found, right)
        seen = encoder_input(Waveform(samples, rate), SPEC.sample_rate).samples
        np.testing.assert_allclose(embeddings["identity"][index], np.abs(seen).mean(), rtol=1e-3)
    assert corpus.seconds == pytest.approx(corpus.num_patches.sum() * 0.1)


@pytest.mark.slow
def test_the_bytes_do_not_depend_on_the_number_of_workers(tmp_path):
    manifest = make_corpus(tmp_path, 5)
    tokenize(manifest, tmp_path / "one", utterances_per_shard=2)
    tokenize(manifest, tmp_path / "two", utterances_per_shard=2, executor=Processes(2))
    assert contents(tmp_path / "one") == contents(tmp_path / "two")


def test_the_order_of_the_manifest_does_not_change_the_corpus(tmp_path):
    manifest = make_corpus(tmp_path, 5)
    tokenize(manifest, tmp_path / "forward", utterances_per_shard=2)
    manifest.write_text("".join(reversed(manifest.read_text().splitlines(keepends=True))))
    tokenize(manifest, tmp_path / "backward", utterances_per_shard=2)
    forward, backward = load_corpus(tmp_path / "forward"), load_corpus(tmp_path / "backward")
    assert list(forward.utterances) == list(backward.utterances)
    np.testing.assert_array_equal(forward.num_patches, backward.num_patches)
    for role in ("identity", "style"):
        np.testing.assert_array_equal(forward.embeddings_of(range(5))[role], backward.embeddings_of(range(5))[role])
    for index in range(5):
        for one, other in zip(forward.codes_of(index), backward.codes_of(index), strict=True):
            np.testing.assert_array_equal(one, other)


def test_a_resumed_run_makes_only_missing_corrupt_and_stale_shards(tmp_path):
    manifest, output = make_corpus(tmp_path, 6), tmp_path / "shards"
    tokenize(manifest, output, utterances_per_shard=2)
    before = contents(output)
    assert tokenize(manifest, output, utterances_per_shard=2).shards_made == 0
    shard_path(output, 0).unlink()
    shard_path(output, 1).write_bytes(b"half a shard")
    assert tokenize(manifest, output, utterances_per_shard=2).shards_made == 2
    assert contents(output) == before
    manifest.write_text(manifest.read_text().replace("Number 4.", "Number four."))
    assert tokenize(manifest, output, utterances_per_shard=2).shards_made == 1
    assert tokenize(manifest, output, utterances_per_shard=2, encoders=load_other_encoders).shards_made == 3


def test_a_grown_manifest_adds_shards_and_a_shortened_one_removes_them(tmp_path):
    manifest, output = make_corpus(tmp_path, 6), tmp_path / "shards"
    lines = manifest.read_text().splitlines(keepends=True)
    manifest.write_text("".join(lines[:4]))
    tokenize(manifest, output, utterances_per_shard=2)
    manifest.write_text("".join(lines))
    assert tokenize(manifest, output, utterances_per_shard=2).shards_made == 1
    manifest.write_text("".join(lines[:2]))
    tokenize(manifest, output, utterances_per_shard=2)
    assert len(load_corpus(output)) == 2


def test_rejected_utterances_are_listed_with_their_reasons(tmp_path):
    manifest = make_corpus(tmp_path, 8)
    (tmp_path / "0.flac").write_text("this is no audio")
    (tmp_path / "1.flac").unlink()
    soundfile.write(tmp_path / "2.flac", np.zeros(6400), 8000)
    soundfile.write(tmp_path / "3.flac", np.ones(80) * 0.5, 8000)
    manifest.write_text(manifest.read_text().replace("Number 4.", " "))
    options = {"utterances_per_shard": 3, "config": PreprocessConfig(max_seconds=1.5), "max_reject_ratio": 0.75}
    report = tokenize(manifest, tmp_path / "shards", **options)
    rejects = [json.loads(line) for line in (tmp_path / "shards" / "rejects.jsonl").read_text().splitlines()]
    assert [reject["id"] for reject in rejects] == ["u0", "u1", "u2", "u3", "u4", "u7"]
    for reject, reason in zip(
        rejects, ["decoded", "1.flac", "silence", "0.01 s", "text is empty", "1.55 s"], strict=True
    ):
        assert reason in reject["reason"]
    assert (report.utterances, report.rejects) == (2, 6)
    assert [u.id for u in load_corpus(tmp_path / "shards").utterances] == ["u5", "u6"]
    assert tokenize(manifest, tmp_path / "shards", **options).rejects == 6


def test_splits_are_kept_apart(tmp_path):
    tokenize(make_corpus(tmp_path, 7), tmp_path / "shards", utterances_per_shard=3)
    corpus = load_corpus(tmp_path / "shards")
    validation = corpus.split("validation")
    assert [u.id for u in validation.utterances] == ["u0", "u3", "u6"]
    for found, right in zip(validation.codes_of(1), corpus.codes_of(3), strict=True):
        np.testing.assert_array_equal(found, right)
    assert len(corpus.split("test")) == 0
    assert validation.num_patches.sum() == sum(len(validation.codes_of(i)[0]) for i in range(3))
    for role, ours in validation.embeddings_of([2, 0]).items():
        np.testing.assert_array_equal(ours, corpus.embeddings_of([6, 0])[role])
    assert (
        validation.codes[0] is corpus.codes[0] and validation.embeddings is corpus.embeddings
    )  # nothing is held twice
    assert validation.seconds == pytest.approx(validation.num_patches.sum() * 0.1)
    assert list(validation.select([1]).utterances) == [corpus.utterances[3]]
    np.testing.assert_array_equal(validation.select([1]).codes_of(0)[1], corpus.codes_of(3)[1])


def test_shards_of_different_encoders_are_not_mixed(tmp_path):
    manifest = make_corpus(tmp_path, 2)
    tokenize(manifest, tmp_path / "a")
    tokenize(manifest, tmp_path / "b", encoders=load_other_encoders)
    with pytest.raises(DataError, match="disagree on the identity encoder"):
        load_corpus(tmp_path / "a", tmp_path / "b")
    with pytest.raises(DataError, match="2 utterance ids occur more than once"):
        load_corpus(tmp_path / "a", tmp_path / "a")


def test_folders_without_shards_and_files_of_another_kind_are_named(tmp_path):
    with pytest.raises(DataError, match="no shards here"):
        load_corpus(tmp_path)
    (tmp_path / "shard-00000.safetensors").write_text("hello")
    with pytest.raises(DataError, match=r"shard-00000.safetensors: expected a shard"):
        read_info(tmp_path / "shard-00000.safetensors")


def test_a_codec_with_codes_outside_its_codebook_stops_the_run(tmp_path):
    class TooLarge(AverageCodec):
        def encode(self, waveform):
            return tuple(codes + 19 for codes in super().encode(waveform))

    def load() -> Encoders:
        return Encoders(TooLarge(), load_encoders().speaker)

    with pytest.raises(DataError, match="outside its 19 entries"):
        tokenize(make_corpus(tmp_path, 2), tmp_path / "shards", encoders=load)


def test_a_recording_shorter_than_the_manifest_states_is_rejected(tmp_path):
    manifest = make_corpus(tmp_path, 12)
    samples, rate = soundfile.read(tmp_path / "5.flac")
    soundfile.write(tmp_path / "5.flac", samples[: len(samples) // 2], rate)  # half a sentence, with all its words
    assert tokenize(manifest, tmp_path / "shards").rejects == 1
    [reject] = [json.loads(line) for line in (tmp_path / "shards" / "rejects.jsonl").read_text().splitlines()]
    assert (
        reject["id"] == "u5" and "0.62 s of audio, but the manifest states 1.25 s: the file is cut" in reject["reason"]
    )
