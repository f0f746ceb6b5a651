"""The configuration of a listening test: its questions, its systems, and the rules that exclude listeners.

Upstream: a TOML file, or the folder of an evaluation.  Downstream: `stimuli`, `design`, `analysis`.
MARS6 (arXiv:2501.05787), Sec. V: naturalness from 1 to 5, similarity from 1 to 4 by the protocol of the Voice
Conversion Challenge 2020, calibration and trapping samples, anomalous listeners excluded.  Deviations: the paper does
not define when a listener is anomalous; `Rules` does, in the test's file, before the first answer.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, Field, StringConstraints, model_validator

from marstts.errors import DataError
from marstts.io.config import Config, read_config
from marstts.io.jsonl import read_rows
from marstts.io.reading import os_errors, printable_name

SystemName = Annotated[str, StringConstraints(pattern=r"^\w[^/\\]*$", max_length=80)]
"""Name of a row in the results; listeners never see it."""

DEFAULT_TITLE = "How natural do these voices sound?"


class Question(str, Enum):
    """A question about a recording."""

    NATURALNESS = "naturalness"
    SIMILARITY = "similarity"
    PREFERENCE = "preference"
    """Choice of the better of two, for developers; see `preference`."""

    @property
    def scale(self) -> dict[int, str]:
        """The choices, from worst to best, by their digit."""
        return SCALES[self]

    @property
    def span(self) -> int:
        """Difference between the highest and the lowest choice."""
        return max(self.scale) - min(self.scale)


SCALES = {
    Question.NATURALNESS: {1: "Bad", 2: "Poor", 3: "Fair", 4: "Good", 5: "Excellent"},  # ITU-T P.800
    Question.SIMILARITY: {
        1: "Different person, absolutely sure",
        2: "Different person, not sure",
        3: "Same person, not sure",
        4: "Same person, absolutely sure",
    },  # VCC 2020
    Question.PREFERENCE: {1: "First is better", 2: "Second is better", 3: "No difference"},
}


class Headphones(str, Enum):
    """Requirement on listeners' equipment."""

    REQUIRED = "required"
    """The check is made; listeners who fail it are excluded."""
    ASKED = "asked"
    """The check is made and reported; listeners who fail it count."""
    ANY = "any"
    """No check."""


class Rules(Config):
    """Rules that exclude listeners. Each is a fact about the answers; none depends on which system they favor."""

    max_failed_attention_checks: int = Field(0, ge=0)
    """Attention checks that may be failed: a clean recording rated below `lowest_for_clean`, a degraded one above
    `highest_for_degraded`; one recording taken for two persons, two voices taken for one person."""

    lowest_for_clean: int = Field(3, ge=1, le=5)
    """A naturalness that a clean recording must reach."""

    highest_for_degraded: int = Field(2, ge=1, le=5)
    """A naturalness that a degraded recording must not exceed."""

    max_rushed_ratio: float = Field(0.1, ge=0.0, le=1.0)
    """Fraction of answers that may come sooner than the recording can be played to its end."""

    max_straightlining_ratio: float = Field(0.95, ge=0.0, le=1.0)
    """Fraction of a part's answers, attention checks included, that may be the same choice."""

    max_retest_difference: float = Field(0.45, ge=0.0, le=1.0)
    """Mean difference between two answers to the same recording, as a fraction of the scale's span, over all parts."""

    min_correlation: float = Field(0.3, ge=-1.0, le=1.0)
    """Spearman's correlation with the other listeners' means, anchors included."""

    min_others: int = Field(3, ge=1)
    """Other listeners who must have passed all other rules before the correlation is computed."""


