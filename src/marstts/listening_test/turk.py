"""A listening test for Amazon Mechanical Turk: a layout, a table of inputs, and recordings under anonymous names.

Upstream: `rating`.  Downstream: a requester, who puts `audio/` on the web and the rest into Mechanical Turk.
`read_results` reads what comes back; the rules of the page apply to it.

A HIT is one listener's session. The layout is plain HTML (an HTMLQuestion) with one `${variable}` per recording. The
recordings differ between sessions; the question at each position does not. Only `key.json` identifies the recordings.
"""

from __future__ import annotations

import csv
import hashlib
import html
import io
import json
import math
import random
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.resources import files
from pathlib import Path
from typing import Annotated

from pydantic import Field

from marstts.errors import DataError
from marstts.io.config import Config, parse_config
from marstts.io.file_errors import printable_name
from marstts.io.files import atomic_folder
from marstts.io.reading import parse_object, read_text
from marstts.listening_test.config import Question
from marstts.listening_test.design import ListeningTrial, TrialKind
from marstts.listening_test.headphones import (
    MIN_CORRECT,
    NUM_TRIALS,
    ToneTrial,
    count_correct,
    encode_tones,
    plan_tones,
)
from marstts.listening_test.service import TestPlan
from marstts.listening_test.stimuli import ROLES, Role
from marstts.listening_test.store import Answer, SessionRecord, check_trial

FORMAT = "marstts mechanical turk key 2"
MAX_LAYOUT_BYTES = 65_535
"""Longest question that Mechanical Turk accepts."""

MAX_FILE_BYTES = 2**28
"""Largest table of results, or key, that is read."""

HEADINGS = {
    Question.NATURALNESS: "How natural does each recording sound, as if a person were speaking?",
    Question.SIMILARITY: "May the same person be speaking in both recordings? Only the voice matters.",
}
LABELS = {Role.STIMULUS: "Recording", Role.REFERENCE: "Reference"}


class KeyTrial(Config):
    """A trial in `key.json`."""

    question: Question
    kind: TrialKind
    system: str = Field(max_length=1000)
    sentence: str = Field(max_length=1000)
    audio_seconds: float = Field(ge=0.0, le=1e6)


Index = Annotated[int, Field(ge=0, le=2)]


class KeySession(Config):
    """A session in `key.json`."""

    tones: tuple[tuple[Index, Index], ...] = Field(max_length=NUM_TRIALS)
    """The quiet tone and the tone in antiphase of each trial of the headphone check."""

    trials: tuple[KeyTrial, ...] = Field(max_length=10_000)


class Key(Config):
    """`key.json`: what the recordings of each session are."""

    format: str
    sessions: dict[str, KeySession]


def export_sessions(plan: TestPlan, output: Path, audio_url: str, listeners: int) -> None:
    """Write `hit.html`, `inputs.csv`, `audio/` and `key.json`; DataError where they cannot be written."""
    page = layout(plan, plan.plan(0))
    if (size := len(page.encode())) > MAX_LAYOUT_BYTES:
        raise DataError(
            f"a session's page has {size} bytes, and Mechanical Turk takes {MAX_LAYOUT_BYTES}; lower "
            "per_system, repeats or attention_checks, or ask one question a test"
        )
    with atomic_folder(output, replace=lambda folder: False, kind=DataError) as folder:
        write_export(plan, page, folder, audio_url, listeners)


