"""GLOBE and AniSpeech: corpora in Parquet files as the Hugging Face hub gives them, audio files inside.

Upstream: `data/*.parquet` of a dataset's repository, with `audio` a struct of `bytes` and `path`.
Downstream: `build_manifest`, which writes each recording to a file.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from marstts.errors import DataError, require
from marstts_lab.data.corpora.build_manifest import RawUtterance, RejectedItem, held_out

ROWS_AT_A_TIME = 64


@dataclass(frozen=True, kw_only=True)
class Layout:
    """Differences between such corpora."""

    name: str
    text: Sequence[str]
    """Possible names of the column of transcripts; the first one found counts."""

    speaker: Sequence[str]
    splits: dict[str, str | None]
    """Splits by the first word of a file's name; None where the corpus has no splits and the text decides."""

    languages: dict[str, str]
    """Languages by the first word of a file's name, where it names the language."""

    license: str


GLOBE = Layout(
    name="globe",
    text=("transcript", "text"),
    speaker=("speaker_id",),
    splits={"train": "train", "val": "validation", "validation": "validation", "test": "test"},
    languages={},
    license="CC0 1.0 (GLOBE, from Common Voice)",
)
"""`data/train-00000-of-00108.parquet`: audio, speaker_id, transcript, accent, duration, age, gender."""

ANISPEECH = Layout(
    name="anispeech",
    text=("caption", "transcript", "text"),
    speaker=("voice", "speaker"),
    splits={"ENGLISH": None, "NON_ENGLISH": None},
    languages={"ENGLISH": "en", "NON_ENGLISH": "other"},
    license="MIT as published (AniSpeech); the rights in the recordings themselves are not stated",
)
"""`data/ENGLISH-00000-of-….parquet` and `NON_ENGLISH-…`: audio, caption, voice."""


def read_parquet(root: Path, layout: Layout) -> Iterator[RawUtterance | RejectedItem]:
    """Every row of every file, by file name and row; a corrupt file is one reject."""
    files = sorted(path for pattern in ("*.parquet", "data/*.parquet") for path in root.glob(pattern))
    if not files:
        raise DataError(f"{root}: expected Parquet files (data/*.parquet) as the hub gives them")
    parquet = require("pyarrow.parquet", "data")
    errors = (OSError, ValueError, require("pyarrow", "data").lib.ArrowException)
    for path in files:
        word = path.stem.partition("-")[0]
        if word not in layout.splits:
            raise DataError(f"{path}: expected a file named {', '.join(f'{name}-….parquet' for name in layout.splits)}")
        row = 0
        try:
            table = parquet.ParquetFile(path)
            columns = choose_columns(path, table.schema_arrow.names, layout)
            for batch in table.iter_batches(ROWS_AT_A_TIME, columns=columns):
                for values in batch.to_pylist():
                    yield read_row(f"{layout.name}-{path.stem}-{row:06d}", values, columns, word, layout)
                    row += 1
        except errors as error:
            yield RejectedItem(id=f"{layout.name}-{path.stem}", reason=f"{path}: corrupt after {row} rows: {error}")


def choose_columns(path: Path, names: Sequence[str], layout: Layout) -> list[str]:
    """The names of the columns of audio, text and speaker in this file; DataError naming the columns there are."""
    text = next((name for name in layout.text if name in names), None)
    speaker = next((name for name in layout.speaker if name in names), None)
    if "audio" not in names or text is None or speaker is None:
        raise DataError(
            f"{path}: expected columns audio, {' or '.join(layout.text)}, {' or '.join(layout.speaker)}; "
            f"found {', '.join(names)}"
        )
    return ["audio", text, speaker]


def read_row(
    name: str, values: dict[str, Any], columns: Sequence[str], word: str, layout: Layout
) -> RawUtterance | RejectedItem:
    """One recording."""
    audio, text, speaker = (values[column] for column in columns)
    text = text if isinstance(text, str) else ""
    if not (isinstance(audio, dict) and isinstance(audio.get("bytes"), bytes) and audio["bytes"]):
        return RejectedItem(id=name, text=text, reason="the row holds no audio")
    if speaker in (None, ""):
        return RejectedItem(id=name, text=text, reason="the row names no speaker")
    return RawUtterance(
        id=name, audio=audio["bytes"], text=text, speaker=f"{layout.name}-{speaker}",
        split=layout.splits[word] or held_out(text), license=layout.license, language=layout.languages.get(word),
    )  # fmt: skip
