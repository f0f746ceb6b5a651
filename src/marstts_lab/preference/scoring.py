"""Scoring of mined takes by metrics: character errors, predicted opinion, similarity to the voice of the prompt.

Only metrics with a weight or threshold are computed. Scores are written shard by shard, so that an interrupted run
resumes, and kept for other rankings.

Upstream: `data.mined_takes`; `metrics`.  Downstream: `pairs`.
"""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import ConfigDict, Field

from marstts.audio import Waveform
from marstts.bundle import load_bundle
from marstts.codec.base import TIMBRE, Codec, Codes, with_timbre
from marstts.errors import DataError, MissingExtraError
from marstts.io.config import Config
from marstts.io.files import lock_folder
from marstts.io.jsonl import read_rows, write_rows
from marstts.io.provenance import PROVENANCE_FILE, extend_provenance, write_provenance
from marstts.io.reading import parse_object, read_text
from marstts.speaker.base import SpeakerEncoder, cosine, encoder_input
from marstts_lab.data.mined_takes import TAKES_PATTERN, GeneratedHalf, Half, MinedTake, read_takes, text_of
from marstts_lab.data.workers import Executor, Progress
from marstts_lab.metrics.length import check_length, expected_seconds
from marstts_lab.metrics.panel import missing_packages
from marstts_lab.metrics.quality import WORST, QualityMetric, check_quality_metric, open_quality_metric
from marstts_lab.metrics.recognition import Recognizer, character_edits, check_recognizer, open_recognizer
from marstts_lab.metrics.take_metrics import NO_SIMILARITY
from marstts_lab.metrics.words import plain_words

log = logging.getLogger(__name__)

SCORES_FOLDER = "scores"

IDENTITY = "identity"
"""Role of the encoder that measures speaker similarity."""

Value = Field(None, allow_inf_nan=False)


class TakeMetric(str, Enum):
    """A metric of a take; the values are the names of the scores."""

    CER = "cer"
    """Character errors of a recognizer's transcript, relative to the characters of the text."""

    MOS = "mos"
    """Predicted mean opinion score, 1 to 5."""

    SIMILARITY = "similarity"
    """Cosine of the identity embeddings of the take and of its prompt."""


class Score(Config):
    """The scores of one half of a cycle; None for metrics that were not computed."""

    model_config = ConfigDict(extra="ignore")  # scores of earlier versions have metrics that are gone

    transcript: str | None = None
    cer: float | None = Value
    mos: float | None = Value
    similarity: float | None = Value

    def on(self, metric: TakeMetric) -> float:
        """The score of a metric that was computed."""
        value: float | None = getattr(self, metric.value)
        assert value is not None, "all takes are scored by all metrics before they are ranked"
        return value


class ScoredTake(Config):
    """A line of `scores/takes-00000.jsonl`."""

    id: str
    forward: Score | None
    cycle: Score | None
    """None where it was not generated, or not scored."""


@dataclass(frozen=True)
class ScoringPlan:
    """The metrics to compute, and for which half."""

    recognizer: str
    mos_predictor: str
    metrics: tuple[TakeMetric, ...]
    half: Half

    @property
    def names(self) -> dict[str, str]:
        """The models of the metrics that have several, as the provenance of the scores keeps them."""
        named = {TakeMetric.CER: ("recognizer", self.recognizer), TakeMetric.MOS: ("mos_predictor", self.mos_predictor)}
        return dict(named[metric] for metric in self.metrics if metric in named)

    @property
    def tools(self) -> list[str]:
        """Names of the tools that compute the metrics, as `metrics.panel` calls them."""
        tools = {
            TakeMetric.CER: check_recognizer(self.recognizer),
            TakeMetric.MOS: self.mos_predictor,
        }
        return list(dict.fromkeys(tools[metric] for metric in self.metrics if metric in tools))


@dataclass(frozen=True)
class ScoringShard:
    """Takes to be scored."""

    takes: Path
    output: Path
    plan: ScoringPlan

    @property
    def name(self) -> str:
        """Name of the file."""
        return self.takes.name


@dataclass(frozen=True)
class MetricModels:
    """The models of a worker; None for a metric that is not computed."""

    codec: Codec
    recognizer: Recognizer | None
    quality: QualityMetric | None
    identity: SpeakerEncoder | None

    def score(self, text: str, output: GeneratedHalf, before: Score) -> Score:
        """The score `before` of a take of `text`, with the metrics that it lacks. Silence gets the worst scores."""
        codec = with_timbre(self.codec, output.embeddings.get(TIMBRE))
        words, waveform = plain_words(text), decode(codec, output.codes)
        speech = waveform if check_length(waveform, expected_seconds(text)).has_speech else None
        found: dict[str, Any] = {}
        if self.recognizer is not None and before.cer is None:
            transcript = [] if speech is None else self.recognizer.transcribe(speech)
            edits = character_edits(words, transcript)
            found |= {"transcript": " ".join(transcript), "cer": round(edits.errors / edits.length, 5)}
        if self.quality is not None and before.mos is None:
            mos = WORST if speech is None else float(self.quality.rate(speech)[self.quality.scales[0]])
            found |= {"mos": round(mos, 5)}
        if self.identity is not None and before.similarity is None:
            similarity = NO_SIMILARITY
            if speech is not None:
                embedding = self.identity.embed(encoder_input(speech, codec.spec.sample_rate))
                similarity = cosine(embedding, output.embeddings[IDENTITY])
            found |= {"similarity": round(similarity, 5)}
        return before.model_copy(update=found)


