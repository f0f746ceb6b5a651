"""Evaluation of a codec: quality of its reconstructions, usage of its codebooks, speed of decoding.

Upstream: a folder of recordings or a manifest, any `codec.base.Codec`.  Downstream: `docs/results/`.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from marstts import audio
from marstts.audio import Waveform
from marstts.codec.base import Codec, Codes
from marstts.data.manifest import read_manifest
from marstts.data.workers import Progress
from marstts.errors import DataError
from marstts.evaluation.recordings import find_recordings
from marstts.evaluation.systems import decode_to_length
from marstts.io.files import write_file
from marstts.io.hash_order import hash_order
from marstts.metrics.intervals import Interval, ratio_interval
from marstts.metrics.quality import CodebookUse, codebook_use, log_mel_distance, pesq_wideband, stoi
from marstts.metrics.recognition import Edits, Recognizer, character_edits, open_recognizer
from marstts.metrics.words import plain_words

logger = logging.getLogger(__name__)

TIMED_SECONDS = 10.0
TIMED_RUNS = 5


@dataclass(frozen=True)
class Clip:
    """A recording and its transcript, if it has one."""

    path: Path
    text: str | None


@dataclass(frozen=True)
class ClipScore:
    """One recording against its reconstruction."""

    clip: str
    seconds: float
    stoi: float
    estoi: float
    pesq: float | None
    """Wide band; None where PESQ finds no speech."""

    mel_distance: float
    """dB"""

    original_edits: Edits | None
    """Character errors of the recognizer in the recording; None without a transcript."""

    decoded_edits: Edits | None


@dataclass(frozen=True)
class Speed:
    """Decoding `audio_seconds` of audio: wall time and processor time (all threads), medians of five runs."""

    audio_seconds: float
    wall_seconds: float
    processor_seconds: float


@dataclass(frozen=True)
class Reconstruction:
    """A codec's scores on one set of recordings."""

    codec: str
    kilobits_per_second: float
    clips: Sequence[ClipScore]
    codebooks: Sequence[CodebookUse]
    """Coarse to fine."""

    codebook_size: int
    speed: Speed


def read_clips(source: Path, limit: int, split: str = "test") -> list[Clip]:
    """Up to `limit` recordings of a folder, or of one split of a manifest, drawn by a hash of their names."""
    clips = clips_of_manifest(source, split) if source.suffix == ".jsonl" else clips_of_folder(source)
    if not clips:
        raise DataError(f"{source}: expected recordings or a manifest with a {split} split")
    return sorted(sorted(clips, key=lambda clip: hash_order(clip.path.stem))[:limit], key=lambda clip: clip.path)


def clips_of_manifest(manifest: Path, split: str) -> list[Clip]:
    """Recordings of one split of a manifest."""
    return [Clip(manifest.parent / u.audio, u.text) for u in read_manifest(manifest) if u.split == split]


def clips_of_folder(folder: Path) -> list[Clip]:
    """Recordings of a folder, with their transcripts."""
    if not folder.is_dir():
        raise DataError(f"{folder}: expected a folder of recordings or a manifest (.jsonl)")
    return [Clip(recording.path, recording.transcript or None) for recording in find_recordings(folder)]


def evaluate_codec(codec: Codec, clips: Sequence[Clip], recognizer_name: str) -> Reconstruction:
    """Score every clip, the codebooks over all clips, and the speed of decoding."""
    recognizer = open_recognizer(recognizer_name) if any(clip.text for clip in clips) else None
    scores, codes = [], []
    progress = Progress(logger, f"clips through {codec.spec.name}", len(clips))
    for clip in clips:
        original = audio.resample(audio.read(clip.path), codec.spec.sample_rate)
        codes.append(codec.encode(original))
        decoded = decode_to_length(codec, codes[-1], len(original.samples))
        scores.append(score_clip(clip, original, decoded, recognizer))
        progress.advance(f"{clip.path.name}: STOI {scores[-1].stoi:.3f}")
    levels = [np.concatenate(level) for level in zip(*codes, strict=True)]
    return Reconstruction(
        codec=codec.spec.name,
        kilobits_per_second=bit_rate(codec) / 1000,
        clips=scores,
        codebooks=[codebook_use(level, codec.spec.codebook_size) for level in levels],
        codebook_size=codec.spec.codebook_size,
        speed=time_decoding(codec, levels),
    )


