"""Recipes on miniature corpora in the layouts of the real ones, and the rejects of bad data in them."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import soundfile
from typer.testing import CliRunner

import miniature_corpora
from marstts import audio
from marstts.cli.main import app
from marstts.errors import DataError
from marstts_lab.data.corpora.build_manifest import (
    Audio,
    ManifestConfig,
    RawUtterance,
    RejectedItem,
    RejectKind,
    build_manifest,
    could_be_english,
    held_out,
)
from marstts_lab.data.corpora.catalog import RECIPES
from marstts_lab.data.corpora.folder import folder
from marstts_lab.data.manifest import Utterance, parse_utterance, read_manifest

pytestmark = pytest.mark.slow

NEEDS = {"globe": "pyarrow", "anispeech": "pyarrow"}
RUN = CliRunner()


def build(name: str, root: Path) -> Path:
    """The miniature corpus of this name."""
    if name in NEEDS:
        pytest.importorskip(NEEDS[name])
    root.mkdir()
    getattr(miniature_corpora, name)(root)
    return root


def manifest_of(output: Path) -> list[Utterance]:
    """All utterances, parts of files too."""
    lines = (output / "utterances.jsonl").read_text(encoding="utf-8").splitlines()
    return [parse_utterance(line, "manifest") for line in lines]


def rejects_of(output: Path) -> dict[str, dict]:
    """The rejects, by id."""
    return {row["id"]: row for row in map(json.loads, (output / "rejects.jsonl").read_text().splitlines())}


def prepare(name: str, root: Path, output: Path, *options: str) -> list[Utterance]:
    """The manifest that `marstts prepare` writes."""
    result = RUN.invoke(app, ["prepare", name, "--root", str(root), "--output", str(output), *options])
    assert result.exit_code == 0, result.output
    return manifest_of(output)


EXPECTED = {
    "libriheavy": (6, {"librivox-100"}, {"train": 3, "validation": 3}, 16_000),
    "globe": (6, {"globe-S_000100", "globe-S_000101"}, {"train": 2, "validation": 2, "test": 2}, 24_000),
    "vctk": (4, {"vctk-p229", "vctk-p230"}, {"train": 4}, 48_000),
    "anispeech": (4, {"anispeech-1"}, {"train": 4}, 44_100),
    "libritts": (4, {"libritts-26", "libritts-84"}, {"train": 2, "validation": 2}, 24_000),
    "ljspeech": (4, {"ljspeech"}, {"train": 4}, 22_050),
}
"""Utterances, speakers, splits and sample rate of each miniature."""


@pytest.mark.parametrize("name", EXPECTED)
def test_a_corpus_in_its_own_layout_becomes_a_manifest(name: str, tmp_path: Path) -> None:
    count, speakers, splits, rate = EXPECTED[name]
    utterances = prepare(name, build(name, tmp_path / "corpus"), tmp_path / "out")
    assert len(utterances) == count
    assert {utterance.speaker for utterance in utterances} == speakers
    assert {utterance.source_rate for utterance in utterances} == {rate}
    found = [utterance.split for utterance in utterances]
    assert {split: found.count(split) for split in set(found)} == splits
    assert all(utterance.license and utterance.text.strip() for utterance in utterances)
    for utterance in utterances:
        path = tmp_path / "out" / utterance.audio
        assert path.is_file() and 0.5 <= utterance.seconds <= 1.3
    assert all(row["kind"] == "filtered" for row in rejects_of(tmp_path / "out").values())


def test_a_check_reads_the_first_recordings_of_all_corpora_and_names_every_problem(tmp_path: Path) -> None:
    root = tmp_path / "corpora"
    root.mkdir()
    for name in ("libriheavy", "globe", "vctk", "anispeech"):
        build(name, root / name)
    names = ["libriheavy", "globe", "vctk", "anispeech"]
    assert RUN.invoke(app, ["prepare", "check", *names, "--root", str(root)]).exit_code == 0
    for path in (root / "libriheavy").rglob("*.flac"):
        path.unlink()
    for path in (root / "globe").rglob("*.parquet"):
        path.unlink()
    output = RUN.invoke(app, ["prepare", "check", *names, "ljspeech", "--root", str(root)])
    text = " ".join(output.output.split())
    assert output.exit_code == 2 and "libriheavy: " in text and "globe: " in text and "ljspeech: " in text
    assert "vctk: " not in text and "anispeech: " not in text
    assert "expected some of" in RUN.invoke(app, ["prepare", "check", "librispeech", "--root", str(root)]).output


def test_every_corpus_of_the_catalog_has_a_miniature() -> None:
    assert EXPECTED.keys() == RECIPES.keys()


def test_libriheavy_gives_the_text_of_the_book_and_the_segment_of_the_chapter(tmp_path: Path) -> None:
    root = build("libriheavy", tmp_path / "corpus")
    second = next(u for u in prepare("libriheavy", root, tmp_path / "out") if u.id.endswith("64kb_1"))
    assert second.text == miniature_corpora.TEXTS[1] and second.start == 1.15 and second.seconds == 0.7
    with pytest.raises(DataError, match="--audio flac"):
        read_manifest(tmp_path / "out" / "utterances.jsonl")


def test_segments_can_be_written_as_files_that_every_command_reads(tmp_path: Path) -> None:
    root = build("libriheavy", tmp_path / "corpus")
    parts = prepare("libriheavy", root, tmp_path / "parts")
    prepare("libriheavy", root, tmp_path / "files", "--audio", "flac")
    files = read_manifest(tmp_path / "files" / "utterances.jsonl")
    assert [u.id for u in files] == [u.id for u in parts]
    for part, file in zip(parts, files, strict=True):
        assert part.start is not None
        whole = audio.read(tmp_path / "files" / file.audio)
        span = audio.read_span(part.audio, part.start, part.seconds)
        np.testing.assert_allclose(whole.samples, span.samples, atol=1e-4)


def test_the_manifest_that_the_page_makes_of_transcripts_is_valid(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class WhisperModel:
        def __init__(self, name: str) -> None: ...

        def transcribe(self, audio: str) -> tuple[list[SimpleNamespace], None]:
            return [SimpleNamespace(start=0.5, end=1.75, text=" Good morning, everyone.")], None

    for name in ("5230_english_scripted_0", "5230_english_nonscripted_3"):
        miniature_corpora.record(tmp_path / "ROOT" / "audio" / f"{name}.wav", 16_000, seconds=2.5)
    page = (Path(__file__).parents[2] / "docs" / "data" / "corpora.md").read_text(encoding="utf-8")
    monkeypatch.setitem(sys.modules, "faster_whisper", SimpleNamespace(WhisperModel=WhisperModel))
    monkeypatch.chdir(tmp_path)
    exec(page.split("```python\n")[1].split("```")[0], {})
    utterances = manifest_of(tmp_path / "ROOT")
    assert {(u.start, u.seconds, u.text) for u in utterances} == {(0.5, 1.25, "Good morning, everyone.")}
    assert {(u.speaker, u.style) for u in utterances} == {("ccv2-5230", "regular"), ("ccv2-5230", "spontaneous")}
    assert all(Path(u.audio).is_file() and u.source_rate == 16_000 for u in utterances)


@pytest.mark.parametrize("name", ["libritts", "ljspeech", "vctk"])
def test_invalid_files_are_rejected_by_name(name: str, tmp_path: Path) -> None:
    root = build(name, tmp_path / "corpus")
    files = [path for path in root.rglob("*") if path.suffix in (".wav", ".flac")]
    files = sorted(path for path in files if "mic1" not in path.name and "p315" not in path.name)
    files[0].write_text("no audio")
    files[1].unlink()
    utterances = prepare(name, root, tmp_path / "out", "--max-reject-ratio", "0.6")
    assert len(utterances) == EXPECTED[name][0] - 2
    faults = [row for row in rejects_of(tmp_path / "out").values() if row["kind"] == "error"]
    assert sorted("no such" in row["reason"] for row in faults) == [False, True]


def test_corrupt_parquet_rows_and_lists_are_rejected_and_the_rest_is_kept(tmp_path: Path) -> None:
    root = build("globe", tmp_path / "globe")
    (root / "data" / "train-00000-of-00001.parquet").write_bytes(b"PAR1 and then nothing")
    good = miniature_corpora.stored(24_000, "x.wav")
    rows = [{"audio": {"bytes": bad, "path": "x"}, "speaker_id": speaker, "transcript": "Good morning."}
            for bad, speaker in ((b"", "S_1"), (b"no audio", "S_1"), (good["bytes"], ""))]  # fmt: skip
    miniature_corpora.write_parquet(root / "data" / "val-00000-of-00001.parquet", rows)
    assert len(prepare("globe", root, tmp_path / "a", "--max-reject-ratio", "0.7")) == 2
    reasons = [row["reason"] for row in rejects_of(tmp_path / "a").values()]
    for reason, words in zip(reasons, ["corrupt after 0 rows", "no audio", "decoded", "no speaker"], strict=True):
        assert words in reason
    root = build("libriheavy", tmp_path / "libriheavy")
    path = root / "libriheavy_cuts_dev.jsonl.gz"
    path.write_bytes(path.read_bytes()[:-40])
    assert len(prepare("libriheavy", root, tmp_path / "b", "--max-reject-ratio", "0.3")) >= 3
    assert "truncated" in rejects_of(tmp_path / "b")["libriheavy_cuts_dev.jsonl.gz"]["reason"]


@pytest.mark.parametrize("name", RECIPES)
def test_a_folder_of_something_else_is_refused(name: str, tmp_path: Path) -> None:
    (tmp_path / "holiday.jpg").touch()
    with pytest.raises(DataError, match=r"expected|no such file"):
        list(RECIPES[name].open(tmp_path))
    with pytest.raises(DataError, match="no such folder"):
        list(RECIPES[name].open(tmp_path / "nowhere"))


# Folders of recordings


def test_a_folder_with_text_files_holds_out_a_tenth(tmp_path: Path) -> None:
    root = build("own_folder", tmp_path / "mine")
    utterances = prepare("folder", root, tmp_path / "out", "--license", "my own voice")
    assert {u.speaker for u in utterances} == {"anna", "ben"} and len(utterances) == 8
    assert [u.split for u in utterances].count("validation") == 1
    assert {u.license for u in utterances} == {"my own voice"}


TABLES = {
    "LJSpeech's": (
        "a|In 1984, Dr. Who left.|In nineteen eighty four, Doctor Who left.\nb|Yes.|Yes.\nc|No, never!|No, never!",
        [("In nineteen eighty four, Doctor Who left.", "mine"), ("Yes.", "mine"), ("No, never!", "mine")],
    ),
    "LJSpeech's, with bars": (
        "a|Press A | B.|Press A | B.\nb|Yes, I do.|Yes, I do.\nc|No, never!|No, never!",
        [("Press A | B.", "mine"), ("Yes, I do.", "mine"), ("No, never!", "mine")],
    ),
    "LJSpeech's, some not normalized": (
        "a|Good morning.|Good morning.\nb|Yes, I do.|\nc|He paid $5.|He paid five dollars.",
        [("Good morning.", "mine"), ("Yes, I do.", "mine"), ("He paid five dollars.", "mine")],
    ),
    "speakers": (
        "a|Good morning.|anna\nb|Shall we go?|Bert Miller\nc|Press A | B.|anna",
        [("Good morning.", "anna"), ("Shall we go?", "Bert Miller"), ("Press A | B.", "anna")],
    ),
    "bars in texts": (
        "a|Press A | B.\nb|Yes.\nc|Either this | or that.",
        [("Press A | B.", "mine"), ("Yes.", "mine"), ("Either this | or that.", "mine")],
    ),
    "a header": (
        "file_name|text\na|Good morning.\nb|Yes.\nc|No.",
        [("Good morning.", "mine"), ("Yes.", "mine"), ("No.", "mine")],
    ),
    "a header with the speaker first": (
        "path|speaker_id|transcript\na|anna|Press A | B.\nb|bert|Yes.\nc|anna|No.",
        [("Press A | B.", "anna"), ("Yes.", "bert"), ("No.", "anna")],
    ),
    "a header with the speaker last": (
        "id|sentence|speaker\na|Press A | B.|anna\nb|Yes.|bert\nc|No.",
        [("Press A | B.", "anna"), ("Yes.", "bert"), ("No.", "mine")],
    ),
    "LJSpeech's header": (
        "ID|Text|Normalized_Text\na|$5|five dollars\nb|7|seven\nc|No.|No.",
        [("five dollars", "mine"), ("seven", "mine"), ("No.", "mine")],
    ),
}

SPOKEN = ["It rained.", "Shall we go out for a walk?", "No, never!"]
TABLES |= {
    form: ("\n".join(line.format(*"abc"[n], text=SPOKEN[n], who=["bob", "anna", "bob"][n]) for n in range(3)),
           list(zip(SPOKEN, ["bob", "anna", "bob"] if "{who}" in line else ["mine"] * 3, strict=True)))
    for form, line in {
        "Piper's": "{}.wav|{who}|{text}",
        "VITS's": "wavs/{}.wav|{who}|{text}",
        "GPT-SoVITS's": "{}.wav|{who}|en|{text}",
        "GPT-SoVITS's, one speaker": "wavs/{}.wav|mine|EN|{text}",
        "GPT-SoVITS's, with blanks": "{} | {who} | en | {text}",
        "EveryVoice's": "{}|{text}|{text}|{who}|eng",
        "EveryVoice's, one speaker": "{}|{text}|{text}|mine|en-us",
        "Coqui's": "{}|{text}|{text}|{who}",
        "a language and no speaker": "{}|{text}|en",
        "phones of the IPA": "{}|{text}|h\u02c8\u026a\u0279 \u0251\u02d0\u0279|{who}",
        "ARPAbet": "{}|{who}|{text}|HH IH1 R AA0 R",
        "lengths in seconds": "{}|{text}|{who}|2.53",
        "empty columns": "{}||{who}|{text}|",
    }.items()
}  # fmt: skip
TABLES |= {
    "Piper's, numbers of speakers": ("a|0|It rained.\nb|12|It snowed.\nc|0|No.", [
        ("It rained.", "0"), ("It snowed.", "12"), ("No.", "0"),
    ]),
    "Piper's, always one text": ("a|bob|It rained.\nb|bob|It rained.\nc|bob|It rained.", [("It rained.", "bob")] * 3),
    "Piper's, without marks": ("a|bob|it rained all day\nb|anna|shall we go\nc|bob|so it was", [
        ("it rained all day", "bob"), ("shall we go", "anna"), ("so it was", "bob"),
    ]),
    "Piper's, a bar in a text": ("a|bob|Press A | B.\nb|anna|It rained.\nc|bob|No.", [
        ("Press A | B.", "bob"), ("It rained.", "anna"), ("No.", "bob"),
    ]),
    "a header with the file last": ("speaker_name|text|audio_file\nbob|It rained.|a.wav\nanna|No.|b\nbob|So.|c", [
        ("It rained.", "bob"), ("No.", "anna"), ("So.", "bob"),
    ]),
    "quotation marks around all columns": ('"a.wav"|"bob"|"It rained."\n"b"|"anna"|"""No."""\n"c"|"bob"|"So."', [
        ("It rained.", "bob"), ('"No."', "anna"), ("So.", "bob"),
    ]),
    "LJSpeech's, single words": ("a|Yes|Yes\nb|No|No\nc|Up|Up", [
        ("Yes", "mine"), ("No", "mine"), ("Up", "mine"),
    ]),
    "Coqui's, single words": ("a|Yes|Yes|bob\nb|No|No|anna\nc|Left|Left|bob", [
        ("Yes", "bob"), ("No", "anna"), ("Left", "bob"),
    ]),
    "EveryVoice's, no language": ("a|It rained.|It rained.|bob|und\nb|No.|No.|anna|und\nc|So.|So.|bob|und", [
        ("It rained.", "bob"), ("No.", "anna"), ("So.", "bob"),
    ]),
    "EveryVoice's header": ("basename|raw_text|characters|speaker|language\n"
        "a|$5.|five dollars|bob|eng\nb|Yes|Yes|anna|eng\nc|No|No|bob|eng",
        [("$5.", "bob"), ("Yes", "anna"), ("No", "bob")],
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", TABLES)
def test_tables_of_common_kinds_are_understood(kind: str, tmp_path: Path) -> None:
    table, expected = TABLES[kind]
    for name in "abc":
        miniature_corpora.record(tmp_path / "mine" / "wavs" / f"{name}.wav", 24_000)
    (tmp_path / "mine" / "metadata.csv").write_text(table, encoding="utf-8")
    rows = sorted(folder(tmp_path / "mine", "own"), key=lambda row: row.id)
    assert [(row.text, row.speaker) for row in rows] == expected


@pytest.mark.parametrize(
    "table",
    [
        "a|yes|bob\nb|no|anna\nc|so|eve",  # which are the words?
        "a|bob|happy|It rained.\nb|anna|sad|It snowed.\nc|eve|happy|No.",
        "a|It rained.|She sang all day.\nb|It snowed.|He left.\nc|No.|Who is there?",
        "a|bob\nb|bob\nc|bob\nd|bob",
        "a|HH IH1 R|bob\nb|AA1 R|bob\nc|DH AH0|bob",
        "a|ɪt ɹˈeɪnd|bob\nb|hiː lˈɛft|anna\nc|ʃiː sˈæŋ|eve",  # each line has a name of its own
    ],
)
def test_tables_whose_text_is_uncertain_are_refused_with_the_remedy(table: str, tmp_path: Path) -> None:
    for name in "abcd":
        miniature_corpora.record(tmp_path / "mine" / "wavs" / f"{name}.wav", 24_000)
    (tmp_path / "mine" / "metadata.csv").write_text(table, encoding="utf-8")
    with pytest.raises(DataError, match=r"metadata\.csv: .*file\|"):
        list(folder(tmp_path / "mine", "own"))


@pytest.mark.parametrize(
    ("table", "lines"),
    [
        ("a|bob|It rained.\nb|anna|It snowed.\nc|bob", "c|bob"),
        ("a|bob|It rained.\nb|anna|It snowed.\nc|No.|bob", "c|No.|bob"),
        ("a|bob|It rained.\nb|bob|en|It snowed.\nc|bob|No.", "b|bob|en|It snowed."),
        ("a|It rained.\nb|It snowed.\nc|bob|It hailed.\nd|No.", "c|bob|It hailed."),
    ],
)
def test_a_line_with_other_columns_is_rejected_and_no_name_becomes_its_text(
    table: str, lines: str, tmp_path: Path
) -> None:
    for name in "abcd":
        miniature_corpora.record(tmp_path / "mine" / f"{name}.wav", 24_000)
    (tmp_path / "mine" / "metadata.csv").write_text(table, encoding="utf-8")
    rows = list(folder(tmp_path / "mine", "own"))
    assert [row.text for row in rows if isinstance(row, RejectedItem)] == [lines]
    assert all(row.text.endswith(".") for row in rows if isinstance(row, RawUtterance))


def test_absolute_paths_into_the_folder_and_other_capitals_are_found(tmp_path: Path) -> None:
    root = tmp_path / "mine"
    for name in ("wavs/a.wav", "wavs/b.flac", "c.wav"):
        miniature_corpora.record(root / name, 24_000)
    (tmp_path / "link").symlink_to(root)
    lines = [root / "wavs" / "a.wav", tmp_path / "link" / "wavs" / "b.flac", "C.WAV", "Wavs/A.Wav"]
    (root / "metadata.csv").write_text("".join(f"{line}|Good morning.\n" for line in lines))
    found = [row.audio.resolve() for row in folder(tmp_path / "link", "own")]
    assert found == [root / "wavs" / "a.wav", root / "wavs" / "b.flac", root / "c.wav", root / "wavs" / "a.wav"]


def test_a_text_file_is_found_whatever_its_capitals(tmp_path: Path) -> None:
    miniature_corpora.record(tmp_path / "mine" / "A.WAV", 24_000)
    (tmp_path / "mine" / "a.TXT").write_text("Good morning.")
    assert [row.text for row in folder(tmp_path / "mine", "own")] == ["Good morning."]


@pytest.mark.parametrize(
    ("stored", "named"),
    [
        ("clips/a.wav", "clips\\a.wav"),
        ("wavs/b.wav", "wavs\\b"),
        ("wavs/cafe\u0301.wav", "caf\u00e9.wav"),
        ("gar\u00e7on.wav", "garc\u0327on"),
        ("a\\b.wav", "a\\b.wav"),
    ],
)
def test_names_of_other_systems_are_found(stored: str, named: str, tmp_path: Path) -> None:
    miniature_corpora.record(tmp_path / "mine" / stored, 24_000)
    (tmp_path / "mine" / "metadata.csv").write_text(f"{named}|Good morning.\n", encoding="utf-8")
    [row] = folder(tmp_path / "mine", "own")
    assert row.audio == tmp_path / "mine" / stored


# Manifests


def found(folder: Path, name: str = "a", rate: int = 16_000, **changes: object) -> RawUtterance:
    """A recording in order, but for the changes."""
    path = folder / f"{name}.wav"
    if not path.exists():
        miniature_corpora.record(path, rate)
    facts = {"id": name, "audio": path, "text": "Good morning.", "speaker": "s", "split": "train", "license": "CC0"}
    return RawUtterance(**{**facts, **changes})


ERRORS: dict[str, Callable[[Path], RawUtterance | RejectedItem]] = {
    "no such audio file": lambda folder: found(folder, audio=folder / "gone.wav"),
    "cannot be decoded": lambda folder: found(folder, audio=b"no audio"),
    "holds no samples": lambda folder: found(folder, audio=empty(folder)),
    "transcript is empty": lambda folder: found(folder, text=" \n"),
    "not English": lambda folder: found(folder, text="Доброе утро, как дела?"),
    "can be spoken": lambda folder: found(folder, text="…"),
    "id was used before": lambda folder: found(folder, "good"),
    "ends before": lambda folder: found(folder, start=0.5, seconds=3.0),
    "the corpus says so": lambda folder: RejectedItem(id="a", reason="the corpus says so"),
}
FILTERED: dict[str, Callable[[Path], RawUtterance | RejectedItem]] = {
    "0.20 s of audio": lambda folder: found(folder, start=0.1, seconds=0.2),
    "40.00 s of audio": lambda folder: found(folder, audio=long(folder)),
    "language is de": lambda folder: found(folder, language="de"),
    "700 characters": lambda folder: found(folder, text="a" * 700),
    "has 1 utterances already": lambda folder: found(folder, speaker="busy"),
}


def empty(folder: Path) -> Path:
    soundfile.write(folder / "empty.wav", np.zeros(0), 16_000)
    return folder / "empty.wav"


def long(folder: Path) -> Path:
    soundfile.write(folder / "long.wav", np.zeros(40 * 8000), 8000)
    return folder / "long.wav"


@pytest.mark.parametrize(("reason", "make"), [*ERRORS.items(), *FILTERED.items()])
def test_rejects_are_listed_with_their_reasons(reason: str, make, tmp_path: Path) -> None:
    bad = make(tmp_path)
    config = ManifestConfig(max_reject_ratio=0.5, max_per_speaker=1)
    report = build_manifest([found(tmp_path, "good", speaker="busy"), bad], tmp_path / "out", config)
    assert report.utterances == 1 and [u.id for u in manifest_of(tmp_path / "out")] == ["good"]
    (row,) = map(json.loads, (tmp_path / "out" / "rejects.jsonl").read_text().splitlines())
    assert reason in row["reason"] and row["id"] == bad.id
    assert row["kind"] == ("error" if reason in ERRORS else "filtered")


def test_too_many_errors_stop_the_run_but_filtered_items_do_not(tmp_path: Path) -> None:
    good = found(tmp_path, "good")
    with pytest.raises(DataError, match=r"1 recordings are invalid, 50.0% of all; allowed are 5.0%.*rejects.jsonl"):
        build_manifest([good, RejectedItem(id="x", reason="broken")], tmp_path / "out", ManifestConfig())
    assert not (tmp_path / "out" / "utterances.jsonl").exists() and "x" in rejects_of(tmp_path / "out")
    unwanted = RejectedItem(id="x", reason="not wanted", kind=RejectKind.FILTERED)
    assert build_manifest([good, unwanted], tmp_path / "out", ManifestConfig()).filtered == 1
    with pytest.raises(DataError, match="no utterance of this corpus is left"):
        build_manifest([unwanted], tmp_path / "out", ManifestConfig())


def test_the_cap_keeps_a_speakers_first_utterances(tmp_path: Path) -> None:
    path = found(tmp_path).audio
    many = [found(tmp_path, f"u{n}", audio=path, speaker="s" if n % 2 else "t") for n in range(9)]
    build_manifest(many, tmp_path / "out", ManifestConfig(max_per_speaker=2))
    assert [u.id for u in manifest_of(tmp_path / "out")] == ["u0", "u1", "u2", "u3"]


def test_a_bandwidth_that_the_corpus_states_overrides_the_files_rate(tmp_path: Path) -> None:
    narrow = found(tmp_path, "narrow", rate=24_000, source_rate=16_000)
    boastful = found(tmp_path, "boastful", rate=24_000, source_rate=48_000)
    build_manifest([narrow, boastful], tmp_path / "out", ManifestConfig())
    assert [u.source_rate for u in manifest_of(tmp_path / "out")] == [16_000, 24_000]


def test_stored_recordings_with_unsafe_names_get_separate_files(tmp_path: Path) -> None:
    content = found(tmp_path).audio.read_bytes()
    names = ["a/b", "a_b", "a b"]
    report = build_manifest(
        [found(tmp_path, audio=content, id=name) for name in names], tmp_path / "out", ManifestConfig()
    )
    utterances = read_manifest(tmp_path / "out" / "utterances.jsonl")
    assert report.utterances == len({u.audio for u in utterances}) == 3
    assert all(audio.read(tmp_path / "out" / u.audio).seconds == pytest.approx(0.6) for u in utterances)
    assert ManifestConfig().audio is Audio.IN_PLACE


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Café, déjà vu!", True),
        ("Viele Grüße aus Berlin", True),
        ("12 + 3", True),
        ("日本語 text", False),
        ("Привет", False),
    ],
)
def test_letters_distinguish_english_from_other_alphabets(text: str, expected: bool) -> None:
    assert could_be_english(text) is expected


def test_a_text_is_held_out_whatever_its_capitals_and_punctuation() -> None:
    texts = [
        f"This is sentence {'abcdefghij'[n % 10]}{'klmnopqrst'[n // 10 % 10]}{n // 100 * 'x'}." for n in range(1000)
    ]
    splits = [held_out(text) for text in texts]
    assert 2 < splits.count("validation") < 25 and 2 < splits.count("test") < 25
    assert all(held_out(text.upper() + "!") == split for text, split in zip(texts, splits, strict=True))


def test_a_table_in_another_encoding_is_one_clear_sentence(tmp_path: Path) -> None:
    miniature_corpora.record(tmp_path / "mine" / "a.wav", 24_000)
    (tmp_path / "mine" / "metadata.csv").write_bytes("a|Das Mädchen schläft.\n".encode("latin-1"))
    result = RUN.invoke(
        app, ["prepare", "folder", "--root", str(tmp_path / "mine"), "--output", str(tmp_path / "o"), "--license", "x"]
    )
    assert result.exit_code == 2 and "metadata.csv: expected UTF-8 text" in result.stderr
    assert "convert it to UTF-8" in result.stderr


@pytest.mark.parametrize("name", ["/etc/hostname", "../outside.wav", "x" * 5000, "nul\0l", "", "."])
def test_a_table_cannot_name_files_elsewhere_or_impossible_ones(name: str, tmp_path: Path) -> None:
    miniature_corpora.record(tmp_path / "outside.wav", 24_000)
    miniature_corpora.record(tmp_path / "mine" / "a.wav", 24_000)
    (tmp_path / "mine" / "metadata.csv").write_text(f"a|Good morning.\n{name}|Shall we go?\n")
    report = build_manifest(folder(tmp_path / "mine", "own"), tmp_path / "out", ManifestConfig(max_reject_ratio=0.5))
    assert (report.utterances, report.errors) == (1, 1)


def test_an_older_manifest_stays_when_a_run_fails(tmp_path: Path) -> None:
    build_manifest([found(tmp_path, "good")], tmp_path / "out", ManifestConfig())
    before = (tmp_path / "out" / "utterances.jsonl").read_bytes()
    with pytest.raises(DataError, match="no utterance of this corpus is left"):
        build_manifest(iter(()), tmp_path / "out", ManifestConfig())
    assert (tmp_path / "out" / "utterances.jsonl").read_bytes() == before
    assert not [path for path in (tmp_path / "out").iterdir() if "partial" in path.name]
