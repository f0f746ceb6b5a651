"""LibriTTS, LJSpeech and VCTK: their layouts are read by the recipes of `lhotse`, faults are sorted out before.

Upstream: the corpora as they are downloaded.  Downstream: `gather`.
A recipe of lhotse takes a corpus for whole, and ends at the first file that is not. So every audio header is read
first; where files are damaged, empty or missing, the recipe is shown a folder of links to the others, and they are
refused by name.
"""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from marstts.data.corpora.gather import Found, Refused, held_out, read_header
from marstts.errors import AudioError, DataError, require

LIBRITTS_SPLITS = {"train": "train", "dev": "validation", "test": "test"}
"""By the first word of a part's name: train-clean-100, dev-other, …"""

MICROPHONE = "mic2"
"""Of the two that VCTK was recorded with, the one that lhotse and most models use."""


@dataclass(frozen=True)
class Text:
    """A transcript found on the disk."""

    id: str
    text: str
    audio: Path
    """Where its recording should lie."""

    hide: Path | None = None
    """A file that names it alone, and must go with the recording where that is missing."""


def libritts(root: Path) -> Iterator[Found | Refused]:
    """`train-clean-100/84/121123/84_121123_000007_000001.wav`, transcripts in `84_121123.trans.tsv` beside it."""
    parts = sorted(path.name for path in root.iterdir() if path.is_dir() and list(path.glob("*/*/*.trans.tsv"))[:1])
    if not parts:
        raise DataError(f"{root}: expected LibriTTS's parts (train-clean-100, dev-clean, …) in this folder")
    texts = [text for part in parts for table in sorted((root / part).rglob("*.trans.tsv")) for text in lines(table)]
    files = [path for part in parts for path in sorted((root / part).rglob("*.wav"))]

    def read(folder: Path) -> Any:
        sound = [part for part in parts if any((folder / part).rglob("*.wav"))]  # it does not bear empty parts
        manifests = recipes().prepare_libritts(folder, dataset_parts=sound).values()
        return {key: chain(*(manifest[key] for manifest in manifests)) for key in ("recordings", "supervisions")}

    for supervision, path in sorted_out(root, texts, files, read):
        if isinstance(supervision, Refused):
            yield supervision
            continue
        part = path.relative_to(root.resolve()).parts[0]
        yield Found(
            id=supervision.id, audio=path, text=supervision.text or "", speaker=f"libritts-{supervision.speaker}",
            split=LIBRITTS_SPLITS.get(part.partition("-")[0], "train"),
            licence="CC BY 4.0 (LibriTTS, LibriTTS-R; LibriVox recordings)",
        )  # fmt: skip


def lines(table: Path) -> Iterator[Text]:
    """The lines of a trans.tsv: id, original text, normalised text."""
    for line in table.read_text(encoding="utf-8").splitlines():
        name, _, texts = line.partition("\t")
        yield Text(name, texts.rpartition("\t")[2], table.parent / f"{name}.wav")


def ljspeech(root: Path) -> Iterator[Found | Refused]:
    """`metadata.csv` (id|text|text in words) and `wavs/LJ001-0001.wav`."""
    table = root / "metadata.csv"
    if not table.is_file():
        raise DataError(f"{root}: expected LJSpeech's metadata.csv in this folder")
    texts = []
    for line in table.read_text(encoding="utf-8").splitlines():
        name, text, *_ = [*line.split("|"), ""]
        texts.append(Text(name, text, root / "wavs" / f"{name}.wav"))
    licence = "public domain (LJSpeech; LibriVox recordings)"
    for supervision, path in sorted_out(root, texts, sorted((root / "wavs").glob("*.wav")), recipes().prepare_ljspeech):
        if isinstance(supervision, Refused):
            yield supervision
            continue
        text = supervision.custom.get("normalized_text") or supervision.text or ""
        yield Found(id=supervision.id, audio=path, text=text, speaker="ljspeech", split=held_out(text), licence=licence)