class ListeningTestConfig(Config):
    """One listening test; paths are relative to its file."""

    title: str = Field(DEFAULT_TITLE, min_length=1, max_length=120)
    """Heading of the page."""

    evaluation: Path | None = None
    """Folder that `marstts evaluate` wrote: its takes are the systems, its references the references."""

    systems: dict[SystemName, Path] = Field(default_factory=dict, max_length=100)
    """Folders of takes by the system's name: the same sentences in each, as `<sentence>.wav` or `.flac`. Empty: all
    systems of `evaluation`."""

    questions: tuple[Question, ...] = (Question.NATURALNESS,)
    """The parts of the test, in this order."""

    recordings: Path | None = None
    """Folder of clean recordings, any sentences: examples and attention checks of naturalness. None: the references of
    `evaluation`."""

    references: Path | None = None
    """Folder of `<sentence>.wav`, the voice that each sentence should have; for similarity."""

    database: Path = Path("answers.sqlite")
    """File of the answers."""

    contact: str = Field("", max_length=200)
    """Contact for listeners, shown on the first page."""

    seed: int = Field(0, ge=-(2**63), lt=2**63)
    """Seed of every random order."""

    per_system: int | None = Field(None, ge=1, le=1000)
    """Sentences of each system in a session, no sentence twice; None: as many as there are, up to 8."""

    attention_checks: int = Field(2, ge=1, le=10)
    """Attention checks of each kind in each part."""

    repeats: int = Field(3, ge=0, le=20)
    """Recordings in each part that are played again later."""

    headphones: Headphones = Headphones.REQUIRED
    """Whether listeners must show that they wear headphones."""

    loudness_lufs: float = Field(-23.0, ge=-40.0, le=-10.0)
    """Loudness of all recordings: louder is not better."""

    sample_rate: int | None = Field(None, ge=8_000, le=48_000)
    """Sample rate of all recordings, in Hz; None: they must have one already, or get the highest of an evaluation's."""

    max_seconds: float = Field(20.0, gt=0.0, le=60.0)
    """Longer recordings are refused."""

    max_listeners: int = Field(200, ge=1, le=10_000)
    """Further listeners are refused."""

    rules: Rules = Rules()
    """Rules that exclude listeners."""

    @model_validator(mode="after")
    def _questions_have_recordings(self) -> ListeningTestConfig:
        if not self.questions or len(set(self.questions)) < len(self.questions):
            raise ValueError("questions: name each once: naturalness, similarity")
        if Question.PREFERENCE in self.questions:
            raise ValueError(
                "questions: for preference use `marstts-listening-test ab`; expected naturalness, similarity"
            )
        if self.evaluation is not None:
            return self
        if not self.systems:
            raise ValueError("name at least one folder of takes under [systems], or give `evaluation`, a folder")
        if Question.NATURALNESS in self.questions and self.recordings is None:
            raise ValueError("naturalness needs `recordings`, a folder of clean recordings, for its attention checks")
        if Question.SIMILARITY in self.questions and self.references is None:
            raise ValueError("similarity needs `references`, a folder with the voice of each sentence")
        return self


def read_listening_test(path: Path) -> ListeningTestConfig:
    """The test of a TOML file, or of an evaluation's folder; its paths are resolved.

    A folder stands for a test of naturalness and similarity over all systems of that evaluation, with defaults.
    Raises ConfigError naming everything that is wrong with the file, DataError where the folder is no evaluation.
    """
    if path.is_dir():
        questions = (Question.NATURALNESS, Question.SIMILARITY)
        config = ListeningTestConfig(evaluation=path, questions=questions, database=path / "answers.sqlite")
        return with_evaluation(config, open_evaluation(path))
    config = resolve_paths(read_config(ListeningTestConfig, path), path.parent)
    return config if config.evaluation is None else with_evaluation(config, open_evaluation(config.evaluation))


def resolve_paths(config: ListeningTestConfig, folder: Path) -> ListeningTestConfig:
    """The configuration with all paths relative to `folder`."""
    optional = {name: getattr(config, name) for name in ("evaluation", "recordings", "references")}
    return config.model_copy(
        update={
            **{name: None if path is None else folder / path for name, path in optional.items()},
            "systems": {name: folder / path for name, path in config.systems.items()},
            "database": folder / config.database,
        }
    )


def with_evaluation(config: ListeningTestConfig, evaluation: EvaluationFolder) -> ListeningTestConfig:
    """The configuration with the folders of an evaluation wherever it names none."""
    return config.model_copy(
        update={
            "systems": config.systems or dict(evaluation.systems),
            "recordings": config.recordings or evaluation.references,
            "references": config.references or evaluation.compared,
        }
    )


# The folder of an evaluation as the input of a listening test.

TRIALS_FILE, REFERENCES_FOLDER, TAKES_FOLDER = "trials.jsonl", "references", "takes"
COMPARED_FOLDER = "compared"


class TrialId(BaseModel):
    """The only field of an evaluation's trial that a listening test needs."""

    id: Annotated[str, Field(min_length=1, max_length=200, pattern=r"^[^/]+$")]


@dataclass(frozen=True)
class EvaluationFolder:
    """Sentences, references and takes of an evaluation."""

    sentences: frozenset[str]
    """Identifiers of its trials: the names of all takes and references without suffix."""

    references: Path

    compared: Path
    """Recordings that similarity is judged against: others than the references where the test set has some."""

    systems: dict[str, Path]
    """Folders of takes by the system's name, in alphabetical order."""


def open_evaluation(folder: Path) -> EvaluationFolder:
    """Find trials, references and takes of an evaluation; DataError where one of them is missing."""
    name = printable_name(folder)
    trials, references, takes = (folder / part for part in (TRIALS_FILE, REFERENCES_FOLDER, TAKES_FOLDER))
    if not (trials.is_file() and references.is_dir() and takes.is_dir()):
        raise DataError(
            f"{name}: expected the folder of an evaluation, with {TRIALS_FILE}, {REFERENCES_FOLDER}/ and "
            f"{TAKES_FOLDER}/; `marstts evaluate --output {name}` writes one"
        )
    with os_errors(takes, "be read", DataError):
        systems = {path.name: path for path in sorted(takes.iterdir()) if path.is_dir() and path.name[0] != "."}
    if not systems:
        raise DataError(f"{printable_name(takes)}: holds no takes; `marstts evaluate` writes a folder for each system")
    sentences = frozenset(row.id for row in read_rows(TrialId, trials, unique=("id",)))
    others = folder / COMPARED_FOLDER
    return EvaluationFolder(sentences, references, others if others.is_dir() else references, systems)
