"""Sessions of a listening test: what the page may ask, what it receives, and the headphone check.

Upstream: `web`, which carries it over HTTP; tests, which call it.  Downstream: `store`, and a `TestPlan`: `rating` or
`preference`.

The page never receives a system's name or a trial's kind: it asks for "the recording at position 7". Positions are
answered in order and once. Messages are checked here; an `HTTPError` gives the reason of a refusal.
"""

from __future__ import annotations

import io
import random
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol, TypeGuard

import numpy as np
import soundfile
from numpy.typing import NDArray

from marstts_listening_test.design import ListeningTrial, TrialKind
from marstts_listening_test.pages import HTTPError
from marstts_listening_test.stimuli import ROLES, Role, Stimuli
from marstts_listening_test.store import AnswerStore, Listener

CACHED_SOUNDS = 64
MAX_NUMBER = 10_000
"""Bound of all numbers in a message."""

SECONDS_TO_ANSWER = 5.0
"""Time per trial in addition to playing it, for the estimate on the first page."""


class TestPlan(Protocol):
    """A planned test: the trials of each listener, and their recordings."""

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
    def stimuli(self) -> Stimuli:
        """The recordings of all trials."""

    @property
    def digest(self) -> str:
        """A hash that only equal tests share."""

    def plan(self, number: int) -> list[ListeningTrial]:
        """The session of a listener."""

    def volume_sample(self) -> bytes | None:
        """Speech to set the volume by; None: the page does not ask for the volume."""

    def result(self, trials: Sequence[ListeningTrial], choices: Sequence[int]) -> dict[str, Any] | None:
        """The result that a listener sees at the end of a session; None: no result."""


