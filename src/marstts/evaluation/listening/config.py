"""What a listening test asks, of which systems, and which listeners will count.

Upstream: a TOML file that a person writes.  Downstream: `stimuli`, `design`, `analysis`.
MARS6 (arXiv:2501.05787), Sec. V: naturalness from 1 to 5, similarity from 1 to 4 by the protocol of the Voice
Conversion Challenge 2020, calibration and trapping samples, anomalous listeners left out.  Deviations: the paper does
not say when a listener is anomalous; `Rules` says it, in the test's file, so that it stands before the first answer.
"""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated

from pydantic import Field, StringConstraints, model_validator

from marstts.config import Config, read_config

SystemName = Annotated[str, StringConstraints(pattern=r"^\w[^/\\]*$", max_length=80)]
"""What a table's row is called; it never reaches a listener."""


class Question(str, Enum):
    """What listeners are asked about a recording."""

    NATURALNESS = "naturalness"
    SIMILARITY = "similarity"
    PREFERENCE = "preference"
    """Which of two is better: for developers, see `preference`."""

    @property
    def scale(self) -> dict[int, str]:
        """The choices, from worst to best, by the digit that stands for them."""
        return SCALES[self]

    @property
    def span(self) -> int:
        """From the lowest choice to the highest."""
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
    """What is asked of listeners' equipment."""

    REQUIRED = "required"
    """The check is made, and who fails it does not count."""
    ASKED = "asked"
    """The check is made and reported; who fails it counts."""
    ANY = "any"
    """No check."""


class Rules(Config):
    """When a listener does not count. Each is a fact about the answers, none looks at which system they favour."""

    max_failed_traps: int = Field(0, ge=0)
    """Traps that may be failed: a real recording called worse than `lowest_for_clean`, a ruined one better than
    `highest_for_degraded`; one recording heard twice as two people, two voices as one person."""

    lowest_for_clean: int = Field(3, ge=1, le=5)
    """A naturalness that a real recording must reach."""

    highest_for_degraded: int = Field(2, ge=1, le=5)
    """A naturalness that a ruined recording must not exceed."""

    max_hasty_share: float = Field(0.1, ge=0.0, le=1.0)
    """Share of answers that may come sooner than the recording could have been heard to its end."""

    max_constant_share: float = Field(0.95, ge=0.0, le=1.0)
    """Share of a part's answers, traps included, that may be one and the same."""

    max_repeat_difference: float = Field(0.45, ge=0.0, le=1.0)
    """Mean difference between two answers to the same recording, as a share of the scale's span, over all parts."""

    min_correlation: float = Field(0.3, ge=-1.0, le=1.0)
    """Spearman's correlation with the other listeners' means, anchors included."""

    min_others: int = Field(3, ge=1)
    """Listeners, besides oneself, that have to have passed all other rules before correlation is asked for."""


class ListeningTestConfig(Config):
    """One listening test; paths are relative to its file."""

    title: str = Field(min_length=1, max_length=120)
    """What listeners read at the top of the page."""

    systems: dict[SystemName, Path] = Field(min_length=1)
    """Folders of takes by the system's name: the same sentences in each, as `<sentence>.wav` or `.flac`."""

    questions: tuple[Question, ...] = (Question.NATURALNESS,)
    """The parts of the test, in this order."""

    recordings: Path | None = None
    """Folder of clean recordings of people, for examples and traps of naturalness; any sentences."""

    references: Path | None = None
    """Folder of `<sentence>.wav`, the voice that each sentence should have; for similarity."""

    database: Path = Path("answers.sqlite")
    """Where answers are kept."""

    contact: str = Field("", max_length=200)
    """Whom listeners may write to; shown on the first page."""

    seed: int = 0
    """Of every random order."""

    per_system: int | None = Field(None, ge=1)
    """Sentences a listener hears of each system, no sentence twice; None: as many as there are, up to 8."""

    traps: int = Field(2, ge=1, le=10)
    """Traps of each kind in each part."""

    repeats: int = Field(3, ge=0, le=20)
    """Recordings in each part that are played again later."""

    headphones: Headphones = Headphones.REQUIRED
    """Whether listeners prove that they wear headphones."""

    loudness_lufs: float = Field(-23.0, ge=-40.0, le=-10.0)
    """All recordings are brought to this loudness: louder is not better."""

    sample_rate: int | None = Field(None, ge=8_000, le=48_000)
    """Bring all recordings to this rate, in Hz; None: they must have one already."""

    max_seconds: float = Field(20.0, gt=0.0, le=60.0)
    """Longer recordings are refused."""

    max_listeners: int = Field(200, ge=1, le=10_000)
    """Further listeners are turned away."""

    rules: Rules = Rules()
    """Who counts."""

    @model_validator(mode="after")
    def _questions_have_recordings(self) -> ListeningTestConfig:
        if not self.questions or len(set(self.questions)) < len(self.questions):
            raise ValueError("questions: name each once: naturalness, similarity")
        if Question.PREFERENCE in self.questions:
            raise ValueError("questions: for preference use `marstts listen ab`; expected naturalness, similarity")
        if Question.NATURALNESS in self.questions and self.recordings is None:
            raise ValueError("naturalness needs `recordings`, a folder of clean recordings of people, for its traps")
        if Question.SIMILARITY in self.questions and self.references is None:
            raise ValueError("similarity needs `references`, a folder with the voice of each sentence")
        return self


def read_listening_test(path: Path) -> ListeningTestConfig:
    """The test of a TOML file, its paths resolved; ConfigError naming everything that is wrong with it."""
    config = read_config(ListeningTestConfig, path)
    folder = path.parent

    def resolve(place: Path | None) -> Path | None:
        return None if place is None else folder / place

    return config.model_copy(
        update={
            "systems": {name: folder / place for name, place in config.systems.items()},
            "recordings": resolve(config.recordings),
            "references": resolve(config.references),
            "database": folder / config.database,
        }
    )
