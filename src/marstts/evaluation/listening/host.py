"""What the page may ask and what it is told, without a word of HTTP.

Upstream: `web`, which carries it; tests, which call it.  Downstream: `store`, and a `Sheet`: `session` or `preference`.

The page is never told which system speaks, nor that something is a trap: it asks for "the sound at position 7".
Positions are answered in order and once. What arrives is checked here; `Refusal` says what was wrong with it.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, Protocol, TypeGuard

from marstts.errors import MarsError
from marstts.evaluation.listening.design import Kind, Trial
from marstts.evaluation.listening.headphones import (
    ATTEMPTS,
    MIN_CORRECT,
    NUM_TRIALS,
    ToneTrial,
    count_correct,
    encode_tones,
    plan_tones,
)
from marstts.evaluation.listening.stimuli import ROLES, Role
from marstts.evaluation.listening.store import Listener, Store

CACHED_SOUNDS = 64
MAX_NUMBER = 10_000
"""What a page counts stays below."""

SECONDS_TO_ANSWER = 5.0
"""Besides listening, for the estimate on the first page."""


class Refusal(MarsError):
    """The page asked for something that it cannot have; `status` is HTTP's word for why."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


class Sheet(Protocol):
    """A test that can be held: what is asked of whom, and what it sounds like."""

    @property
    def title(self) -> str: ...

    @property
    def contact(self) -> str: ...

    @property
    def headphones(self) -> bool:
        """Whether the headphone check is made."""

    @property
    def max_listeners(self) -> int: ...

    @property
    def seed(self) -> int: ...

    @property
    def digest(self) -> str:
        """Equal for equal tests only."""

    def plan(self, number: int) -> list[Trial]:
        """The session of a listener."""

    def trial_seconds(self, trial: Trial) -> float:
        """How long one has to listen to a trial."""

    def encode(self, trial: Trial, role: Role) -> bytes:
        """A sound of a trial, as a WAV file."""

    def volume_sample(self) -> bytes | None:
        """Speech to set the volume by; None: the volume is not asked about."""

    def result(self, trials: Sequence[Trial], choices: Sequence[int]) -> dict[str, Any] | None:
        """What a listener is told at the end of a session; None: nothing."""