class SessionService:
    """Serves one test to many listeners."""

    def __init__(
        self,
        plan: TestPlan,
        store: AnswerStore,
        clock: Callable[[], float] = time.time,
        finished: Callable[[int], None] = lambda number: None,
    ) -> None:
        """`finished` is called with a listener's number after their last answer, on the thread that stored it."""
        self.plan, self.store, self.clock, self.finished = plan, store, clock, finished
        self.encode = lru_cache(CACHED_SOUNDS)(plan.stimuli.encode)
        self.starting = threading.Lock()

    def describe(self) -> dict[str, Any]:
        """The first page: title, questions and duration."""
        trials = self.plan.plan(0)
        seconds = sum(self.plan.stimuli.trial_seconds(trial) + SECONDS_TO_ANSWER for trial in trials)
        return {
            "title": self.plan.title,
            "contact": self.plan.contact,
            "minutes": max(1, round(seconds / 60)),
            "recordings": len(trials),
            "headphones": self.plan.headphones,
            "questions": list(dict.fromkeys(trial.question.value for trial in trials)),
        }

    def start(self) -> dict[str, str]:
        """A new listener's link."""
        with self.starting:
            number = self.store.count()
            if number >= self.plan.max_listeners:
                raise HTTPError(403, "This test has all the listeners it needs. Thank you for coming!")
            session = [(trial, self.plan.stimuli.trial_seconds(trial)) for trial in self.plan.plan(number)]
            return {"link": self.store.start(session, number, self.clock()).link}

    def find(self, link: str) -> Listener:
        """The listener of a link."""
        listener = self.store.find(link)
        if listener is None:
            raise HTTPError(404, "This link belongs to no listener of this test. Please check it, or start again.")
        return listener

    def state(self, link: str) -> dict[str, Any]:
        """The state of a listener's session; response time is counted from this call on."""
        listener = self.find(link)
        self.store.mark_seen(listener.number, self.clock())
        return self.describe_state(listener)

    def describe_state(self, listener: Listener) -> dict[str, Any]:
        """The state of a session: its stage, its position, and the present trial."""
        trials, choices = self.store.trials(listener.number), self.store.choices(listener.number)
        position = len(choices)
        state: dict[str, Any] = {"position": position, "total": len(trials), "volume": self.has_volume_sample()}
        if self.plan.headphones and not any(listener.checks) and len(listener.checks) < ATTEMPTS:
            return {**state, "stage": "headphones", "attempt": len(listener.checks), "tones": NUM_TRIALS}
        if position == len(trials):
            result = self.plan.result(trials, choices)
            return {**state, "stage": "done", "code": listener.code, "result": result}
        upcoming = trials[position + 1] if position + 1 < len(trials) else None
        return {
            **state,
            "stage": "trials",
            "trial": describe_trial(trials, position),
            "next": None if upcoming is None else [role.value for role in ROLES[upcoming.question]],
            "headphones_passed": any(listener.checks) if self.plan.headphones else None,
        }

    def has_volume_sample(self) -> bool:
        """Whether the page asks for the volume."""
        return self.plan.volume_sample() is not None

    def sound(self, link: str, position: int, role: Role) -> bytes:
        """A recording of the trial at a position of the listener's session."""
        trials = self.store.trials(self.find(link).number)
        if position >= len(trials) or role not in ROLES[trials[position].question]:
            raise HTTPError(404, "There is no such recording in this session.")
        return self.encode(trials[position], role)

    def volume(self) -> bytes:
        """Speech to set the volume by."""
        sample = self.plan.volume_sample()
        if sample is None:
            raise HTTPError(404, "This test has no sample to set the volume by.")
        return sample

    def tones(self, link: str, index: int) -> bytes:
        """Three tones of the listener's present attempt at the headphone check."""
        planned = self.plan_tones(self.find(link))
        if index >= len(planned):
            raise HTTPError(404, "There are no such tones.")
        return encode_tones(planned[index])

    def plan_tones(self, listener: Listener) -> list[ToneTrial]:
        """The tones of the listener's present attempt."""
        return plan_tones(random.Random(f"{self.plan.seed} tones {listener.link} {len(listener.checks)}"))

    def check_headphones(self, link: str, message: Any) -> dict[str, Any]:
        """Score a headphone check, `{"answers": [0 to 2, six times]}`; the session's state after it."""
        listener = self.find(link)
        answers = read_tones(message)
        if self.describe_state(listener)["stage"] == "headphones":
            passed = count_correct(self.plan_tones(listener), answers) >= MIN_CORRECT
            self.store.add_headphone_check(listener, passed)
        return self.state(link)

    def answer(self, link: str, message: Any) -> dict[str, Any]:
        """Store `{"position", "choice", "plays"}`; the session's state after it.

        An answer that is already stored (a response was lost, and the page repeats its request) changes nothing.
        """
        listener = self.find(link)
        position, choice, plays = read_answer(message)
        trials, num_answers = self.store.trials(listener.number), len(self.store.choices(listener.number))
        if self.describe_state(listener)["stage"] == "headphones":
            raise HTTPError(409, "The headphone check comes first.")
        if position > num_answers or position >= len(trials):
            raise HTTPError(
                409, f"Expected an answer to recording {num_answers}, but one to {position} came. Reload the page."
            )
        if choice not in trials[position].question.scale:
            raise HTTPError(400, f"Expected one of {sorted(trials[position].question.scale)}, but {choice} came.")
        if position == num_answers:
            self.store.add_answer(listener, position, choice, plays, self.clock())
            if position + 1 == len(trials):
                self.finished(listener.number)
        return self.describe_state(listener)


def describe_trial(trials: Sequence[ListeningTrial], position: int) -> dict[str, Any]:
    """A trial as the page shows it: nothing identifies a system or an attention check."""
    trial = trials[position]
    question = trial.question
    first = next(index for index, other in enumerate(trials) if other.question is question)
    return {
        "question": question.value,
        "choices": [{"digit": digit, "label": label} for digit, label in question.scale.items()],
        "sounds": [role.value for role in ROLES[question]],
        "opens_part": position == first,
        "example": trial.kind is TrialKind.EXAMPLE,
        "ends_examples": position > first and trial.kind is not TrialKind.EXAMPLE
        and trials[position - 1].kind is TrialKind.EXAMPLE and trials[position - 1].question is question,
        "number": sum(other.kind is not TrialKind.EXAMPLE for other in trials[: position + 1]),
        "of": sum(other.kind is not TrialKind.EXAMPLE for other in trials),
    }  # fmt: skip


