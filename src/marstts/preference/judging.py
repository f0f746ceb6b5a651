"""Judging mined takes: what is heard of their words, and how good they sound.

A recogniser counts character errors against the words that were to be said, the word test counts words that sound like
others, forced alignment says how ill the words' sounds fit, a predictor of opinion scores listens to the sound. Only
those are asked whose word counts in the ranking. What they say is written shard by shard, so that a stopped run goes
on, and kept for rankings of other kinds.

Upstream: `takes`; the recognisers and predictors of `evaluation`.  Downstream: `rank`.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from marstts.audio import Waveform
from marstts.checkpoint import load_bundle
from marstts.codec.base import Codec, Codes
from marstts.config import Config
from marstts.data.pairs import refuse, write_atomically
from marstts.data.workers import Engine
from marstts.errors import ConfigError, DataError, MarsError
from marstts.evaluation.judges import RECOGNISERS
from marstts.evaluation.metrics import sphinx
from marstts.evaluation.metrics.alignment import Aligner
from marstts.evaluation.metrics.length import judge_length, usual_seconds
from marstts.evaluation.metrics.quality import WORST, QualityJudge, open_quality_judge
from marstts.evaluation.metrics.recognition import Recogniser, character_edits
from marstts.evaluation.metrics.word_choice import WordChoiceTest
from marstts.evaluation.metrics.words import plain_words
from marstts.preference.takes import TAKES_PATTERN, Leg, Take, read_lines, read_takes, write_lines

JUDGED_FOLDER, JUDGES_FILE = "judged", "judges.json"
WORST_MISFIT = 20.0


class Scale(str, Enum):
    """What is judged; the values are the names of the scores."""

    CER = "cer"
    """Character errors of what a recogniser hears, as a share of the text's characters."""

    WRONG_WORDS = "wrong_words"
    """Share of words that the word test takes for others; 0 where none of them can be taken for another."""

    MISFIT = "misfit"
    """How ill the sounds of the words fit what is heard, by forced alignment: nats per frame, see `metrics.alignment`.
    Real speech has 3 to 4, and `WORST_MISFIT` is that of a take the words cannot be placed in."""

    MOS = "mos"
    """Predicted opinion score, 1 to 5."""

    @property
    def higher_is_worse(self) -> bool:
        return self is not Scale.MOS


class Score(Config):
    """What the judges say of one take, one half of its cycle; None of what nobody was asked."""

    heard: str | None = None
    cer: float | None = None
    wrong_words: float | None = None
    misfit: float | None = None
    mos: float | None = None

    def on(self, scale: Scale) -> float:
        """That score, of a judge who was asked."""
        value: float | None = getattr(self, scale.value)
        assert value is not None, "takes are judged on all scales before they are ranked"
        return value


class Judged(Config):
    """A line of `judged/takes-00000.jsonl`."""

    id: str
    forward: Score | None
    cycle: Score | None
    """None where it was not spoken, or not asked for."""


@dataclass(frozen=True)
class Wanted:
    """Which judges are asked, and about what."""

    recogniser: str
    mos: str
    scales: tuple[Scale, ...]
    legs: tuple[Leg, ...]

    @property
    def names(self) -> dict[str, str]:
        """Of the judges there are several of, those asked, as `judges.json` keeps them."""
        named = {Scale.CER: ("recogniser", self.recogniser), Scale.MOS: ("mos", self.mos)}
        return dict(named[scale] for scale in self.scales if scale in named)

    @property
    def told(self) -> list[str]:
        """All who are asked, as people call them."""
        called = {
            Scale.CER: self.recogniser,
            Scale.WRONG_WORDS: "the word test",
            Scale.MISFIT: "forced alignment",
            Scale.MOS: self.mos,
        }
        return [called[scale] for scale in self.scales]


@dataclass(frozen=True)
class Shard:
    """Takes to be judged."""

    index: int
    takes: Path
    output: Path
    wanted: Wanted


