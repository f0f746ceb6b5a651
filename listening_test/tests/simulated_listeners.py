"""A small test with buzzes for voices, and simulated listeners who call the same functions as the page."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from marstts import audio
from marstts.audio import Waveform
from marstts_listening_test.config import Question
from marstts_listening_test.design import Anchor, Design, ListeningTrial, plan_session
from marstts_listening_test.service import SessionService, ToneTrial
from marstts_listening_test.store import Answer, SessionRecord

RATE = 16_000
SYSTEMS = {"source": 4.6, "mini": 3.4, "robot": 1.9}
"""An attentive listener's mean rating of each."""

SIMILARITY = {"source": 3.7, "mini": 2.9, "robot": 1.6}
ANCHORS = {Anchor.CLEAN: 4.7, Anchor.MIDDLING: 3.0, Anchor.DEGRADED: 1.1, Anchor.SAME: 3.9, Anchor.OTHER: 1.2}

TOML = """
title = "Voices & <how> natural they are"
questions = ["naturalness", "similarity"]
recordings = "FOLDER/recordings"
references = "FOLDER/references"
per_system = 4
contact = "tests@example.org"
seed = 3

[systems]
source = "FOLDER/takes/source"
mini = "FOLDER/takes/mini"
robot = "FOLDER/takes/robot"
"""
DESIGN = Design(
    systems=tuple(SYSTEMS), sentences=tuple(f"s{number:02d}" for number in range(13)),
    recordings=("person0", "person1", "person2"), questions=(Question.NATURALNESS, Question.SIMILARITY),
    per_system=4, attention_checks=2, repeats=3, seed=3,
)  # fmt: skip
"""The design of the file above."""


def write_buzz(path: Path, seconds: float = 0.4, rate: int = RATE, pitch: float = 120.0) -> None:
    """A recording that is not silent."""
    path.parent.mkdir(parents=True, exist_ok=True)
    time = np.arange(int(seconds * rate)) / rate
    samples = 0.2 * np.sign(np.sin(2 * np.pi * pitch * time)) * (0.6 + 0.4 * np.sin(2 * np.pi * 5 * time))
    audio.write(Waveform(samples.astype(np.float32), rate), path)


def write_folders(folder: Path, sentences: int = 13, seconds: float = 0.4) -> None:
    """Three systems, references and recordings."""
    for number in range(sentences):
        for place, system in enumerate(SYSTEMS):
            write_buzz(folder / "takes" / system / f"s{number:02d}.wav", seconds, pitch=100 + 20 * place + number)
        write_buzz(folder / "references" / f"s{number:02d}.wav", seconds * 1.2, pitch=140 + number)
    for number in range(3):
        write_buzz(folder / "recordings" / f"person{number}.wav", seconds, pitch=170 + number)


class Clock:
    """A clock that listeners advance."""

    now = 1_000.0

    def __call__(self) -> float:
        return self.now


def opinion(trial: ListeningTrial, rng: random.Random) -> int:
    """An attentive listener's choice: the system's mean with some noise, anchors with little."""
    levels = SYSTEMS if trial.question is Question.NATURALNESS else SIMILARITY
    known = trial.system in set(Anchor)
    level = ANCHORS[Anchor(trial.system)] if known else levels[trial.system]
    choice = round(rng.gauss(level, 0.3 if known else 0.7))
    return min(max(choice, 1), max(trial.question.scale))


@dataclass
class Listener:
    """Takes a session through the service's functions, as the page does."""

    service: SessionService
    clock: Clock
    choose: Callable[[ListeningTrial, random.Random], int]
    rng: random.Random
    choose_tone: Callable[[ToneTrial], int] = lambda tone: tone.quiet
    pace: float = 3.0
    """Seconds in addition to listening; below 0 they do not wait for the end."""
    link: str = field(default="", init=False)

    def start(self) -> None:
        self.link = self.service.start()["link"]
        state = self.service.state(self.link)
        while state["stage"] == "headphones":
            tones = self.service.plan_tones(self.service.find(self.link))
            state = self.service.check_headphones(self.link, {"answers": [self.choose_tone(tone) for tone in tones]})

    def proceed(self, answers: int | None = None) -> dict[str, Any]:
        """Answer so many trials, or all; the state of the session after that."""
        state = self.service.state(self.link)
        trials = self.service.store.trials(self.service.find(self.link).number)
        while state["stage"] == "trials" and answers != 0:
            trial = trials[state["position"]]
            self.clock.now += max(0.1, self.service.plan.stimuli.trial_seconds(trial) + self.pace)
            message = {"position": state["position"], "choice": self.choose(trial, self.rng), "plays": 1}
            state = self.service.answer(self.link, message)
            answers = None if answers is None else answers - 1
        return state


def guess(trial: ListeningTrial, rng: random.Random) -> int:
    """Any answer of the scale."""
    return rng.choice(list(trial.question.scale))


def always_four(trial: ListeningTrial, rng: random.Random) -> int:
    """A straightlining listener's choice."""
    return 4


def simulate_record(
    number: int,
    choose: Callable[[ListeningTrial, random.Random], int] = opinion,
    *,
    pace: float = 3.0,
    headphones: bool = True,
    answered: int | None = None,
) -> SessionRecord:
    """The record of such a listener, made without a service: fast enough for hundreds of listeners."""
    rng, trials = random.Random(number), plan_session(DESIGN, number)
    answers = [
        Answer(f"listener {number}", position, trial, 1.0, choose(trial, rng), 1.0 + pace)
        for position, trial in enumerate(trials[:answered])
    ]
    return SessionRecord(f"listener {number}", len(trials), headphones, answers)
