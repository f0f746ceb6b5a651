"""Corpora of a few seconds in the exact layout of the large ones: folders, names, tables, formats, sample rates.

Every builder makes its corpus in an empty folder and returns nothing; tests corrupt what they expect to be rejected.
"""

from __future__ import annotations

import gzip
import io
import json
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import soundfile

from marstts import audio
from marstts_lab.evaluation.testsets.ears import TEST, pair_samples, samples_by_style, split_speakers
from marstts_lab.evaluation.testsets.synthetic import committed_lines, recording_path

SECONDS = 0.6
TEXTS = ("Shall we go out?", "The rain has stopped at 5 o'clock.", "Nobody on the quay said a word.", "Good morning.")


def noise(seconds: float = SECONDS, rate: int = 16_000, seed: int = 0) -> np.ndarray:
    """Samples (N,) that are not silent."""
    return 0.3 * np.random.default_rng(seed).uniform(-1, 1, round(seconds * rate))


def speech(seconds: float = SECONDS, rate: int = 16_000, seed: int = 0) -> np.ndarray:
    """Samples (N,) of somebody speaking, from another point for each seed."""
    waveform = audio.resample(audio.read(Path(__file__).parent / "audio" / "sense-0930.flac"), rate)
    return np.resize(np.roll(waveform.samples, -1000 * seed), round(seconds * rate))


def record(path: Path, rate: int, seconds: float = SECONDS, sound: Callable[..., np.ndarray] = noise) -> None:
    """Write a recording, and its folders."""
    path.parent.mkdir(parents=True, exist_ok=True)
    soundfile.write(path, sound(seconds, rate, seed=len(path.name)), rate)


def libriheavy(
    root: Path,
    seconds: float = SECONDS,
    lists: Sequence[tuple[str, str]] = (("small", "small"), ("large", "dev")),
    texts: Sequence[str] = TEXTS[:3],
) -> None:
    """Readers' chapters in Libri-Light's folders, three cuts of each in a list of its own."""
    for number, (subset, split) in enumerate(lists):
        chapter = f"{subset}/100/sea_fairies_0812_librivox_64kb_mp3/0{number + 1}_baum_sea_fairies_64kb"
        source = f"download/librilight/{chapter}.flac"
        record(root / source, 16_000, seconds=3 * (seconds + 0.4))
        cuts = [
            libriheavy_cut(chapter, source, cut, seconds, texts[(3 * number + cut) % len(texts)]) for cut in range(3)
        ]
        with gzip.open(root / f"libriheavy_cuts_{split}.jsonl.gz", "wt", encoding="utf-8") as lines:
            lines.writelines(json.dumps(cut) + "\n" for cut in cuts)


def libriheavy_cut(chapter: str, source: str, number: int, shortest: float, text: str) -> dict:
    """One line of a list."""
    name, seconds = f"{chapter}_{number}", shortest + 0.1 * number
    supervision = {
        "id": name, "recording_id": chapter, "start": 0, "duration": seconds, "channel": 0, "language": "English",
        "speaker": "100", "custom": {"texts": [text, text.upper()], "pre_texts": ["…", "…"],
                                     "begin_byte": 4993, "end_byte": 5120},
    }  # fmt: skip
    whole = round(3 * (shortest + 0.4), 3)
    recording = {
        "id": chapter, "sources": [{"type": "file", "channels": [0], "source": source}], "sampling_rate": 16000,
        "num_samples": round(16_000 * whole), "duration": whole, "channel_ids": [0],
    }  # fmt: skip
    return {
        "id": name, "start": round(0.25 + number * (shortest + 0.3), 3), "duration": seconds, "channel": 0,
        "supervisions": [supervision], "recording": recording,
        "custom": {"text_path": "download/librilight_text/text.txt"}, "type": "MonoCut",
    }  # fmt: skip


def globe(root: Path, seconds: float = SECONDS) -> None:
    """Three Parquet files of two rows each."""
    for split in ("train", "val", "test"):
        rows = [
            {"audio": stored(24_000, f"common_voice_en_{split}{number}.wav", seconds), "speaker_id": f"S_00010{number}",
             "transcript": TEXTS[number], "accent": "Scottish English", "duration": seconds, "age": "twenties",
             "gender": "female"}
            for number in range(2)
        ]  # fmt: skip
        write_parquet(root / "data" / f"{split}-00000-of-00001.parquet", rows)


def anispeech(root: Path, seconds: float = SECONDS) -> None:
    """An English file and another one."""
    for name, texts in (("ENGLISH", TEXTS), ("NON_ENGLISH", ("Guten Morgen.",))):
        rows = [{"audio": stored(44_100, "0.wav", seconds), "caption": text, "voice": "1"} for text in texts]
        write_parquet(root / "data" / f"{name}-00000-of-00001.parquet", rows)


def stored(rate: int, name: str, seconds: float = SECONDS) -> dict:
    """A recording as the hub stores it."""
    content = io.BytesIO()
    soundfile.write(content, noise(seconds, rate), rate, format="WAV")
    return {"bytes": content.getvalue(), "path": name}


def write_parquet(path: Path, rows: Sequence[dict]) -> None:
    """Rows as a Parquet file."""
    import pyarrow
    import pyarrow.parquet

    path.parent.mkdir(parents=True, exist_ok=True)
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(list(rows)), path)