@dataclass(frozen=True)
class Ears:
    """What a worker judges with; None for a judge whom nobody asks."""

    codec: Codec
    recogniser: Recogniser | None
    word_test: WordChoiceTest | None
    aligner: Aligner | None
    quality: QualityJudge | None

    def score(self, text: str, codes: Codes, before: Score) -> Score:
        """What was said `before` of a take of `text`, and what it lacks. Where there is no speech, nothing is heard,
        every word is wrong, and opinion is the lowest.
        """
        words, waveform = plain_words(text), decode(self.codec, codes)
        speech = waveform if judge_length(waveform, usual_seconds(text)).has_speech else None
        found: dict[str, Any] = {}
        if self.recogniser is not None and before.cer is None:
            heard = [] if speech is None else self.recogniser.hear(speech)
            edits = character_edits(words, heard)
            found |= {"heard": " ".join(heard), "cer": round(edits.errors / edits.length, 5)}
        if self.word_test is not None and before.wrong_words is None:
            found |= {"wrong_words": round(wrong_words(self.word_test, words, speech), 5)}
        if self.aligner is not None and before.misfit is None:
            found |= {"misfit": round(misfit(self.aligner, words, speech), 5)}
        if self.quality is not None and before.mos is None:
            mos = WORST if speech is None else float(self.quality.rate(speech)[self.quality.scales[0]])
            found |= {"mos": round(mos, 5)}
        return before.model_copy(update=found)


def wrong_words(test: WordChoiceTest, words: list[str], speech: Waveform | None) -> float:
    """Share of the words with near-homophones that are not heard as themselves."""
    if speech is None:
        return 1.0
    outcome = test.score(sphinx.prepare(speech), words)
    return 1 - outcome.right / outcome.choices if outcome.choices else 0.0


def misfit(aligner: Aligner, words: list[str], speech: Waveform | None) -> float:
    """`Scale.MISFIT` of a take of these words."""
    score = None if speech is None else aligner.align(sphinx.prepare(speech), words).mean_score
    return WORST_MISFIT if score is None else min(-score, WORST_MISFIT)


def judge_takes(
    mined: Path, model: str, wanted: Wanted, engine: Engine, say: Callable[[str], None]
) -> list[tuple[Take, Judged]]:
    """Every take with what the judges say of it; what was judged before is not judged again.

    `wanted.mos` may be `auto`, see `choose_mos`. DataError if there are no takes, or a score is no number.
    """
    paths = sorted(mined.glob(TAKES_PATTERN))
    if not paths:
        raise DataError(f"{mined}: no takes here; run `marstts mine` first")
    if Scale.MOS in wanted.scales:
        wanted = replace(wanted, mos=choose_mos(wanted.mos, mined / JUDGED_FOLDER))
    folder = claim_judges(mined / JUDGED_FOLDER, wanted.names)
    say(f"{mined}: judged by {' and '.join(wanted.told)}")
    shards = [Shard(index, path, folder / path.name, wanted) for index, path in enumerate(paths)]
    missing = [shard for shard in shards if not is_judged(shard)]
    done = engine.run(missing, partial(open_ears, model, wanted), judge_shard) if missing else ()
    for number, name in enumerate(done, 1):
        say(f"{name} judged ({number} of {len(missing)})")
    found = [
        pair for shard in shards for pair in zip(read_takes(shard.takes), read_lines(Judged, shard.output), strict=True)
    ]
    check_scores(found, wanted)
    return found


def choose_mos(name: str, folder: Path) -> str:
    """The predictor of this name. `auto` is the one that has judged in `folder`, else UTMOS where packages and weights
    are there, else DNSMOS.
    """
    if name != "auto":
        return name
    before = judges_before(folder).get("mos")
    if before is not None:
        return before
    try:
        open_quality_judge("utmos")
    except (MarsError, OSError):  # the latter where its weights cannot be downloaded
        return "dnsmos"
    return "utmos"


def judges_before(folder: Path) -> dict[str, str]:
    """Who has judged in `folder`; nobody while no shard is finished, whoever meant to."""
    if not any(folder.glob(TAKES_PATTERN)):
        return {}
    return dict(json.loads((folder / JUDGES_FILE).read_text(encoding="utf-8")))