def read_tones(message: Any) -> list[int]:
    """Answers to the headphone check; HTTPError where the message is something else."""
    answers = message.get("answers") if isinstance(message, dict) else None
    if isinstance(answers, list) and len(answers) == NUM_TRIALS and all(is_number(one, 3) for one in answers):
        return answers
    raise HTTPError(400, f"Expected answers: {NUM_TRIALS} numbers from 0 to 2.")


def read_answer(message: Any) -> tuple[int, int, int]:
    """Position, choice and plays of an answer; HTTPError where the message is something else."""
    position, choice, plays = (
        (message.get(name) for name in ("position", "choice", "plays")) if isinstance(message, dict) else (None,) * 3
    )
    if is_number(position, MAX_NUMBER) and is_number(choice, MAX_NUMBER) and is_number(plays, MAX_NUMBER):
        return position, choice, plays
    raise HTTPError(400, "Expected position, choice and plays, three numbers.")


def is_number(value: Any, below: int) -> TypeGuard[int]:
    """Whether the value is one of 0, 1, … below - 1; JSON's true is not."""
    return type(value) is int and 0 <= value < below


# The headphone check: of three tones the quietest one must be named; over loudspeakers another one seems quietest.
# Woods, Siegel, Traer & McDermott, "Headphone screening to facilitate web-based auditory experiments" (2017): of
# three tones of 200 Hz one is 6 dB quieter, and one of the other two is in opposite phase left and right. Through the
# air the two channels of that one cancel, and it seems the quietest. Five of six correct is a pass.  Deviations: none
# known.

NUM_TRIALS, MIN_CORRECT = 6, 5
ATTEMPTS = 2
"""A listener who fails may put headphones on and try again, once."""

FREQUENCY_HZ = 200.0
TONE_SECONDS, RAMP_SECONDS, PAUSE_SECONDS = 1.0, 0.1, 0.5
QUIETER_DB = 6.0
AMPLITUDE = 0.25
SAMPLE_RATE = 44_100


@dataclass(frozen=True)
class ToneTrial:
    """Indices from 0 to 2 among three tones."""

    quiet: int
    """The quieter tone: the correct answer."""
    antiphase: int
    """The tone whose channels are in opposite phase."""


def plan_tones(rng: random.Random) -> list[ToneTrial]:
    """Six trials: each tone is the quiet one twice, in random order."""
    quiet = [index for index in range(3) for _ in range(NUM_TRIALS // 3)]
    rng.shuffle(quiet)
    return [ToneTrial(index, rng.choice([other for other in range(3) if other != index])) for index in quiet]


def count_correct(trials: list[ToneTrial], answers: list[int]) -> int:
    """Number of answers (0 to 2) that name the quiet tone."""
    return sum(trial.quiet == answer for trial, answer in zip(trials, answers, strict=True))


def synthesize_tones(trial: ToneTrial) -> NDArray[np.float64]:
    """(N, 2) samples, left and right, at SAMPLE_RATE."""
    time = np.arange(round(TONE_SECONDS * SAMPLE_RATE)) / SAMPLE_RATE
    ramp = np.clip(np.minimum(time, TONE_SECONDS - time) / RAMP_SECONDS, 0.0, 1.0)
    tone = AMPLITUDE * np.sin(2 * np.pi * FREQUENCY_HZ * time) * np.sin(ramp * np.pi / 2) ** 2
    pause = np.zeros((round(PAUSE_SECONDS * SAMPLE_RATE), 2))
    pieces = []
    for index in range(3):
        gain = 10 ** (-QUIETER_DB / 20) if index == trial.quiet else 1.0
        right = -1.0 if index == trial.antiphase else 1.0
        pieces += [gain * np.stack([tone, right * tone], axis=1), pause]
    return np.concatenate(pieces[:-1])


def encode_tones(trial: ToneTrial) -> bytes:
    """A stereo WAV file."""
    buffer = io.BytesIO()
    soundfile.write(buffer, synthesize_tones(trial), SAMPLE_RATE, format="WAV", subtype="PCM_16")
    return buffer.getvalue()