class Host:
    """Holds one test for many listeners."""

    def __init__(
        self,
        sheet: Sheet,
        store: Store,
        clock: Callable[[], float] = time.time,
        finished: Callable[[int], None] = lambda number: None,
    ) -> None:
        """`finished` is told the number of each listener who gives their last answer, on the thread that took it."""
        self.sheet, self.store, self.clock, self.finished = sheet, store, clock, finished
        self.encode = lru_cache(CACHED_SOUNDS)(sheet.encode)
        self.beginning = threading.Lock()

    def describe(self) -> dict[str, Any]:
        """The first page: what is asked, and how long it takes."""
        trials = self.sheet.plan(0)
        seconds = sum(self.sheet.trial_seconds(trial) + SECONDS_TO_ANSWER for trial in trials)
        return {
            "title": self.sheet.title,
            "contact": self.sheet.contact,
            "minutes": max(1, round(seconds / 60)),
            "recordings": len(trials),
            "headphones": self.sheet.headphones,
            "questions": list(dict.fromkeys(trial.question.value for trial in trials)),
        }

    def begin(self) -> dict[str, str]:
        """A new listener's link."""
        with self.beginning:
            number = self.store.count()
            if number >= self.sheet.max_listeners:
                raise Refusal(403, "This test has all the listeners it needs. Thank you for coming!")
            session = [(trial, self.sheet.trial_seconds(trial)) for trial in self.sheet.plan(number)]
            return {"link": self.store.begin(session, number, self.clock()).link}

    def find(self, link: str) -> Listener:
        """The listener of a link."""
        listener = self.store.find(link)
        if listener is None:
            raise Refusal(404, "This link belongs to no listener of this test. Please check it, or begin anew.")
        return listener

    def state(self, link: str) -> dict[str, Any]:
        """Where the listener stands; they are taken to hear the trial in it from now on."""
        listener = self.find(link)
        self.store.see(listener.number, self.clock())
        return self.describe_state(listener)

    def describe_state(self, listener: Listener) -> dict[str, Any]:
        trials, choices = self.store.trials(listener.number), self.store.choices(listener.number)
        position = len(choices)
        state: dict[str, Any] = {"position": position, "total": len(trials), "volume": self.has_volume_sample()}
        if self.sheet.headphones and not any(listener.checks) and len(listener.checks) < ATTEMPTS:
            return {**state, "stage": "headphones", "attempt": len(listener.checks), "tones": NUM_TRIALS}
        if position == len(trials):
            result = self.sheet.result(trials, choices)
            return {**state, "stage": "done", "code": listener.code, "result": result}
        upcoming = trials[position + 1] if position + 1 < len(trials) else None
        return {
            **state,
            "stage": "trials",
            "trial": describe_trial(trials, position),
            "next": None if upcoming is None else [role.value for role in ROLES[upcoming.question]],
            "heard_with_headphones": any(listener.checks) if self.sheet.headphones else None,
        }

    def has_volume_sample(self) -> bool:
        return self.sheet.volume_sample() is not None

    def sound(self, link: str, position: int, role: Role) -> bytes:
        """A sound of the trial at a position of the listener's session."""
        trials = self.store.trials(self.find(link).number)
        if position >= len(trials) or role not in ROLES[trials[position].question]:
            raise Refusal(404, "There is no such recording in this session.")
        return self.encode(trials[position], role)

    def volume(self) -> bytes:
        """Speech to set the volume by."""
        sample = self.sheet.volume_sample()
        if sample is None:
            raise Refusal(404, "This test has no sample to set the volume by.")
        return sample

    def tones(self, link: str, index: int) -> bytes:
        """Three tones of the listener's present attempt at the headphone check."""
        planned = self.plan_tones(self.find(link))
        if index >= len(planned):
            raise Refusal(404, "There are no such tones.")
        return encode_tones(planned[index])

    def plan_tones(self, listener: Listener) -> list[ToneTrial]:
        return plan_tones(random.Random(f"{self.sheet.seed} tones {listener.link} {len(listener.checks)}"))

    def check(self, link: str, message: Any) -> dict[str, Any]:
        """Judge a headphone check, `{"answers": [0 to 2, six times]}`; where the listener stands after it."""
        listener = self.find(link)
        answers = read_tones(message)
        if self.describe_state(listener)["stage"] == "headphones":
            self.store.check(listener, count_correct(self.plan_tones(listener), answers) >= MIN_CORRECT)
        return self.state(link)

    def answer(self, link: str, message: Any) -> dict[str, Any]:
        """Keep `{"position", "choice", "plays"}`; where the listener stands after it.

        An answer that is already there (a reply was lost on the way, and the page asks again) changes nothing.
        """
        listener = self.find(link)
        position, choice, plays = read_answer(message)
        trials, given = self.store.trials(listener.number), len(self.store.choices(listener.number))
        if self.describe_state(listener)["stage"] == "headphones":
            raise Refusal(409, "The headphone check comes first.")
        if position > given or position >= len(trials):
            raise Refusal(409, f"Expected an answer to recording {given}, but one to {position} came. Reload the page.")
        if choice not in trials[position].question.scale:
            raise Refusal(400, f"Expected one of {sorted(trials[position].question.scale)}, but {choice} came.")
        if position == given:
            self.store.answer(listener, position, choice, plays, self.clock())
            if position + 1 == len(trials):
                self.finished(listener.number)
        return self.describe_state(listener)


def describe_trial(trials: Sequence[Trial], position: int) -> dict[str, Any]:
    """What the page shows of a trial: nothing that tells a system or a trap."""
    trial = trials[position]
    question = trial.question
    first = next(index for index, other in enumerate(trials) if other.question is question)
    return {
        "question": question.value,
        "choices": [{"digit": digit, "label": label} for digit, label in question.scale.items()],
        "sounds": [role.value for role in ROLES[question]],
        "opens_part": position == first,
        "example": trial.kind is Kind.EXAMPLE,
        "ends_examples": position > first and trial.kind is not Kind.EXAMPLE
        and trials[position - 1].kind is Kind.EXAMPLE and trials[position - 1].question is question,
        "number": sum(other.kind is not Kind.EXAMPLE for other in trials[: position + 1]),
        "of": sum(other.kind is not Kind.EXAMPLE for other in trials),
    }  # fmt: skip


def read_tones(message: Any) -> list[int]:
    """Answers to the headphone check; a Refusal where it is something else."""
    answers = message.get("answers") if isinstance(message, dict) else None
    if isinstance(answers, list) and len(answers) == NUM_TRIALS and all(is_number(one, 3) for one in answers):
        return answers
    raise Refusal(400, f"Expected answers: {NUM_TRIALS} numbers from 0 to 2.")


def read_answer(message: Any) -> tuple[int, int, int]:
    """Position, choice and plays of an answer; a Refusal where it is none."""
    position, choice, plays = (
        (message.get(name) for name in ("position", "choice", "plays")) if isinstance(message, dict) else (None,) * 3
    )
    if is_number(position, MAX_NUMBER) and is_number(choice, MAX_NUMBER) and is_number(plays, MAX_NUMBER):
        return position, choice, plays
    raise Refusal(400, "Expected position, choice and plays, three numbers.")


def is_number(value: Any, below: int) -> TypeGuard[int]:
    """Whether it is one of 0, 1, … below - 1; JSON's true is none."""
    return type(value) is int and 0 <= value < below
