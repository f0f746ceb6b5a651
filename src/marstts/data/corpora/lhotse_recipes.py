"""LibriTTS, LJSpeech and VCTK: the recipes of `lhotse` read their layouts, after invalid files were excluded.

Upstream: the corpora as they are downloaded.  Downstream: `build_manifest`.
A recipe of lhotse expects a complete corpus, and ends at the first invalid file. So every audio header is read first;
where files are corrupt, empty or missing, the recipe reads a folder of links to the others, and they are rejected by
name.
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

from marstts.data.corpora.build_manifest import RawUtterance, RejectedItem, held_out, is_file, read_header
from marstts.errors import AudioError, DataError, require
from marstts.io.reading import read_text

LIBRITTS_SPLITS = {"train": "train", "dev": "validation", "test": "test"}
"""Splits by the first word of a part's name: train-clean-100, dev-other, …"""

MAX_TABLE_BYTES = 2**30

MICROPHONE = "mic2"
"""The microphone, of the two in VCTK, that lhotse and most models use."""


@dataclass(frozen=True)
class Text:
    """A transcript found on the disk."""

    id: str
    text: str
    audio: Path
    """Expected path of its recording."""

    hide: Path | None = None
    """A file about this text alone, which must be hidden where the recording is missing."""


def libritts(root: Path) -> Iterator[RawUtterance | RejectedItem]:
    """Every `train-clean-100/84/121123/84_121123_000007_000001.wav`; transcripts are in `84_121123.trans.tsv` there."""
    parts = sorted(path.name for path in root.iterdir() if path.is_dir() and list(path.glob("*/*/*.trans.tsv"))[:1])
    if not parts:
        raise DataError(f"{root}: expected LibriTTS's parts (train-clean-100, dev-clean, …) in this folder")
    texts = [text for part in parts for table in sorted((root / part).rglob("*.trans.tsv")) for text in lines(table)]
    files = [path for part in parts for path in sorted((root / part).rglob("*.wav"))]

    def read(folder: Path) -> Any:
        present = [part for part in parts if any((folder / part).rglob("*.wav"))]  # it fails on empty parts
        manifests = recipes().prepare_libritts(folder, dataset_parts=present).values()
        return {key: chain(*(manifest[key] for manifest in manifests)) for key in ("recordings", "supervisions")}

    for supervision, path in split_valid(root, texts, files, read):
        if isinstance(supervision, RejectedItem):
            yield supervision
            continue
        part = path.relative_to(root.resolve()).parts[0]
        yield RawUtterance(
            id=supervision.id, audio=path, text=supervision.text or "", speaker=f"libritts-{supervision.speaker}",
            split=LIBRITTS_SPLITS.get(part.partition("-")[0], "train"),
            license="CC BY 4.0 (LibriTTS, LibriTTS-R; LibriVox recordings)",
        )  # fmt: skip


def lines(table: Path) -> Iterator[Text]:
    """The lines of a trans.tsv: id, original text, normalized text."""
    for line in read_text(table, MAX_TABLE_BYTES, DataError).splitlines():
        name, _, texts = line.partition("\t")
        yield Text(name, texts.rpartition("\t")[2], table.parent / f"{name}.wav")


def ljspeech(root: Path) -> Iterator[RawUtterance | RejectedItem]:
    """Every line of `metadata.csv` (id|text|text in words), with `wavs/LJ001-0001.wav`."""
    table = root / "metadata.csv"
    if not table.is_file():
        raise DataError(f"{root}: expected LJSpeech's metadata.csv in this folder")
    texts = []
    for line in read_text(table, MAX_TABLE_BYTES, DataError).splitlines():
        name, text, *_ = [*line.split("|"), ""]
        texts.append(Text(name, text, root / "wavs" / f"{name}.wav"))
    license = "public domain (LJSpeech; LibriVox recordings)"
    for supervision, path in split_valid(
        root, texts, sorted((root / "wavs").glob("*.wav")), recipes().prepare_ljspeech
    ):
        if isinstance(supervision, RejectedItem):
            yield supervision
            continue
        text = supervision.custom.get("normalized_text") or supervision.text or ""
        yield RawUtterance(
            id=supervision.id, audio=path, text=text, speaker="ljspeech", split=held_out(text), license=license
        )


