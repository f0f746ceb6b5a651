"""Folders of recordings with a table: speakers stay in one split, transcripts become readable, bad tables are named."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import soundfile
from typer.testing import CliRunner

from marstts.cli.main import app
from marstts.errors import DataError
from marstts_lab.data.corpora.build_manifest import RawUtterance, RejectedItem, RejectKind
from marstts_lab.data.corpora.people_table import people_table, readable, split_of
from marstts_lab.data.manifest import parse_utterance, read_manifest

HEADER = "path\tcorpus\tspeaker\tgender\tseconds\tsample_rate\tlicense\ttranscript\tsource"
ROWS = (
    "audio/a.flac\tlibrispeech\t19\tF\t1.0\t16000\tCC BY 4.0\tHE SAID I'M SURE I KNOW\tx/y",
    "audio/b.flac\tlibritts\t19\tF\t1.0\t24000\tCC BY 4.0\tHe said so.\tx/y",
    "audio/c.flac\tljspeech\tLJ\tF\t1.0\t22050\tpublic domain\tA reader.\tx/y",
    "audio/d.flac\tvctk\t19\tM\t1.0\t16000\tCC BY 4.0\t\tx/y",
)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "people"
    (folder / "audio").mkdir(parents=True)
    for name, rate in (("a", 16000), ("b", 48000), ("c", 22050), ("d", 16000)):
        soundfile.write(folder / "audio" / f"{name}.flac", 0.1 * np.sin(np.arange(rate) / 20), rate)
    (folder / "utterances.tsv").write_text("\n".join((HEADER, *ROWS)) + "\n", encoding="utf-8")
    return folder


def test_rows_become_recordings_with_their_true_rate_and_license(root: Path) -> None:
    first, second, *_ = people_table(root)
    assert isinstance(first, RawUtterance) and isinstance(second, RawUtterance)
    assert (first.id, first.text) == ("librispeech-19-a", "He said I'm sure I know")
    assert (first.source_rate, first.license) == (16000, "CC BY 4.0")
    assert second.source_rate == 24000 and second.text == "He said so."


def test_a_reader_of_librispeech_and_libritts_is_one_speaker(root: Path) -> None:
    speakers = {row.id: row.speaker for row in people_table(root) if isinstance(row, RawUtterance)}
    assert speakers["librispeech-19-a"] == speakers["libritts-19-b"] == "libri-19"


def test_recordings_without_a_transcript_are_filtered(root: Path) -> None:
    last = list(people_table(root))[-1]
    assert isinstance(last, RejectedItem) and last.kind is RejectKind.FILTERED and "no transcript" in last.reason


def test_a_corpus_can_be_left_out(root: Path) -> None:
    assert "ljspeech-LJ-c" in {row.id for row in people_table(root)}
    assert "ljspeech-LJ-c" not in {row.id for row in people_table(root, ["ljspeech"])}
    with pytest.raises(DataError, match="no corpus timit to leave out; it has librispeech, libritts"):
        list(people_table(root, ["timit"]))


def test_the_command_writes_a_manifest_with_files_of_its_own(root: Path, tmp_path: Path) -> None:
    output = tmp_path / "out"
    arguments = ["prepare", "people", "--root", root, "--output", output, "--exclude", "ljspeech", "--audio", "flac"]
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == 0, result.output
    found = read_manifest(output / "utterances.jsonl")
    assert [u.source_rate for u in found] == [16000, 24000]
    assert all((output / u.audio).is_file() for u in found)
    assert found[0] == parse_utterance((output / "utterances.jsonl").read_text().splitlines()[0], "line")


def test_splits_are_fixed_and_of_the_shares_wanted() -> None:
    counts = {"train": 0, "validation": 0, "test": 0}
    for number in range(5000):
        counts[split_of(f"libri-{number}")] += 1
    assert 0.085 < counts["test"] / 5000 < 0.115 and 0.03 < counts["validation"] / 5000 < 0.05
    assert [split_of(name) for name in ("libri-908", "libri-84", "cmu_arctic-axb")] == ["test", "train", "validation"]


@pytest.mark.parametrize(
    ("transcript", "expected"),
    [
        ("I THINK I'LL GO", "I think I'll go"),
        ("A B", "A b"),
        ("I", "I"),
        ("NASA is here", "NASA is here"),
        ("TWO  SPACES", "Two spaces"),
    ],
)
def test_transcripts_in_capitals_become_sentence_case(transcript: str, expected: str) -> None:
    assert readable(transcript) == expected


@pytest.mark.parametrize(
    ("table", "complaint"),
    [
        ("path\tcorpus\n", "missing: speaker, sample_rate, license, transcript"),
        (f"{HEADER}\naudio/a.flac\tx\n", ":2: expected 9 fields separated by tabs, got 2"),
        (f"{HEADER}\n{ROWS[0].replace('16000', 'fast')}\n", "expected a sample rate in Hz, got 'fast'"),
    ],
)
def test_a_malformed_table_is_refused_by_its_line(tmp_path: Path, table: str, complaint: str) -> None:
    (tmp_path / "utterances.tsv").write_text(table, encoding="utf-8")
    with pytest.raises(DataError, match=complaint):
        list(people_table(tmp_path))


def test_the_license_column_may_have_the_british_spelling(root: Path) -> None:
    table = root / "utterances.tsv"
    expected = list(people_table(root))
    table.write_text(
        table.read_text(encoding="utf-8").replace("license", "license".replace("s", "c"), 1), encoding="utf-8"
    )
    assert list(people_table(root)) == expected


def test_a_folder_without_a_table_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"utterances\.tsv: no such file"):
        list(people_table(tmp_path))
