"""Sentences that are kept: what was spoken of a long text outlives its process, and the next run goes on after it.

Upstream: `speak`, `book`.  Downstream: `Synthesizer.stream`, `audio.writer`.
While `long.mp3` is spoken, `long.partial.wav` grows beside it sentence by sentence, and `.long.sentences.jsonl` says
what it holds. The audio is encoded once, when the last sentence is done.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import Any

from marstts.audio.writer import HEADER_BYTES, Tags, encode_file, open_kept_wav
from marstts.cli.streaming import StreamReport
from marstts.cli.terminal import messages
from marstts.errors import AudioError
from marstts.io.files import partial_path
from marstts.io.jsonl import Torn, open_appender, scan_rows, write_rows
from marstts.io.reading import os_errors, printable_name
from marstts.synthesis.model_session import OnTake
from marstts.synthesis.speaking import Speaking
from marstts.synthesis.speech import Chunk
from marstts.synthesis.synthesizer import Synthesizer
from marstts.synthesis.words.word_times import Word

Row = dict[str, Any]
MAX_STEM = 200


def partial_wav(path: Path) -> Path:
    """The sentences of `path` that are spoken."""
    return partial_path(path).with_suffix(".wav")


def list_of_sentences(path: Path) -> Path:
    """The file that lists the sentences of `path`."""
    return path.with_name(f".{path.stem[:MAX_STEM]}.sentences.jsonl")


def speak_kept(
    synthesizer: Synthesizer, text: str, how: Speaking, path: Path, *, on_take: OnTake | None = None
) -> StreamReport:
    """Speak what is missing of `text` into `partial_wav(path)`; the report of all of it.

    It is without words, which only `list_of_sentences(path)` has: a long text has many.

    Raises the errors of `Synthesizer.stream`, and AudioError where a file cannot be written.
    """
    started = time.perf_counter()
    fingerprint, rate = how.fingerprint(synthesizer.session, text), synthesizer.session.codec.spec.sample_rate
    listed = list_of_sentences(path)
    if listed.is_symlink():
        raise AudioError(f"{printable_name(listed)}: expected no link, whose target would be overwritten")
    rows = read_kept(path, fingerprint) if how.can_go_on else []
    num_samples = rows[-1]["samples"] if rows else 0
    num_kept, offset, first_audio = len(rows), num_samples / rate, 0.0
    chunks = synthesizer.stream(text, how, sentences=True, start=num_kept, on_take=on_take)
    try:
        with closing(chunks), open_kept_wav(partial_wav(path), rate, num_samples) as write:
            write_rows(listed, [{"fingerprint": fingerprint}, *rows], kind=AudioError)
            with open_appender(listed, kind=AudioError) as append:
                for chunk in chunks:
                    write(chunk.samples)
                    num_samples += len(chunk.samples)
                    row = row_of(chunk, num_samples, offset)
                    append(row)
                    rows.append({**row, "words": []})
                    first_audio = first_audio or time.perf_counter() - started
    except KeyboardInterrupt:
        told = f"{len(rows)} sentences are kept in {printable_name(partial_wav(path))}"
        messages().print(f"{told}; the same command goes on after them")
        raise
    warnings = dict.fromkeys(row["warning"] for row in rows if row["warning"])
    flaws = [row["take"]["warning"] for row in rows if row["take"]["warning"]]
    return StreamReport(
        seconds=num_samples / rate,
        takes=tuple(row["take"] for row in rows),
        model=synthesizer.session.name,
        seed=how.seed,
        compute_seconds=time.perf_counter() - started,
        first_audio_seconds=first_audio,
        warnings=(*warnings, *flaws),
    )


def finish(path: Path, tags: Tags | None = None) -> None:
    """Encode the sentences that were kept as the file itself."""
    encode_file(partial_wav(path), path, tags)


def forget(path: Path, *, also_list: bool = True) -> None:
    """Remove the files beside a file that is done."""
    for each in (partial_wav(path), *([list_of_sentences(path)] if also_list else [])):
        with os_errors(each, "be removed", AudioError):
            each.unlink(missing_ok=True)


def read_kept(path: Path, fingerprint: str) -> list[Row]:
    """The sentences that an earlier run spoke of the same text in the same way, as far as their audio is there."""
    wav, rows = partial_wav(path), read_list(path, fingerprint)
    size = wav.stat().st_size if wav.is_file() and not wav.is_symlink() else 0
    whole = [row for row in rows if HEADER_BYTES + 2 * row["samples"] <= size]
    return whole if whole == rows[: len(whole)] else []


def read_list(path: Path, fingerprint: str | None = None) -> list[Row]:
    """The sentences that are listed for a file; none where the list is of another `fingerprint`, or is no list."""
    listed = list_of_sentences(path)
    if not listed.is_file() or listed.is_symlink():
        return []
    first, *rows = [each.row for each in scan_rows(Row, listed, torn=Torn.DROP)] or [None]
    if first is None or (fingerprint is not None and first.get("fingerprint") != fingerprint):
        return []
    return [row for row in rows if row is not None] if all(map(is_row, rows)) else []


def is_row(row: Row | None) -> bool:
    """Whether a line of the list is a sentence."""
    return (
        row is not None
        and isinstance(row.get("samples"), int)
        and isinstance(row.get("take"), dict)
        and isinstance(row.get("words"), list)
        and "warning" in row
    )


def row_of(chunk: Chunk, num_samples: int, offset: float) -> Row:
    """A sentence as it is listed; `num_samples` of audio end with it, of which `offset` seconds were there before."""
    assert chunk.take is not None, "sentences come whole"
    return {
        "samples": num_samples,
        "warning": chunk.text_warning,
        "take": chunk.take.report(),
        "words": [asdict(word.shifted(offset)) for word in chunk.words],
    }


def words_of(rows: Sequence[Row]) -> tuple[Word, ...]:
    return tuple(Word(**word) for row in rows for word in row["words"])