def vctk(root: Path) -> Iterator[RawUtterance | RejectedItem]:
    """Every utterance of version 0.92: `wav48_silence_trimmed/p225/p225_001_mic2.flac`, `txt/p225/p225_001.txt`."""
    if not (root / "wav48_silence_trimmed").is_dir() or not (root / "speaker-info.txt").is_file():
        raise DataError(f"{root}: expected VCTK 0.92: wav48_silence_trimmed, txt and speaker-info.txt in this folder")
    audio = root / "wav48_silence_trimmed"
    texts = [
        Text(path.stem, read_text(path, MAX_TABLE_BYTES, DataError).strip(),
             audio / path.parent.name / f"{path.stem}_{MICROPHONE}.flac", hide=path)
        for path in sorted((root / "txt").glob("*/*.txt"))
    ]  # fmt: skip

    def read(folder: Path) -> Any:
        return recipes().prepare_vctk(folder, use_edinburgh_vctk_url=True, mic_id=MICROPHONE)

    for supervision, path in split_valid(root, texts, sorted(audio.glob("*/*.flac")), read):
        if isinstance(supervision, RejectedItem):
            yield supervision
            continue
        text = supervision.text or ""
        yield RawUtterance(
            id=supervision.id.removesuffix(f"_{MICROPHONE}"), audio=path, text=text,
            speaker=f"vctk-{supervision.speaker}", split=held_out(text), license="CC BY 4.0 (VCTK 0.92)",
        )  # fmt: skip


def recipes() -> Any:
    """`lhotse.recipes`; MissingExtraError without it."""
    require("torch", "data")
    return require("lhotse.recipes", "data")


def split_valid(
    root: Path, texts: Sequence[Text], files: Sequence[Path], read: Callable[[Path], Any]
) -> Iterator[tuple[Any, Path]]:
    """Supervisions of lhotse with the paths of their recordings, by id, after a RejectedItem for all invalid ones."""
    corrupt = {path: reason for path in files if (reason := validation_error(path))}
    empty = [text for text in texts if not text.text.strip()]
    missing = [text for text in texts if text.audio in corrupt or not is_file(text.audio)]
    for text in missing:
        yield (
            RejectedItem(
                id=text.id, text=text.text, reason=corrupt.get(text.audio, f"{text.audio}: no such audio file")
            ),
            root,
        )
    hidden = {*corrupt, *(text.hide for text in missing if text.hide)}
    with without(root, hidden) as folder:
        logging.disable(logging.WARNING)  # lhotse warns, on the root logger, of what is rejected here by name
        try:
            manifests = read(folder)
        except Exception as error:  # a recipe asserts, or fails on a line it cannot split
            raise DataError(
                f"{root}: lhotse cannot read this corpus ({type(error).__name__}: {error}); is it complete and "
                "unchanged?"
            ) from error
        finally:
            logging.disable(logging.NOTSET)
        recordings, supervisions = manifests["recordings"], manifests["supervisions"]
        sources = {recording.id: Path(recording.sources[0].source).resolve() for recording in recordings}
        empty_ids = {text.id for text in empty}
        for supervision in sorted(supervisions, key=lambda one: one.id):
            empty_ids.discard(supervision.id)
            yield supervision, sources[supervision.recording_id]
        for name in sorted(empty_ids - {text.id for text in missing}):
            yield RejectedItem(id=name, reason="the transcript is empty"), root


def validation_error(path: Path) -> str:
    """The reason why a file is no recording; empty if it is one."""
    try:
        read_header(path)
    except AudioError as error:
        return str(error)
    return ""


@contextmanager
def without(root: Path, hidden: set[Path]) -> Iterator[Path]:
    """The corpus where nothing is hidden, else a temporary folder of links to everything else."""
    if not hidden:
        yield root
        return
    with tempfile.TemporaryDirectory(prefix="marstts-corpus-") as name:
        view = Path(name)
        for path in root.rglob("*"):
            link = view / path.relative_to(root)
            if path.is_dir():
                link.mkdir(parents=True, exist_ok=True)
            elif path not in hidden:
                link.parent.mkdir(parents=True, exist_ok=True)
                link.symlink_to(path.resolve())
        yield view