def vctk(root: Path, seconds: float = SECONDS) -> None:
    """Version 0.92: two speakers, two microphones, and p315, whose texts were lost."""
    lines = ["ID  AGE  GENDER  ACCENTS  REGION COMMENTS", "p229  23  F    English    Southern  England",
             "p230  22  M    English    Surrey", "p315  18  M    American    New England (no text)"]  # fmt: skip
    (root / "speaker-info.txt").write_text("\n".join(lines) + "\n")
    for speaker in ("p229", "p230", "p315"):
        for number in (1, 2):
            name = f"{speaker}_{number:03d}"
            for microphone in ("mic1", "mic2"):
                record(root / "wav48_silence_trimmed" / speaker / f"{name}_{microphone}.flac", 48_000, seconds)
            if speaker != "p315":
                (root / "txt" / speaker).mkdir(parents=True, exist_ok=True)
                (root / "txt" / speaker / f"{name}.txt").write_text(TEXTS[number] + "\n")


OTHER_TEXTS = ("A quiet harbor lay below.", "We met them on Tuesday.", "Bring seven oranges and a knife.")
"""Texts of test sentences, which no pair may have."""


def paper(root: Path) -> None:
    """Four of the paper's five corpora, long enough to be cloned, in a folder each."""
    for name, build in (("globe", globe), ("vctk", vctk), ("anispeech", anispeech)):
        (root / name).mkdir(parents=True)
        build(root / name, 1.7)
    lists = (("small", "small"), ("large", "dev"), ("large", "test_clean"))
    libriheavy(root / "libriheavy", 1.7, lists, (*TEXTS[:3], *TEXTS[:3], *OTHER_TEXTS))


def libritts(
    root: Path,
    seconds: float = SECONDS,
    parts: Sequence[tuple[str, str, Sequence[str]]] = (
        ("train-clean-100", "26", TEXTS[:2]),
        ("dev-clean", "84", TEXTS[:2]),
    ),
    sound: Callable[..., np.ndarray] = noise,
) -> None:
    """Parts of one reader each."""
    (root / "SPEAKERS.txt").write_text(";ID  |SEX| SUBSET           |MINUTES| NAME\n84   | F | dev-clean  | 8.02 | X\n")
    for part, speaker, texts in parts:
        chapter = root / part / speaker / "121123"
        names = [f"{speaker}_121123_000007_00000{number}" for number in range(len(texts))]
        for name in names:
            record(chapter / f"{name}.wav", 24_000, seconds, sound)
        lines = [f"{name}\t{text}\t{text.replace('5', 'five')}" for name, text in zip(names, texts, strict=True)]
        (chapter / f"{speaker}_121123.trans.tsv").write_text("\n".join(lines) + "\n")
        (chapter / f"{speaker}_121123.book.tsv").write_text("".join(f"{name}\t…\t0\t20.5\n" for name in names))


def whole_ears(root: Path) -> None:
    """Every recording that the test split of EARS needs: one recording under all their names."""
    record(root / "all.wav", 48_000, 1.7, speech)
    (root / "transcripts.json").write_text(json.dumps({name: TEXTS[len(name) % len(TEXTS)] for name in sample_names()}))
    for pair in pair_samples(split_speakers()[TEST]):
        (root / pair.speaker).mkdir(exist_ok=True)
        for name in (pair.sample, pair.reference, pair.compared_with):
            path = root / pair.speaker / f"{name}.wav"
            if not path.exists():
                path.hardlink_to(root / "all.wav")


def sample_names() -> list[str]:
    """The transcribed samples of a speaker."""
    return [name for names in samples_by_style().values() for name in names]


def ljspeech(root: Path) -> None:
    """Four sentences."""
    lines = []
    for number, text in enumerate(TEXTS, start=1):
        record(root / "wavs" / f"LJ001-000{number}.wav", 22_050)
        lines.append(f"LJ001-000{number}|{text}|{text.replace('5', 'five')}")
    (root / "metadata.csv").write_text("\n".join(lines) + "\n")


def people(root: Path) -> None:
    """Speakers of all three splits, and one of a corpus to leave out, with two recordings each and a table."""
    lines = ["path\tcorpus\tspeaker\tsample_rate\tlicense\ttranscript"]
    for number in (0, 1, 2, 3, 22, 112, 138):
        corpus = "ljspeech" if number == 0 else "cmu_arctic"
        for take in range(2):
            path = f"{number}/{take}.flac"
            record(root / path, 16_000, 3.0 + take, speech)
            lines.append(f"{path}\t{corpus}\t{number}\t16000\town\t{TEXTS[(number + take) % len(TEXTS)]}")
    (root / "utterances.tsv").write_text("\n".join(lines) + "\n")


def synthetic_test_set(root: Path) -> None:
    """The recordings of the synthetic test set, one under all their names."""
    record(root / "all.flac", 24_000, 2.0, speech)
    for line in committed_lines():
        path = recording_path(line, root)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.hardlink_to(root / "all.flac")


def own_folder(root: Path) -> None:
    """Recordings of two speakers with text files next to them."""
    for person in ("anna", "ben"):
        for number, text in enumerate(TEXTS):
            record(root / person / f"{number}.wav", 44_100)
            (root / person / f"{number}.txt").write_text(text + "\n")
