"""Scores of codecs on recordings."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from marstts.audio import Waveform, write
from marstts.codec.base import CodecSpec
from marstts.codec.toy import ToyCodec
from marstts.data.manifest import Utterance, write_manifest
from marstts.errors import DataError
from marstts.evaluation.reconstruction import (
    Clip,
    bit_rate,
    evaluate_codec,
    read_clips,
    time_decoding,
    write_reconstruction,
)

RECORDINGS = Path(__file__).parents[1] / "audio"


class PerfectCodec:
    """Reconstructs every 16-bit sample: one level with a code per sample, padded to whole patches."""

    spec = CodecSpec(name="perfect", sample_rate=16000, codebook_size=2**16, hop_lengths=(4, 1))

    def encode(self, waveform: Waveform):
        samples = np.pad(waveform.samples, (0, -len(waveform.samples) % 4))
        fine = np.clip(np.rint(samples * 2**15), -(2**15), 2**15 - 1).astype(np.int64) + 2**15
        return np.zeros(len(fine) // 4, np.int64), fine

    def decode(self, codes):
        return Waveform(((codes[1] - 2**15) / 2**15).astype(np.float32), 16000)


@pytest.mark.slow
def test_a_perfect_codec_scores_perfectly(tmp_path: Path):
    pytest.importorskip("pystoi")
    pytest.importorskip("pesq")
    clip = Clip(RECORDINGS / "sense-0930.flac", "he might even have been made amiable himself")
    result = evaluate_codec(PerfectCodec(), [clip], "sphinx")
    [score] = result.clips
    assert score.stoi == pytest.approx(1.0, abs=1e-6) and score.estoi == pytest.approx(1.0, abs=1e-6)
    assert score.pesq == pytest.approx(4.644, abs=1e-3)
    assert score.mel_distance == pytest.approx(0.0, abs=1e-4)
    assert score.decoded_edits == score.original_edits and score.original_edits.length == 44
    assert result.codebooks[0].perplexity == 1.0 and result.codebooks[0].used == 1
    assert result.codebooks[1].perplexity > 100

    markdown = write_reconstruction(result, tmp_path, {"audio": "one clip"})
    assert markdown == (tmp_path / "codec.md").read_text()
    assert "| PESQ-WB | 4.644 [4.644, 4.644] |" in markdown
    assert "perplexity 1, 1 of 65536 entries" in markdown
    values = json.loads((tmp_path / "codec.json").read_text())
    assert values["summary"]["STOI"]["value"] == pytest.approx(1.0, abs=1e-6)
    assert values["clips"][0]["clip"] == "sense-0930.flac"


def test_bit_rate_counts_all_levels():
    assert bit_rate(ToyCodec(codebook_size=4096)) == pytest.approx(24000 / 2048 * 7 * 12)
    assert bit_rate(PerfectCodec()) == 20000 * 16


def test_timing_decodes_ten_seconds_of_whole_patches():
    decoded: list[int] = []

    class Counting(PerfectCodec):
        def decode(self, codes):
            decoded.append(len(codes[1]))
            return super().decode(codes)

    speed = time_decoding(Counting(), [np.zeros(3, np.int64), np.arange(12)])
    assert set(decoded) == {160000} and len(decoded) == 6
    assert speed.audio_seconds == 10.0
    assert 0.0 <= speed.wall_seconds < 5.0


def clips_folder(folder: Path, names: list[str]) -> Path:
    folder.mkdir()
    for name in names:
        write(Waveform(np.zeros(100, np.float32), 8000), folder / name)
    return folder


def test_folders_may_have_a_list_of_transcripts(tmp_path: Path):
    folder = clips_folder(tmp_path / "clips", ["a.wav", "b.flac"])
    (folder / "metadata.csv").write_text("id|text|normalised_text\na|He said 2|He said two\n")
    assert read_clips(folder, 9) == [Clip(folder / "a.wav", "He said two"), Clip(folder / "b.flac", None)]


def test_the_limit_draws_the_same_recordings_every_time(tmp_path: Path):
    folder = clips_folder(tmp_path / "clips", [f"{letter}.wav" for letter in "abcdefgh"])
    picked = read_clips(folder, 3)
    assert len(picked) == 3 and picked == read_clips(folder, 3)
    assert set(picked) < set(read_clips(folder, 5))


def test_clips_of_a_manifest_are_its_test_split(tmp_path: Path):
    utterances = [
        Utterance(
            id=split, audio=f"{split}.wav", text="Hello.", speaker="anna", style="regular",
            seconds=1.0, source_rate=8000, split=split, license="none",
        )
        for split in ("train", "test")
    ]  # fmt: skip
    write_manifest(utterances, tmp_path / "utterances.jsonl")
    assert read_clips(tmp_path / "utterances.jsonl", 5) == [Clip(tmp_path / "test.wav", "Hello.")]


def test_sources_without_recordings_are_refused(tmp_path: Path):
    with pytest.raises(DataError, match="expected recordings"):
        read_clips(tmp_path, 5)
    with pytest.raises(DataError, match="expected a folder"):
        read_clips(tmp_path / "nowhere", 5)
