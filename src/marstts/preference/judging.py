"""Judging mined takes: what is heard of their words, and how good they sound.

A recogniser counts character errors against the words that were to be said, a predictor of opinion scores listens to
the sound. What they say is written shard by shard, so that a stopped run goes on, and kept for rankings of other kinds.

Upstream: `takes`; the recognisers and predictors of `evaluation`.  Downstream: `rank`.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from marstts.audio import Waveform
from marstts.checkpoint import load_bundle
from marstts.codec.base import Codec, Codes
from marstts.config import Config
from marstts.data.pairs import refuse
from marstts.data.workers import Engine
from marstts.errors import ConfigError, DataError, MarsError
from marstts.evaluation.judges import RECOGNISERS
from marstts.evaluation.metrics.length import judge_length, usual_seconds
from marstts.evaluation.metrics.quality import WORST, QualityJudge, open_quality_judge
from marstts.evaluation.metrics.recognition import Recogniser, character_edits
from marstts.evaluation.metrics.words import plain_words
from marstts.preference.takes import TAKES_PATTERN, Leg, Take, read_lines, read_takes, write_lines

JUDGED_FOLDER, JUDGES_FILE = "judged", "judges.json"


class Score(Config):
    """What the judges say of one take, one half of its cycle."""

    heard: str
    cer: float
    mos: float


class Judged(Config):
    """A line of `judged/takes-00000.jsonl`."""

    id: str
    forward: Score | None
    cycle: Score | None
    """None where it was not spoken, or not asked for."""


@dataclass(frozen=True)
class Shard:
    """Takes to be judged."""

    index: int
    takes: Path
    output: Path
    legs: tuple[Leg, ...]


@dataclass(frozen=True)
class Ears:
    """What a worker judges with."""

    codec: Codec
    recogniser: Recogniser
    quality: QualityJudge

    def score(self, text: str, codes: Codes) -> Score:
        """What is heard of `text`; nothing, and the lowest opinion, where there is no speech."""
        words, waveform = plain_words(text), decode(self.codec, codes)
        audible = judge_length(waveform, usual_seconds(text)).has_speech
        heard = self.recogniser.hear(waveform) if audible else []
        edits = character_edits(words, heard)
        mos = float(self.quality.rate(waveform)[self.quality.scales[0]]) if audible else WORST
        return Score(heard=" ".join(heard), cer=round(edits.errors / edits.length, 5), mos=round(mos, 5))


def judge_takes(
    mined: Path,
    model: str,
    recogniser: str,
    mos: str,
    legs: tuple[Leg, ...],
    engine: Engine,
    say: Callable[[str], None],
) -> list[tuple[Take, Judged]]:
    """Every take with what the judges say of those halves; what was judged before is not judged again.

    `mos` may be `auto`, see `choose_mos`. DataError if there are no takes, or a score is no number.
    """
    paths = sorted(mined.glob(TAKES_PATTERN))
    if not paths:
        raise DataError(f"{mined}: no takes here; run `marstts mine` first")
    mos = choose_mos(mos, mined / JUDGED_FOLDER)
    folder = claim_judges(mined / JUDGED_FOLDER, {"recogniser": recogniser, "mos": mos})
    say(f"{mined}: judged by {recogniser} and {mos}")
    shards = [Shard(index, path, folder / path.name, legs) for index, path in enumerate(paths)]
    missing = [shard for shard in shards if not is_judged(shard)]
    done = engine.run(missing, partial(open_ears, model, recogniser, mos), judge_shard) if missing else ()
    for number, name in enumerate(done, 1):
        say(f"{name} judged ({number} of {len(missing)})")
    found = [
        pair for shard in shards for pair in zip(read_takes(shard.takes), read_lines(Judged, shard.output), strict=True)
    ]
    check_finite(judged for _, judged in found)
    return found


def choose_mos(name: str, folder: Path) -> str:
    """The predictor of this name. `auto` is the one that has judged in `folder`, else UTMOS where packages and weights
    are there, else DNSMOS.
    """
    if name != "auto":
        return name
    if any(folder.glob(TAKES_PATTERN)):
        return str(json.loads((folder / JUDGES_FILE).read_text(encoding="utf-8"))["mos"])
    try:
        open_quality_judge("utmos")
    except (MarsError, OSError):  # the latter where its weights cannot be downloaded
        return "dnsmos"
    return "utmos"


def claim_judges(folder: Path, claim: Mapping[str, str]) -> Path:
    """The folder of scores, marked with who judged; ConfigError if somebody else did."""
    file = folder / JUDGES_FILE
    if not any(folder.glob(TAKES_PATTERN)):  # nothing was judged yet, whoever meant to
        folder.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(dict(claim), indent=2) + "\n", encoding="utf-8")
    found = json.loads(file.read_text(encoding="utf-8"))
    if found != dict(claim):
        raise ConfigError(
            f"{folder}: these takes were judged by {', '.join(found.values())}, not {', '.join(claim.values())}, and "
            "scores of different judges do not mix; ask for the same, or remove the folder"
        )
    return folder


def is_judged(shard: Shard) -> bool:
    """Whether every half that is asked for has its score."""
    if not shard.output.is_file():
        return False
    takes, lines = read_takes(shard.takes), read_lines(Judged, shard.output)
    return [take.id for take in takes] == [line.id for line in lines] and all(
        take.leg(leg) is None or getattr(line, leg.value) is not None
        for take, line in zip(takes, lines, strict=True)
        for leg in shard.legs
    )


def open_ears(model: str, recogniser: str, mos: str) -> Ears:
    """The judges, and the codec of the model that spoke."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    if recogniser not in RECOGNISERS:
        raise ConfigError(f"recogniser {recogniser!r} was asked for; expected one of {', '.join(RECOGNISERS)}")
    return Ears(load_bundle(model).codec, RECOGNISERS[recogniser](), open_quality_judge(mos))


def judge_shard(shard: Shard, ears: Ears) -> str:
    """What a worker does with a shard."""
    lines = []
    for take in read_takes(shard.takes):
        scores = {leg.value: score_leg(take, leg, ears) if leg in shard.legs else None for leg in Leg}
        lines.append(Judged(id=take.id, **scores))
    write_lines(lines, shard.output)
    return shard.takes.name


def score_leg(take: Take, leg: Leg, ears: Ears) -> Score | None:
    """One half of a take; None where it was not spoken."""
    spoken = take.leg(leg)
    return None if spoken is None else ears.score(text_of(take, leg), spoken.codes)


def text_of(take: Take, leg: Leg) -> str:
    """What was to be said."""
    return take.plan.text if leg is Leg.FORWARD else take.plan.transcript


def decode(codec: Codec, codes: Codes) -> Waveform:
    """What codes sound like; no samples where there are none."""
    if not len(codes[0]):
        return Waveform(np.zeros(0, np.float32), codec.spec.sample_rate)
    return codec.decode(codes)


def check_finite(lines: Iterable[Judged]) -> None:
    """DataError naming the takes (the first ten) with a score that is no number."""
    refuse(
        [
            f"take {line.id!r}: its {leg.value} {name} is {getattr(score, name)}, which is no number; remove its "
            "shard's file in judged/ to have it judged again"
            for line in lines
            for leg in Leg
            if (score := getattr(line, leg.value)) is not None
            for name in ("cer", "mos")
            if not math.isfinite(getattr(score, name))
        ]
    )
