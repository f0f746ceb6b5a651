"""Making, writing and reading test sets."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from marstts.audio import Waveform, write
from marstts.errors import DataError, MarsError
from marstts_lab.data.manifest import Utterance, write_manifest
from marstts_lab.evaluation.testset import make_testset, read_testset, trials_digest, write_testset

pytestmark = pytest.mark.slow

NUMBERS = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"]


def utterance(speaker: str, number: int, **changed: object) -> Utterance:
    values = {
        "id": f"{speaker}/{number}",
        "audio": f"audio/{speaker}-{number}.wav",
        "text": f"{speaker} counts {NUMBERS[number]}.",
        "speaker": speaker,
        "style": "regular",
        "seconds": 4.0,
        "source_rate": 16000,
        "split": "test",
        "license": "public domain",
    }
    return Utterance(**{**values, **changed})


@pytest.fixture
def manifest(tmp_path: Path) -> Path:
    """Three test speakers with six utterances each, one with a whisper, and one train speaker."""
    utterances = [utterance(speaker, number) for speaker in ("anna", "bert", "cleo") for number in range(6)]
    utterances += [utterance("dora", number, split="train") for number in range(6)]
    utterances += [utterance("anna", 6, style="whisper"), utterance("anna", 7, text="?!")]
    path = tmp_path / "corpus" / "utterances.jsonl"
    write_manifest(utterances, path)
    (path.parent / "audio").mkdir()
    for one in utterances:
        write(Waveform(np.zeros(100, np.float32), 8000), path.parent / one.audio)
    return path


def test_sentences_are_spread_over_speakers_and_references_have_another_text(manifest: Path):
    trials = make_testset(manifest, num_speakers=3, num_sentences=9)
    assert [sum(t.speaker == name for t in trials) for name in ("anna", "bert", "cleo")] == [3, 3, 3]
    assert len({t.text for t in trials}) == 9
    for trial in trials:
        assert trial.reference.name.startswith(trial.speaker) and trial.reference != trial.ground_truth
        assert trial.reference_transcript != trial.text
        assert trial.style == "regular"


def test_the_same_manifest_in_another_order_gives_the_same_test_set(manifest: Path, tmp_path: Path):
    lines = manifest.read_text().splitlines()
    shuffled = manifest.with_name("shuffled.jsonl")
    shuffled.write_text("\n".join(reversed(lines)) + "\n")
    first, second = (make_testset(path, num_speakers=2, num_sentences=7) for path in (manifest, shuffled))
    assert first == second
    assert trials_digest(first) == trials_digest(second)


def test_named_speakers_are_used(manifest: Path):
    trials = make_testset(manifest, num_speakers=1, num_sentences=3, speakers=["cleo"])
    assert {trial.speaker for trial in trials} == {"cleo"}


def test_sentences_of_any_style_are_paired_within_it_and_those_of_another_test_set_left_out(tmp_path: Path):
    path = tmp_path / "utterances.jsonl"
    styles = ("regular", "whisper")
    write_manifest([utterance("anna", n, text=NUMBERS[n], style=styles[n % 2]) for n in range(8)], path)
    first = make_testset(path, num_speakers=1, num_sentences=2)
    others = make_testset(path, num_speakers=1, num_sentences=6, style=None, exclude=first)
    assert {t.style for t in others} == set(styles) and not {t.text for t in others} & {t.text for t in first}
    assert len(others) == 6 and all(int(t.reference.stem[-1]) % 2 == styles.index(t.style) for t in others)
    with pytest.raises(DataError, match="only 6 different ones of style 'any'"):
        make_testset(path, num_speakers=1, num_sentences=7, style=None, exclude=first)


def test_a_text_is_used_once_even_if_two_speakers_read_it(tmp_path: Path):
    path = tmp_path / "utterances.jsonl"
    write_manifest([utterance(s, n, text=NUMBERS[n]) for s in ("anna", "bert") for n in range(4)], path)
    assert sorted(t.text for t in make_testset(path, num_speakers=2, num_sentences=4)) == sorted(NUMBERS[:4])


def test_long_references_are_preferred_and_the_longest_short_one_comes_next(tmp_path: Path):
    path = tmp_path / "utterances.jsonl"
    seconds = [1.5, 2.5, 1.2, 0.5]
    write_manifest([utterance("anna", n, seconds=s) for n, s in enumerate(seconds)], path)
    references = {t.id: t.reference.name for t in make_testset(path, num_speakers=1, num_sentences=4)}
    assert references["anna_0"] == references["anna_2"] == references["anna_3"] == "anna-1.wav"
    assert references["anna_1"] == "anna-0.wav"
    write_manifest([utterance("anna", n, seconds=s) for n, s in enumerate([*seconds, 3.0])], path)
    references = {t.id: t.reference.name for t in make_testset(path, num_speakers=1, num_sentences=5)}
    assert {references[f"anna_{n}"] for n in range(4)} == {"anna-4.wav"}


def test_speakers_without_a_second_text_are_left_out(tmp_path: Path):
    path = tmp_path / "utterances.jsonl"
    alone = [utterance(f"alone-{n}", 0, text=NUMBERS[n]) for n in range(2)]
    alone += [utterance("same", n, text=NUMBERS[2]) for n in range(2)]
    write_manifest([*alone, *(utterance("anna", n, text=NUMBERS[3 + n]) for n in range(2))], path)
    assert {t.speaker for t in make_testset(path, num_speakers=1, num_sentences=2)} == {"anna"}
    with pytest.raises(DataError, match="expected 2 speakers, but there are only 1"):
        make_testset(path, num_speakers=2, num_sentences=2)


def test_a_written_test_set_reads_back_from_another_folder(manifest: Path, tmp_path: Path):
    trials = make_testset(manifest, num_speakers=2, num_sentences=4)
    path = tmp_path / "elsewhere" / "deep" / "testset.jsonl"
    write_testset(trials, path)
    assert json.loads(path.read_text().splitlines()[0])["ground_truth"].startswith("../../corpus/audio/")
    found = read_testset(path)
    assert [t.text for t in found] == [t.text for t in trials]
    assert all(
        t.ground_truth.samefile(u.ground_truth) and t.reference.samefile(u.reference)
        for t, u in zip(found, trials, strict=True)
    )
    assert trials_digest(found) == trials_digest(trials)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"id": "../x"}, "id"),
        ({"text": "?!"}, "no words"),
        ({"ground_truth": "nowhere.wav"}, "nowhere.wav does not exist"),
        ({"color": "red"}, "color"),
    ],
)
def test_unusable_lines_are_named(manifest: Path, change: dict, complaint: str):
    path = manifest.with_name("testset.jsonl")
    write_testset(make_testset(manifest, num_speakers=1, num_sentences=2), path)
    lines = path.read_text().splitlines()
    path.write_text(lines[0] + "\n" + json.dumps({**json.loads(lines[1]), **change}) + "\n")
    with pytest.raises(MarsError, match=rf"testset\.jsonl:2: .*{complaint}"):
        read_testset(path)


def test_devices_and_folders_are_no_test_sets(tmp_path: Path):
    with pytest.raises(DataError, match="folder"):
        read_testset(tmp_path)
    with pytest.raises(DataError, match="device or a pipe"):
        read_testset(Path("/dev/zero"))