def score_clip(clip: Clip, original: Waveform, decoded: Waveform, recognizer: Recognizer | None) -> ClipScore:
    """Scores of one clip; both waveforms at the codec's rate."""
    words = plain_words(clip.text) if clip.text else []

    def edits(waveform: Waveform) -> Edits | None:
        if recognizer is None or not words:
            return None
        return character_edits(words, recognizer.transcribe(waveform))

    return ClipScore(
        clip=clip.path.name,
        seconds=original.seconds,
        stoi=stoi(original, decoded),
        estoi=stoi(original, decoded, extended=True),
        pesq=pesq_wideband(original, decoded),
        mel_distance=log_mel_distance(original, decoded),
        original_edits=edits(original),
        decoded_edits=edits(decoded),
    )


def bit_rate(codec: Codec) -> float:
    """Bits per second of the codes."""
    spec = codec.spec
    return sum(spec.sample_rate / hop for hop in spec.hop_lengths) * float(np.log2(spec.codebook_size))


def time_decoding(codec: Codec, levels: Sequence[NDArray[np.int64]]) -> Speed:
    """Time of decoding ten seconds, the codes in `levels` repeated, after one warm-up run."""
    patches = round(TIMED_SECONDS * codec.spec.patch_rate)
    codes: Codes = tuple(
        np.resize(level, patches * length) for level, length in zip(levels, codec.spec.patch_layout, strict=True)
    )
    codec.decode(codes)
    walls, processors = [], []
    for _ in range(TIMED_RUNS):
        wall, processor = time.perf_counter(), time.process_time()
        codec.decode(codes)
        walls.append(time.perf_counter() - wall)
        processors.append(time.process_time() - processor)
    return Speed(patches / codec.spec.patch_rate, median(walls), median(processors))


def summarize_clips(clips: Sequence[ClipScore]) -> dict[str, Interval | None]:
    """Means (CER: a ratio of sums) over clips with their intervals; None where nothing was measured."""

    def mean(values: Sequence[float | None]) -> Interval | None:
        known = [value for value in values if value is not None]
        return ratio_interval(known, [1] * len(known)) if known else None

    def error_rate(edits: Sequence[Edits | None]) -> Interval | None:
        known = [edit for edit in edits if edit is not None]
        return ratio_interval([edit.errors for edit in known], [edit.length for edit in known]) if known else None

    return {
        "STOI": mean([clip.stoi for clip in clips]),
        "ESTOI": mean([clip.estoi for clip in clips]),
        "PESQ-WB": mean([clip.pesq for clip in clips]),
        "log-mel distance (dB)": mean([clip.mel_distance for clip in clips]),
        "CER of the recordings": error_rate([clip.original_edits for clip in clips]),
        "CER of the reconstructions": error_rate([clip.decoded_edits for clip in clips]),
    }


def write_reconstruction(result: Reconstruction, output: Path, metadata: dict[str, Any]) -> str:
    """Write codec.json and codec.md into `output`; returns the Markdown."""
    summary = summarize_clips(result.clips)
    values = {
        "metadata": metadata,
        **asdict(replace(result, clips=())),
        "summary": {name: None if interval is None else asdict(interval) for name, interval in summary.items()},
        "clips": [asdict(clip) for clip in result.clips],
    }
    write_file(output / "codec.json", json.dumps(values, indent=2, ensure_ascii=False) + "\n")
    markdown = as_markdown(result, summary, metadata)
    write_file(output / "codec.md", markdown)
    return markdown


def as_markdown(result: Reconstruction, summary: dict[str, Interval | None], metadata: dict[str, Any]) -> str:
    """A Markdown table with a line per score; in brackets 95 % bootstrap intervals over clips."""
    speed = result.speed
    seconds = sum(clip.seconds for clip in result.clips)
    rows = [
        ("clips", f"{len(result.clips)} ({seconds:.0f} s)"),
        ("bit rate", f"{result.kilobits_per_second:.2f} kbit/s"),
        *((name, "-" if interval is None else interval.format(3)) for name, interval in summary.items()),
        *((f"codebook L{index}", describe_use(use, result)) for index, use in enumerate(result.codebooks)),
        (
            f"decoding {speed.audio_seconds:.1f} s",
            f"{speed.wall_seconds:.3f} s ({speed.processor_seconds:.3f} s of processor time)",
        ),
    ]
    metadata_lines = [f"- {name}: {value}" for name, value in metadata.items()]
    lines = [f"# {result.codec}", "", *metadata_lines, "", "| score | value |", "| --- | --- |"]
    return "\n".join([*lines, *(f"| {name} | {value} |" for name, value in rows)]) + "\n"


def describe_use(use: CodebookUse, result: Reconstruction) -> str:
    """Codebook usage in words."""
    return f"perplexity {use.perplexity:.0f}, {use.used} of {result.codebook_size} entries in {use.codes} codes"
