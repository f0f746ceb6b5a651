"""Speak every trial, judge every take, write one line for each: what a killed run has done stays done.

Upstream: `testset`, `systems`.  Downstream: `report`.

The output folder holds `takes/<system>/<trial>.wav` and `scores.jsonl`. Nothing is left out in silence: a trial whose
take is missing, empty or silent gets the worst score of every measure, and the reason stands in its line.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from marstts import audio
from marstts.audio import Waveform
from marstts.config import Config, parse_config
from marstts.errors import DataError, MarsError
from marstts.evaluation.metrics import sphinx
from marstts.evaluation.metrics.alignment import Aligner, Alignment
from marstts.evaluation.metrics.identity import Embedding, SpeakerPairs, compare_speakers, level
from marstts.evaluation.metrics.length import Verdict, judge_length
from marstts.evaluation.metrics.recognition import Recogniser, character_edits, word_edits
from marstts.evaluation.metrics.word_choice import WordChoices, WordChoiceTest, near_homophones
from marstts.evaluation.metrics.words import plain_words
from marstts.evaluation.systems import System
from marstts.evaluation.testset import Trial, trials_digest
from marstts.speaker.base import SpeakerEncoder

SCORES_FILE = "scores.jsonl"
TAKES_FOLDER = "takes"
CLAIM_FILE = "made_by.json"


class TakeScore(Config):
    """Everything the judges found in one take: counts, so that systems are summed up over sentences."""

    system: str
    trial: str
    speaker: str
    style: str

    seconds: float
    source_seconds: float
    verdict: Verdict
    problem: str | None
    """Why there is no take, in the words of the error."""

    heard: str
    """What open recognition heard."""

    word_errors: int
    words: int
    character_errors: int
    characters: int

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

    speaker_pairs: int
    """Pairs of the own reference and one of another speaker."""

    nearer_by_model: int | None
    similarity_by_model: float | None
    """By the identity encoder of the model's bundle; None where no bundle was given."""

    nearer_by_independent: int
    """By an encoder that no model was trained with."""

    similarity_by_independent: float


@dataclass(frozen=True)
class Words:
    """What the word judges found in one take."""

    heard: list[str]
    choices: WordChoices
    alignment: Alignment


class Judges:
    """All judges of one test set; each take is judged by itself, whatever was judged before."""

    def __init__(
        self, trials: Sequence[Trial], identity_encoder: SpeakerEncoder | None, independent_encoder: SpeakerEncoder
    ) -> None:
        """`identity_encoder` is the one of a model's bundle, `independent_encoder` one no model was trained with."""
        self._recogniser = Recogniser()
        self._word_choice = WordChoiceTest()
        self._aligner = Aligner()
        self._by_model = None if identity_encoder is None else SpeakerJudge(identity_encoder, trials)
        self._by_independent = SpeakerJudge(independent_encoder, trials)
        self._source_seconds = {trial.source: audio.read(trial.source).seconds for trial in trials}
        self.versions = {
            **{package: package_version(package) for package in ("pocketsphinx", "jiwer")},
            "identity encoder": "none" if identity_encoder is None else identity_encoder.name,
            "independent encoder": independent_encoder.name,
        }

    def score(self, system: str, trial: Trial, take: Waveform | None, problem: str | None = None) -> TakeScore:
        """Judge one take; None, with the `problem`, where the system gave none."""
        source_seconds = self._source_seconds[trial.source]
        verdict = judge_length(take, source_seconds)
        speech = take if verdict.has_speech else None
        text = plain_words(trial.text)
        words = self.listen_for_words(text, speech)
        by_word, by_character = word_edits(text, words.heard), character_edits(text, words.heard)
        by_model = None if self._by_model is None else self._by_model.compare(trial, speech)
        by_independent = self._by_independent.compare(trial, speech)
        return TakeScore(
            system=system,
            trial=trial.id,
            speaker=trial.speaker,
            style=trial.style,
            seconds=0.0 if take is None else round(take.seconds, 3),
            source_seconds=round(source_seconds, 3),
            verdict=verdict,
            problem=problem,
            heard=" ".join(words.heard),
            word_errors=by_word.errors,
            words=by_word.length,
            character_errors=by_character.errors,
            characters=by_character.length,
            right_choices=words.choices.right,
            choices=words.choices.choices,
            words_unknown=words.choices.skipped,
            worst_word=words.alignment.worst_word,
            worst_word_score=words.alignment.worst_score,
            word_fault=words.alignment.at_fault,
            speaker_pairs=by_independent.pairs,
            nearer_by_model=None if by_model is None else by_model.nearer,
            similarity_by_model=None if by_model is None else round(by_model.similarity, 4),
            nearer_by_independent=by_independent.nearer,
            similarity_by_independent=round(by_independent.similarity, 4),
        )

    def listen_for_words(self, text: list[str], speech: Waveform | None) -> Words:
        """What is heard of the words of `text`: nothing, where there is no speech."""
        if speech is None:
            known = sphinx.pronounceable(text)
            choices, skipped = sum(bool(near_homophones(word)) for word in known), len(text) - len(known)
            return Words([], WordChoices(0, choices, skipped), Alignment(None, None, skipped))
        pcm = sphinx.prepare(speech)
        return Words(self._recogniser.hear(pcm), self._word_choice.score(pcm, text), self._aligner.align(pcm, text))