def write_export(plan: TestPlan, page: str, folder: Path, audio_url: str, listeners: int) -> None:
    """Fill an empty folder with an export."""
    (folder / "audio").mkdir()
    names = SoundNames(folder / "audio", audio_url.rstrip("/"), secrets.token_hex(8))
    rows, sessions = [], {}
    for number in range(listeners):
        trials = plan.plan(number)
        tones = plan_tones(random.Random(f"{plan.seed} tones {number}")) if plan.headphones else []
        session = secrets.token_hex(6)
        rows.append({"session": session, **tone_names(tones, names), **sound_names(plan, trials, names)})
        sessions[session] = KeySession(
            tones=tuple((tone.quiet, tone.antiphase) for tone in tones),
            trials=tuple(as_key_trial(trial, plan.trial_seconds(trial)) for trial in trials),
        )
    with (folder / "inputs.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    (folder / "hit.html").write_text(page, encoding="utf-8")
    key = Key(format=FORMAT, sessions=sessions)
    (folder / "key.json").write_text(json.dumps(key.model_dump(mode="json"), indent=1), encoding="utf-8")


@dataclass(frozen=True)
class SoundNames:
    """Writes recordings, and gives their addresses; equal recordings are written once."""

    folder: Path
    address: str
    nonce: str
    """Makes names of one export differ from those of another."""
    known: dict[tuple[ListeningTrial, Role], str] = field(default_factory=dict)

    def find(self, plan: TestPlan, trial: ListeningTrial, role: Role) -> str:
        """The address of a trial's recording, written at the first request; the trial's kind makes no difference."""
        key = (replace(trial, kind=TrialKind.RATING), role)
        if key not in self.known:
            self.known[key] = self.add(plan.encode(trial, role))
        return self.known[key]

    def add(self, content: bytes) -> str:
        """Write a recording; returns its address."""
        name = hashlib.sha256(self.nonce.encode() + content).hexdigest()[:20] + ".wav"
        if not (self.folder / name).exists():
            (self.folder / name).write_bytes(content)
        return f"{self.address}/audio/{name}"


def tone_names(tones: Sequence[ToneTrial], names: SoundNames) -> dict[str, str]:
    """Addresses of the headphone check, by variable."""
    return {f"tones_{number}": names.add(encode_tones(tone)) for number, tone in enumerate(tones, 1)}


def sound_names(plan: TestPlan, trials: Sequence[ListeningTrial], names: SoundNames) -> dict[str, str]:
    """Addresses of a session's recordings, by variable."""
    return {
        f"{role.value}_{number:03d}": names.find(plan, trial, role)
        for number, trial in enumerate(trials, 1)
        for role in ROLES[trial.question]
    }


def as_key_trial(trial: ListeningTrial, seconds: float) -> KeyTrial:
    """A trial in the key."""
    return KeyTrial(
        question=trial.question, kind=trial.kind, system=trial.system, sentence=trial.sentence, audio_seconds=seconds
    )


def layout(plan: TestPlan, trials: Sequence[ListeningTrial]) -> str:
    """The HIT's HTML. The questions of the first session serve for all: each position has one question."""
    template = (files(__package__) / "static" / "turk.html").read_text(encoding="utf-8")
    parts = []
    if plan.headphones:
        parts.append("<h2>Headphones: which of three tones is the quietest?</h2>")
        ordinals = {1: "First", 2: "Second", 3: "Third"}
        parts += [
            fieldset(f"Tones {number}", f"check_{number}", {"Tones": f"tones_{number}"}, ordinals)
            for number in range(1, NUM_TRIALS + 1)
        ]
    for number, trial in enumerate(trials, 1):
        if number == 1 or trials[number - 2].question is not trial.question:
            parts.append(f"<h2>{html.escape(HEADINGS[trial.question])}</h2>")
        sounds = {LABELS[role]: f"{role.value}_{number:03d}" for role in ROLES[trial.question]}
        scale = dict(sorted(trial.question.scale.items(), reverse=True))
        title = "Example: does not count" if trial.kind is TrialKind.EXAMPLE else f"Recording {number}"
        parts.append(fieldset(title, f"answer_{number:03d}", sounds, scale))
    return template.replace("[[title]]", html.escape(plan.title)).replace("[[parts]]", "\n".join(parts))


def fieldset(title: str, name: str, sounds: Mapping[str, str], choices: Mapping[int, str]) -> str:
    """One question: its recordings by label (each a variable with the address), its choices by value."""
    players = "".join(
        f'<p>{label}<br><audio controls preload="none" src="${{{variable}}}" aria-label="{label}"></audio></p>'
        for label, variable in sounds.items()
    )
    radios = "".join(
        f'<label><input type="radio" name="{name}" value="{value}" required> {value} {html.escape(label)}</label>'
        for value, label in choices.items()
    )
    seconds = f'<input type="hidden" name="seconds_{name}" value="0">'
    return f"<fieldset><legend>{title}</legend>{players}{radios}{seconds}</fieldset>"


def read_results(results: Path, key: Path | None) -> list[SessionRecord]:
    """Listeners of a batch's results; DataError where table and key do not fit."""
    name = printable_name(results)
    if key is None:
        raise DataError(f"{name}: results of Mechanical Turk need the key.json of `marstts listening-test export`")
    sessions = read_key(key).sessions
    text = read_text(results, MAX_FILE_BYTES, DataError)
    try:
        rows = list(csv.DictReader(io.StringIO(text, newline="")))
    except csv.Error as error:
        raise DataError(f"{name}: expected the results of a batch as CSV, but {error}") from error
    records = []
    for number, row in enumerate(rows, 2):
        session = str(row.get("Input.session"))
        if session not in sessions:
            raise DataError(
                f"{name}:{number}: session {printable_name(session)} is not in {printable_name(key)}; was it another "
                "export?"
            )
        try:
            records.append(read_row(row, sessions[session], session))
        except (TypeError, ValueError) as error:
            raise DataError(
                f"{name}:{number}: expected answers as numbers, but {printable_name(str(error))}"
            ) from error
    if not records:
        raise DataError(f"{name}: holds no results")
    return records


def read_key(path: Path) -> Key:
    """The sessions of an export; DataError where the file is something else."""
    name = printable_name(path)
    values = parse_object(read_text(path, MAX_FILE_BYTES, DataError), name, DataError)
    if values.get("format") != FORMAT:
        raise DataError(f"{name}: expected the key.json of an export, format {FORMAT!r}")
    key = parse_config(Key, values, name, DataError)
    try:
        for session in key.sessions.values():
            for held in session.trials:
                check_trial(ListeningTrial(held.question, held.kind, held.system, held.sentence))
    except ValueError as error:
        raise DataError(
            f"{name}: expected the key.json of an export, but it holds {printable_name(str(error))}"
        ) from error
    return key


def read_row(row: Mapping[str, str], session: KeySession, name: str) -> SessionRecord:
    """One worker's session. The worker's identifier is stored as a hash, which distinguishes workers."""
    worker = hashlib.sha256((row.get("WorkerId") or "").encode()).hexdigest()[:8]
    listener = f"worker {worker}, session {name}"
    answers = []
    for number, held in enumerate(session.trials, 1):
        choice = row.get(f"Answer.answer_{number:03d}") or ""
        if not choice:
            continue
        trial = ListeningTrial(held.question, held.kind, held.system, held.sentence)
        if int(choice) not in trial.question.scale:
            raise ValueError(f"answer_{number:03d} is {choice}")
        seconds = float(row.get(f"Answer.seconds_answer_{number:03d}") or 0.0)
        if not math.isfinite(seconds):
            raise ValueError(f"seconds_answer_{number:03d} is {seconds}")
        answers.append(Answer(listener, number - 1, trial, held.audio_seconds, int(choice), seconds))
    tones = [ToneTrial(*tone) for tone in session.tones]
    answered = [int(row.get(f"Answer.check_{number}") or 0) - 1 for number in range(1, len(tones) + 1)]
    passed = count_correct(tones, answered) >= MIN_CORRECT if tones else None
    return SessionRecord(listener, len(session.trials), passed, answers)
