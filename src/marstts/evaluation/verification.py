"""How often a speaker encoder takes one person for another, or one person for two, on recordings of a manifest.

Upstream: any `speaker.base.SpeakerEncoder`, a manifest.  Downstream: `docs/results.md`, model cards.

All pairs of recordings are trials. The interval is over people, who are drawn again with replacement, for new people
are what an encoder meets; a person drawn twice is not compared with himself as another.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from marstts import audio
from marstts.data.manifest import Utterance, read_manifest
from marstts.errors import DataError
from marstts.evaluation.intervals import Interval, bounds
from marstts.evaluation.metrics.identity import level
from marstts.evaluation.ordering import stable_order
from marstts.evaluation.report import markdown_table
from marstts.speaker.base import SpeakerEncoder
from marstts.speaker.verification import equal_error_rate, trials

RESAMPLES = 200
ALL = "all"


def measure_encoder(encoder: SpeakerEncoder, manifest: Path, split: str, limit: int) -> str:
    """A Markdown table: error rate over all recordings of the split, and within each style.

    At most `limit` recordings per speaker. DataError where the split has not two speakers with two recordings.
    """
    chosen = choose_recordings([u for u in read_manifest(manifest) if u.split == split], limit)
    embeddings = np.array([encoder.embed(level(audio.read(manifest.parent / u.audio))) for u in chosen], np.float32)
    rows = []
    for style in (ALL, *sorted({u.style for u in chosen})):
        kept = [index for index, u in enumerate(chosen) if style in (ALL, u.style)]
        people = [chosen[index].speaker for index in kept]
        if is_testable(people):
            rate = error_rate(embeddings[kept], people)
            rows.append([style, str(len(kept)), str(len(set(people))), f"{_percent(rate)}"])
    if not rows:
        raise DataError(f"{manifest}: the {split} split has not two speakers with two recordings each")
    title = f"{encoder.name} on the {split} split of {manifest.name}"
    return "\n".join([title, "", *markdown_table(["style", "recordings", "speakers", "EER %"], rows)])


def choose_recordings(utterances: Sequence[Utterance], limit: int) -> list[Utterance]:
    """Up to `limit` of each speaker, styles as evenly as they are there; the same ones every time."""
    by_speaker: dict[str, list[Utterance]] = defaultdict(list)
    for utterance in sorted(utterances, key=lambda u: stable_order(u.id)):
        by_speaker[utterance.speaker].append(utterance)
    return [u for _, group in sorted(by_speaker.items()) for u in group[:limit]]


def is_testable(people: Sequence[str]) -> bool:
    return len(set(people)) > 1 and len(set(people)) < len(people)


def error_rate(embeddings: NDArray[np.float32], people: Sequence[str]) -> Interval:
    """Equal error rate (0 to 1) over all pairs, with its interval over people."""
    same, different = trials(embeddings, people)
    rng = np.random.default_rng(0)
    names = sorted(set(people))
    rows = {name: np.flatnonzero(np.asarray(people) == name) for name in names}
    unit = embeddings / np.maximum(np.linalg.norm(embeddings, axis=1, keepdims=True), 1e-8)
    similarities = unit @ unit.T
    drawn = [
        redraw(similarities, rows, [names[i] for i in rng.integers(0, len(names), len(names))])
        for _ in range(RESAMPLES)
    ]
    return Interval(equal_error_rate(same, different), *bounds(np.array(drawn)))


def redraw(similarities: NDArray[np.float32], rows: dict[str, NDArray[np.int64]], names: Sequence[str]) -> float:
    """Error rate among people drawn with replacement; NaN where there are no two of them, or no one with a pair."""
    same = [similarities[np.ix_(rows[name], rows[name])][np.triu_indices(len(rows[name]), k=1)] for name in names]
    different = [
        similarities[np.ix_(rows[first], rows[second])].ravel()
        for index, first in enumerate(names)
        for second in names[index + 1 :]
        if first != second
    ]
    if not different or not sum(map(len, same)):
        return np.nan
    return equal_error_rate(np.concatenate(same), np.concatenate(different))


def _percent(rate: Interval) -> str:
    return Interval(100 * rate.value, 100 * rate.low, 100 * rate.high).format(1)