class SpeakerJudge:
    """One speaker encoder and its embeddings of a test set's references."""

    def __init__(self, encoder: SpeakerEncoder, trials: Sequence[Trial]) -> None:
        self._encoder = encoder
        self._references = {t.reference: encoder.embed(level(audio.read(t.reference))) for t in trials}
        self._speakers = {t.reference: t.speaker for t in trials}

    def compare(self, trial: Trial, speech: Waveform | None) -> SpeakerPairs:
        """The take against its own reference and those of all other speakers; no speech is near to nobody."""
        others = self.references_of_others(trial.speaker)
        if speech is None:
            return SpeakerPairs(0, len(others), 0.0)
        embedding = self._encoder.embed(level(speech))
        return compare_speakers(embedding, self._references[trial.reference], others)

    def references_of_others(self, speaker: str) -> list[Embedding]:
        return [embedding for path, embedding in self._references.items() if self._speakers[path] != speaker]


def score_system(
    system: System, trials: Sequence[Trial], output: Path, judges: Judges, tell: Callable[[str], None]
) -> None:
    """Take and line for every trial the system has not been judged on; goes on where it stopped."""
    folder = claim_folder(output / TAKES_FOLDER / system.name, system, trials, judges)
    done = {score.trial for score in read_scores(output) if score.system == system.name}
    for number, trial in enumerate(trials, 1):
        if trial.id in done:
            continue
        take, problem = obtain_take(system, trial, folder / f"{trial.id}.wav")
        score = judges.score(system.name, trial, take, problem)
        append_score(score, output)
        tell(f"{system.name} {number}/{len(trials)} {trial.id}: {describe(score)}")


def claim_folder(folder: Path, system: System, trials: Sequence[Trial], judges: Judges) -> Path:
    """The folder of a system's takes, marked with what made them; DataError if something else did."""
    claim = {"system": system.version, "testset": trials_digest(trials), "judges": judges.versions}
    file = folder / CLAIM_FILE
    if not file.is_file():
        folder.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(claim, indent=2) + "\n", encoding="utf-8")
        return folder
    found = json.loads(file.read_text(encoding="utf-8"))
    changed = [name for name in claim if found.get(name) != claim[name]]
    if changed:
        raise DataError(
            f"{folder}: was made with another {' and '.join(changed)}, so old and new scores do not mix; "
            "choose a new --output"
        )
    return folder


def obtain_take(system: System, trial: Trial, path: Path) -> tuple[Waveform | None, str | None]:
    """The take from its file, or spoken now and written there; else None and why."""
    try:
        if not path.is_file():
            write_take(system.speak(trial), path)
        return audio.read(path), None
    except MarsError as error:
        return None, str(error)


def write_take(take: Waveform, path: Path) -> None:
    """Write a take under a temporary name until complete, so that a killed run leaves no half of one."""
    unfinished = path.with_name(f"unfinished.{path.name}")
    audio.write(take, unfinished)
    unfinished.replace(path)


def append_score(score: TakeScore, output: Path) -> None:
    with (output / SCORES_FILE).open("a", encoding="utf-8") as file:
        file.write(score.model_dump_json() + "\n")


def read_scores(output: Path) -> list[TakeScore]:
    """All lines of the folder's scores, and an unfinished last line cut off; DataError where another is malformed."""
    path = output / SCORES_FILE
    if not path.is_file():
        return []
    content = path.read_bytes()
    complete = content[: content.rfind(b"\n") + 1]
    if complete != content:
        path.write_bytes(complete)
    return list(parse_scores(complete.decode("utf-8").splitlines(), path))


def parse_scores(lines: Iterable[str], path: Path) -> Iterable[TakeScore]:
    for number, line in enumerate(lines, 1):
        try:
            values: Any = json.loads(line)
        except json.JSONDecodeError as error:
            raise DataError(f"{path}:{number}: expected one score per line, but {error}") from error
        yield parse_config(TakeScore, values, f"{path}:{number}")


def describe(score: TakeScore) -> str:
    """One take in a line of progress."""
    if score.problem is not None:
        return score.problem
    return (
        f"{score.verdict.value}, {score.seconds:.1f} s for {score.source_seconds:.1f} s, "
        f"{score.character_errors}/{score.characters} characters wrong, "
        f"{score.right_choices}/{score.choices} words chosen rightly"
    )


def package_version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "unknown"
