"""One line per take: everything the judges found in it, as counts, so that systems are summed up over sentences.

Upstream: `judges`.  Downstream: `report`. The file, `scores.jsonl`, only ever grows: what a killed run has done stays.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from marstts.config import Config, parse_config
from marstts.errors import DataError
from marstts.evaluation.metrics.length import Verdict

SCORES_FILE = "scores.jsonl"


class WordScore(Config):
    """Open recognition against the text."""

    heard: str
    """What the recogniser heard."""

    word_errors: int
    words: int
    character_errors: int
    characters: int

    repeats: bool
    """Whether something is heard twice in a row that is not so in the text."""

    cut_short: bool
    """Whether the end of the text is not heard."""


class WordTest(Config):
    """Closed-response recognition and forced alignment."""

    right_choices: int
    choices: int
    """Words in the closed-response test."""

    words_unknown: int
    """Words without a known pronunciation: in neither the closed-response test nor the alignment."""

    worst_word: str | None
    worst_word_score: float | None
    """Of the forced alignment; None where it failed."""

    word_fault: bool
    """Whether the alignment failed or found a word missing or wrong."""


class VoiceScore(Config):
    """One speaker encoder on one take; -1 where there is no speech."""

    similarity: float
    """Cosine of the take and its own reference."""

    source_similarity: float | None
    """Cosine of the real recording of the text and the reference; None where there is no such recording."""

    nearer: int
    """Other speakers' references that the take is farther from than from its own."""

    pairs: int


class Prosody(Config):
    """The take's contours beside those of the real recording; None where that has nothing to follow."""

    pitch_correlation: float | None
    energy_correlation: float | None


class TakeScore(Config):
    """One take of one system. What no judge was asked for is None or empty."""

    system: str
    trial: str
    speaker: str
    style: str

    verdict: Verdict
    problem: str | None
    """Why there is no take, in the words of the error."""

    seconds: float
    source_seconds: float | None
    """Of the real recording; None where there is none."""

    sample_rate: int | None
    """Of the take, in Hz; None where there is no take."""

    compute_seconds: float | None
    """By the clock; None where the take was not made here."""

    words: WordScore | None
    word_test: WordTest | None
    voices: dict[str, VoiceScore]
    """By the short name of the speaker encoder."""

    quality: dict[str, float]
    """By scale."""

    prosody: Prosody | None

    style_is_right: bool | None = None
    """Whether, of the speaker's references, one in the trial's style is nearest; None where all are in one style."""


def append_score(score: TakeScore, output: Path) -> None:
    with (output / SCORES_FILE).open("a", encoding="utf-8") as file:
        file.write(score.model_dump_json() + "\n")


def read_scores(output: Path) -> list[TakeScore]:
    """All lines of the folder's scores, and an unfinished last line cut off.

    DataError where another line is malformed, or where two are about the same take.
    """
    path = output / SCORES_FILE
    if not path.is_file():
        return []
    content = path.read_bytes()
    complete = content[: content.rfind(b"\n") + 1]
    if complete != content:
        path.write_bytes(complete)
    scores = list(parse_scores(complete.decode("utf-8").splitlines(), path))
    refuse_twins(scores, path)
    return scores


def parse_scores(lines: Iterable[str], path: Path) -> Iterator[TakeScore]:
    for number, line in enumerate(lines, 1):
        yield parse_config(TakeScore, parse_object(line, f"{path}:{number}"), f"{path}:{number}")


def parse_object(line: str, place: str) -> dict[str, Any]:
    """One line of a JSONL file; DataError, prefixed by `place`, where it is no JSON object."""
    try:
        values = json.loads(line)
    except json.JSONDecodeError as error:
        raise DataError(f"{place}: expected one JSON object per line, but {error}") from error
    if not isinstance(values, Mapping):
        raise DataError(f"{place}: expected a JSON object, got {type(values).__name__}")
    return dict(values)


def refuse_twins(scores: Iterable[TakeScore], path: Path) -> None:
    """Raise DataError where two lines are about one take: nobody could say which counts."""
    seen: set[tuple[str, str]] = set()
    for score in scores:
        if (score.system, score.trial) in seen:
            raise DataError(
                f"{path}: {score.system} has two lines for {score.trial}; two runs wrote here at once, so delete the "
                "file and judge the takes again"
            )
        seen.add((score.system, score.trial))