def claim_judges(folder: Path, names: Mapping[str, str]) -> Path:
    """The folder of scores, marked with who judges; ConfigError if somebody else did."""
    before = judges_before(folder)
    others = {kind: name for kind, name in names.items() if before.get(kind, name) != name}
    if others:
        raise ConfigError(
            f"{folder}: these takes were judged by {', '.join(before[kind] for kind in others)}, not "
            f"{', '.join(others.values())}, and scores of different judges do not mix; ask for the same, or remove the "
            "folder"
        )
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(folder / JUDGES_FILE, (json.dumps({**before, **names}, indent=2) + "\n").encode())
    return folder


def is_judged(shard: Shard) -> bool:
    """Whether every half that is asked for has its scores."""
    takes, wanted = read_takes(shard.takes), shard.wanted
    before = lines_before(shard, takes)
    return bool(before) and all(
        (score := getattr(before[take.id], leg.value)) is not None and getattr(score, scale.value) is not None
        for take in takes
        for leg in wanted.legs
        if take.leg(leg) is not None
        for scale in wanted.scales
    )


def lines_before(shard: Shard, takes: Sequence[Take]) -> dict[str, Judged]:
    """What was said of each take so far, by its id; nothing, where the shard is not judged or was spoken anew."""
    lines: list[Judged] = read_lines(Judged, shard.output) if shard.output.is_file() else []
    found = {line.id: line for line in lines}
    return found if list(found) == [take.id for take in takes] else {}


def open_ears(model: str, wanted: Wanted) -> Ears:
    """The judges that are asked, and the codec of the model that spoke."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    if wanted.recogniser not in RECOGNISERS:
        raise ConfigError(f"recogniser {wanted.recogniser!r} was asked for; expected one of {', '.join(RECOGNISERS)}")
    return Ears(
        codec=load_bundle(model).codec,
        recogniser=RECOGNISERS[wanted.recogniser]() if Scale.CER in wanted.scales else None,
        word_test=WordChoiceTest() if Scale.WRONG_WORDS in wanted.scales else None,
        aligner=Aligner() if Scale.MISFIT in wanted.scales else None,
        quality=open_quality_judge(wanted.mos) if Scale.MOS in wanted.scales else None,
    )


def judge_shard(shard: Shard, ears: Ears) -> str:
    """What a worker does with a shard."""
    takes = read_takes(shard.takes)
    before = lines_before(shard, takes)
    lines = []
    for take in takes:
        known = before.get(take.id, Judged(id=take.id, forward=None, cycle=None))
        scores = {leg.value: score_leg(take, leg, ears, getattr(known, leg.value), shard.wanted) for leg in Leg}
        lines.append(Judged(id=take.id, **scores))
    write_lines(lines, shard.output)
    return shard.takes.name


def score_leg(take: Take, leg: Leg, ears: Ears, before: Score | None, wanted: Wanted) -> Score | None:
    """One half of a take; None where it was not spoken, or nobody ever asked."""
    spoken = take.leg(leg)
    if spoken is None or leg not in wanted.legs:
        return before
    return ears.score(text_of(take, leg), spoken.codes, before or Score())


def text_of(take: Take, leg: Leg) -> str:
    """What was to be said."""
    return take.plan.text if leg is Leg.FORWARD else take.plan.transcript


def decode(codec: Codec, codes: Codes) -> Waveform:
    """What codes sound like; no samples where there are none."""
    if not len(codes[0]):
        return Waveform(np.zeros(0, np.float32), codec.spec.sample_rate)
    return codec.decode(codes)


def check_scores(takes: Iterable[tuple[Take, Judged]], wanted: Wanted) -> None:
    """DataError naming the takes (the first ten) with a score that is no number."""
    refuse(
        [
            f"take {take.id!r}: its {leg.value} {scale.value} is {value}, which is no number; remove its shard's file "
            "in judged/ to have it judged again"
            for take, line in takes
            for leg in wanted.legs
            if take.leg(leg) is not None
            for scale in wanted.scales
            if (value := getattr(getattr(line, leg.value), scale.value)) is None or not math.isfinite(value)
        ]
    )