def vctk(root: Path) -> Iterator[Found | Refused]:
    """Version 0.92: `wav48_silence_trimmed/p225/p225_001_mic2.flac`, `txt/p225/p225_001.txt`, `speaker-info.txt`."""
    if not (root / "wav48_silence_trimmed").is_dir() or not (root / "speaker-info.txt").is_file():
        raise DataError(f"{root}: expected VCTK 0.92: wav48_silence_trimmed, txt and speaker-info.txt in this folder")
    audio = root / "wav48_silence_trimmed"
    texts = [
        Text(path.stem, path.read_text(encoding="utf-8").strip(),
             audio / path.parent.name / f"{path.stem}_{MICROPHONE}.flac", hide=path)
        for path in sorted((root / "txt").glob("*/*.txt"))
    ]  # fmt: skip

    def read(folder: Path) -> Any:
        return recipes().prepare_vctk(folder, use_edinburgh_vctk_url=True, mic_id=MICROPHONE)

    for supervision, path in sorted_out(root, texts, sorted(audio.glob("*/*.flac")), read):
        if isinstance(supervision, Refused):
            yield supervision
            continue
        text = supervision.text or ""
        yield Found(
            id=supervision.id.removesuffix(f"_{MICROPHONE}"), audio=path, text=text,
            speaker=f"vctk-{supervision.speaker}", split=held_out(text), licence="CC BY 4.0 (VCTK 0.92)",
        )  # fmt: skip


def recipes() -> Any:
    """`lhotse.recipes`; MissingExtraError without it."""
    require("torch", "data")
    return require("lhotse.recipes", "data")


def sorted_out(
    root: Path, texts: Sequence[Text], files: Sequence[Path], read: Callable[[Path], Any]
) -> Iterator[tuple[Any, Path]]:
    """(supervision of lhotse, path of its recording) in order of ids; and first a Refused for everything amiss."""
    damaged = {path: reason for path in files if (reason := what_is_wrong(path))}
    silent = [text for text in texts if not text.text.strip()]
    lost = [text for text in texts if text.audio in damaged or not text.audio.is_file()]
    for text in lost:
        yield (
            Refused(id=text.id, text=text.text, reason=damaged.get(text.audio, f"{text.audio}: no such audio file")),
            root,
        )
    hidden = {*damaged, *(text.hide for text in lost if text.hide)}
    with seen_without(root, hidden) as folder:
        logging.disable(logging.WARNING)  # lhotse warns, on the root logger, of what is refused here by name
        try:
            manifests = read(folder)
        except Exception as error:  # a recipe asserts, or stumbles over a line it cannot split
            raise DataError(
                f"{root}: lhotse cannot read this corpus ({type(error).__name__}: {error}); is it complete and "
                "unchanged?"
            ) from error
        finally:
            logging.disable(logging.NOTSET)
        recordings, supervisions = manifests["recordings"], manifests["supervisions"]
        sources = {recording.id: Path(recording.sources[0].source).resolve() for recording in recordings}
        silent_ids = {text.id for text in silent}
        for supervision in sorted(supervisions, key=lambda one: one.id):
            silent_ids.discard(supervision.id)
            yield supervision, sources[supervision.recording_id]
        for name in sorted(silent_ids - {text.id for text in lost}):
            yield Refused(id=name, reason="the transcript is empty"), root


def what_is_wrong(path: Path) -> str:
    """Why a file is no recording; empty if it is one."""
    try:
        read_header(path)
    except AudioError as error:
        return str(error)
    return ""


@contextmanager
def seen_without(root: Path, hidden: set[Path]) -> Iterator[Path]:
    """The corpus itself where nothing is to be hidden, else a temporary folder of links to everything else."""
    if not hidden:
        yield root
        return
    with tempfile.TemporaryDirectory(prefix="marstts-corpus-") as name:
        view = Path(name)
        for path in root.rglob("*"):
            place = view / path.relative_to(root)
            if path.is_dir():
                place.mkdir(parents=True, exist_ok=True)
            elif path not in hidden:
                place.parent.mkdir(parents=True, exist_ok=True)
                place.symlink_to(path.resolve())
        yield view