def score_takes(mined: Path, model: str, plan: ScoringPlan, executor: Executor) -> list[tuple[MinedTake, ScoredTake]]:
    """Every take with its scores; scores that were computed before are kept.

    DataError if there are no takes, or a metric gives no finite number; MissingExtraError, before any work, where
    packages are missing.
    """
    paths = sorted(mined.glob(TAKES_PATTERN))
    if not paths:
        raise DataError(f"{mined}: no takes here; run `marstts preference mine` first")
    folder = mined / SCORES_FOLDER
    with lock_folder(folder, DataError):
        check_tools(plan)
        begin_scores(folder, plan.names)
        log.info("%s: metrics by %s", mined, ", ".join(plan.tools))
        shards = [ScoringShard(path, folder / path.name, plan) for path in paths]
        missing = [shard for shard in shards if not is_scored(shard)]
        progress = Progress(log, "shards scored", len(missing))
        for _ in executor.run(missing, partial(load_models, model, plan), score_shard):
            progress.advance()
        return [
            pair
            for shard in shards
            for pair in zip(read_takes(shard.takes), read_rows(ScoredTake, shard.output), strict=True)
        ]


def check_tools(plan: ScoringPlan) -> None:
    """ConfigError for unknown metrics, MissingExtraError naming all packages that are not installed."""
    check_recognizer(plan.recognizer)
    check_quality_metric(plan.mos_predictor)
    missing = missing_packages(plan.tools)
    if missing:
        raise MissingExtraError("; ".join(missing))


def scored_by(folder: Path) -> dict[str, Any]:
    """The models that have scored in `folder`; empty while no shard is finished."""
    path = folder / PROVENANCE_FILE
    if not any(folder.glob(TAKES_PATTERN)) or not path.is_file():
        return {}
    return parse_object(read_text(path, 2**20, DataError), str(path), DataError)


def begin_scores(folder: Path, names: dict[str, str]) -> None:
    """Write the provenance of the scores; ConfigError if they were computed by other models."""
    if any(folder.glob(TAKES_PATTERN)):
        extend_provenance(folder, names)
    else:
        write_provenance(folder, names)


def is_scored(shard: ScoringShard) -> bool:
    """Return True where the half in the plan has its scores."""
    takes, plan = read_takes(shard.takes), shard.plan
    before = lines_before(shard, takes)
    return bool(before) and all(
        (score := getattr(before[take.id], plan.half.value)) is not None and getattr(score, metric.value) is not None
        for take in takes
        if take.half(plan.half) is not None
        for metric in plan.metrics
    )


def lines_before(shard: ScoringShard, takes: Sequence[MinedTake]) -> dict[str, ScoredTake]:
    """The scores so far by id; empty where the shard has none, or was generated again since."""
    lines = read_rows(ScoredTake, shard.output) if shard.output.is_file() else []
    found = {line.id: line for line in lines}
    return found if list(found) == [take.id for take in takes] else {}


def load_models(model: str, plan: ScoringPlan) -> MetricModels:
    """The models of the metrics, and the codec of the mined model."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    bundle = load_bundle(model)
    return MetricModels(
        codec=bundle.codec,
        recognizer=open_recognizer(plan.recognizer) if TakeMetric.CER in plan.metrics else None,
        quality=open_quality_metric(plan.mos_predictor) if TakeMetric.MOS in plan.metrics else None,
        identity=bundle.encoders[IDENTITY] if TakeMetric.SIMILARITY in plan.metrics else None,
    )


def score_shard(shard: ScoringShard, models: MetricModels) -> str:
    """Score the takes of a shard and write their lines."""
    takes = read_takes(shard.takes)
    before = lines_before(shard, takes)
    lines = []
    for take in takes:
        known = before.get(take.id, ScoredTake(id=take.id, forward=None, cycle=None))
        scores = {half.value: score_half(take, half, models, getattr(known, half.value), shard.plan) for half in Half}
        lines.append(ScoredTake(id=take.id, **scores))
    write_rows(shard.output, lines)
    return shard.name


def score_half(
    take: MinedTake, half: Half, models: MetricModels, before: Score | None, plan: ScoringPlan
) -> Score | None:
    """The score of one half; None where it was not generated, or never scored. DataError unless it is finite."""
    generated = take.half(half)
    if generated is None or half is not plan.half:
        return before
    score = models.score(text_of(take, half), generated, before or Score())
    for metric in plan.metrics:
        if not math.isfinite(score.on(metric)):
            raise DataError(
                f"take {take.id!r}: its {half.value} {metric.value} is {score.on(metric)}, which is not finite; use "
                "another tool for this metric"
            )
    return score


def decode(codec: Codec, codes: Codes) -> Waveform:
    """The audio of codes; no samples where there are no codes."""
    if not len(codes[0]):
        return Waveform(np.zeros(0, np.float32), codec.spec.sample_rate)
    return codec.decode(codes)
