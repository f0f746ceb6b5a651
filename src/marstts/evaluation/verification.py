"""Equal error rate of a speaker encoder: speaker verification over all pairs of recordings of a manifest.

Upstream: any `speaker.base.SpeakerEncoder`, a manifest.  Downstream: `docs/results/`, model cards.

The interval is over speakers, which are resampled with replacement, since an encoder meets new speakers; a speaker that
is drawn twice is not compared with itself as another one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from marstts import audio
from marstts.audio import Waveform
from marstts.data.manifest import Utterance, read_manifest
from marstts.errors import DataError
from marstts.evaluation.report import markdown_table
from marstts.io.hash_order import hash_order
from marstts.io.reading import printable_name
from marstts.metrics.identity import level
from marstts.metrics.intervals import Interval, bootstrap_distribution, bounds
from marstts.speaker.base import SpeakerEncoder, equal_error_rate, trials

RESAMPLES = 200
ALL = "all"


def measure_encoder(
    encoder: SpeakerEncoder, manifest: Path, split: str, limit: int, seconds: float | None = None
) -> str:
    """A Markdown table: equal error rate over all recordings of the split, and within each style.

    At most `limit` recordings per speaker, and of each the first `seconds` after silence; shorter ones are left out.
    DataError where the split has not two speakers with two recordings.
    """
    of_split = [u for u in read_manifest(manifest) if u.split == split and u.seconds >= (seconds or 0.0)]
    chosen = choose_recordings(of_split, limit)
    embeddings = np.array(
        [encoder.embed(level(beginning(audio.read(manifest.parent / u.audio), seconds))) for u in chosen], np.float32
    )
    rows = []
    for style in (ALL, *sorted({u.style for u in chosen})):
        kept = [index for index, u in enumerate(chosen) if style in (ALL, u.style)]
        speakers = [chosen[index].speaker for index in kept]
        if is_testable(speakers):
            rate = error_rate(embeddings[kept], speakers)
            rows.append([style, str(len(kept)), str(len(set(speakers))), format_percent(rate)])
    if not rows:
        of_length = "" if seconds is None else f" of at least {seconds:g} s"
        raise DataError(
            f"{printable_name(manifest)}: the {split} split has not two speakers with two recordings{of_length} each"
        )
    title = f"{encoder.name} on the {split} split of {manifest.name}"
    title += "" if seconds is None else f", {seconds:g} s of each recording"
    return "\n".join([title, "", *markdown_table(["style", "recordings", "speakers", "EER %"], rows)])


def beginning(waveform: Waveform, seconds: float | None) -> Waveform:
    """The first `seconds` of what is audible; None: the waveform as it is."""
    if seconds is None:
        return waveform
    trimmed = audio.trim_silence(waveform)
    return Waveform(trimmed.samples[: round(seconds * waveform.sample_rate)], waveform.sample_rate)


def choose_recordings(utterances: Sequence[Utterance], limit: int) -> list[Utterance]:
    """Up to `limit` recordings of each speaker, drawn by a hash of their ids."""
    by_speaker: dict[str, list[Utterance]] = defaultdict(list)
    for utterance in sorted(utterances, key=lambda u: hash_order(u.id)):
        by_speaker[utterance.speaker].append(utterance)
    return [u for _, group in sorted(by_speaker.items()) for u in group[:limit]]


def is_testable(speakers: Sequence[str]) -> bool:
    """Whether there are pairs of the same speaker and pairs of different ones."""
    return len(set(speakers)) > 1 and len(set(speakers)) < len(speakers)


def error_rate(embeddings: NDArray[np.float32], speakers: Sequence[str]) -> Interval:
    """Equal error rate (0 to 1) over all pairs, with its interval over speakers."""
    same, different = trials(embeddings, speakers)
    names = sorted(set(speakers))
    rows = [np.flatnonzero(np.asarray(speakers) == name) for name in names]
    unit = embeddings / np.maximum(np.linalg.norm(embeddings, axis=1, keepdims=True), 1e-8)
    similarities = unit @ unit.T

    def of_drawn(drawn: NDArray[np.int64]) -> float:
        return error_rate_of_drawn(similarities, [(index, rows[index]) for index in drawn])

    resampled = bootstrap_distribution(np.arange(len(names)), of_drawn, RESAMPLES, seed=0, vectorized=False)
    return Interval(equal_error_rate(same, different), *bounds(resampled))


def error_rate_of_drawn(similarities: NDArray[np.float32], drawn: Sequence[tuple[int, NDArray[np.int64]]]) -> float:
    """Equal error rate among drawn speakers, given as their number and the rows of their recordings.

    NaN where no two of them differ, or where none has two recordings.
    """
    same = [similarities[np.ix_(rows, rows)][np.triu_indices(len(rows), k=1)] for _, rows in drawn]
    different = [
        similarities[np.ix_(rows, other_rows)].ravel()
        for index, (speaker, rows) in enumerate(drawn)
        for other, other_rows in drawn[index + 1 :]
        if speaker != other
    ]
    if not different or not sum(map(len, same)):
        return np.nan
    return equal_error_rate(np.concatenate(same), np.concatenate(different))


def format_percent(rate: Interval) -> str:
    """An interval between 0 and 1 in percent."""
    return Interval(100 * rate.value, 100 * rate.low, 100 * rate.high).format(1)
