"""The same test for Amazon Mechanical Turk: a layout, a table of inputs, recordings under names that tell nothing.

Upstream: `session`.  Downstream: a requester, who puts `audio/` on the web and the rest into Mechanical Turk; its
results come back through `read_results`, and meet the same rules as those of the page.

A HIT is one listener's session. The layout is plain HTML (an HTMLQuestion) with one `${variable}` per sound; what a
session holds differs, what is asked at each place does not. What the sounds are stands in `key.json` alone.
"""

from __future__ import annotations

import csv
import hashlib
import html
import json
import random
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.resources import files
from pathlib import Path
from typing import Any

from marstts.errors import DataError
from marstts.evaluation.listening.config import Question
from marstts.evaluation.listening.design import Kind, Trial
from marstts.evaluation.listening.headphones import (
    MIN_CORRECT,
    NUM_TRIALS,
    ToneTrial,
    count_correct,
    encode_tones,
    plan_tones,
)
from marstts.evaluation.listening.host import Sheet
from marstts.evaluation.listening.stimuli import ROLES, Role
from marstts.evaluation.listening.store import Answer, Attendance

FORMAT = "marstts mechanical turk key 1"
MAX_LAYOUT_BYTES = 65_535
"""What Mechanical Turk takes as a question."""

HEADINGS = {
    Question.NATURALNESS: "How natural does each recording sound, as if a person were speaking?",
    Question.SIMILARITY: "May the same person be speaking in both recordings? Only the voice matters.",
}
LABELS = {Role.STIMULUS: "Recording", Role.REFERENCE: "Reference"}


def export_sessions(sheet: Sheet, output: Path, audio_url: str, listeners: int) -> None:
    """Write `hit.html`, `inputs.csv`, `audio/` and `key.json`; DataError where they cannot be."""
    page = layout(sheet, sheet.plan(0))
    if (size := len(page.encode())) > MAX_LAYOUT_BYTES:
        raise DataError(
            f"a session's page has {size} bytes, and Mechanical Turk takes {MAX_LAYOUT_BYTES}; lower "
            "per_system, repeats or traps, or ask one question a test"
        )
    try:
        (output / "audio").mkdir(parents=True)
    except OSError as error:
        raise DataError(f"{output}: expected a folder that can be made anew, but {error.strerror}") from error
    names = SoundNames(output / "audio", audio_url.rstrip("/"), secrets.token_hex(8))
    rows, sessions = [], {}
    for number in range(listeners):
        trials = sheet.plan(number)
        tones = plan_tones(random.Random(f"{sheet.seed} tones {number}")) if sheet.headphones else []
        session = secrets.token_hex(6)
        rows.append({"session": session, **name_tones(tones, names), **name_sounds(sheet, trials, names)})
        sessions[session] = {
            "tones": [[tone.quiet, tone.opposed] for tone in tones],
            "trials": [describe(trial, sheet.trial_seconds(trial)) for trial in trials],
        }
    with (output / "inputs.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    (output / "hit.html").write_text(page, encoding="utf-8")
    key = {"format": FORMAT, "sessions": sessions}
    (output / "key.json").write_text(json.dumps(key, indent=1), encoding="utf-8")


@dataclass(frozen=True)
class SoundNames:
    """Where sounds are written, and under which address they will be found; equal sounds are written once."""

    folder: Path
    address: str
    salt: str
    known: dict[tuple[Trial, Role], str] = field(default_factory=dict)

    def find(self, sheet: Sheet, trial: Trial, role: Role) -> str:
        """The address of a trial's sound, made when it is first asked for; why it is heard makes no difference."""
        key = (replace(trial, kind=Kind.RATING), role)
        if key not in self.known:
            self.known[key] = self.add(sheet.encode(trial, role))
        return self.known[key]

    def add(self, content: bytes) -> str:
        """Write a sound; returns its address."""
        name = hashlib.sha256(self.salt.encode() + content).hexdigest()[:20] + ".wav"
        if not (self.folder / name).exists():
            (self.folder / name).write_bytes(content)
        return f"{self.address}/audio/{name}"


def name_tones(tones: Sequence[ToneTrial], names: SoundNames) -> dict[str, str]:
    """Addresses of the headphone check, by variable."""
    return {f"tones_{place}": names.add(encode_tones(tone)) for place, tone in enumerate(tones, 1)}


def name_sounds(sheet: Sheet, trials: Sequence[Trial], names: SoundNames) -> dict[str, str]:
    """Addresses of a session's sounds, by variable."""
    return {
        f"{role.value}_{place:03d}": names.find(sheet, trial, role)
        for place, trial in enumerate(trials, 1)
        for role in ROLES[trial.question]
    }


def describe(trial: Trial, seconds: float) -> dict[str, Any]:
    """A trial in the key."""
    return {"question": trial.question.value, "kind": trial.kind.value, "system": trial.system,
            "sentence": trial.sentence, "audio_seconds": seconds}  # fmt: skip


def layout(sheet: Sheet, trials: Sequence[Trial]) -> str:
    """The HIT's HTML. Every session has the same questions at the same places, so the first one's serve for all."""
    template = (files(__package__) / "static" / "turk.html").read_text(encoding="utf-8")
    parts = []
    if sheet.headphones:
        parts.append("<h2>Headphones: which of three tones is the quietest?</h2>")
        places = {1: "First", 2: "Second", 3: "Third"}
        parts += [
            fieldset(f"Tones {place}", f"check_{place}", {"Tones": f"tones_{place}"}, places)
            for place in range(1, NUM_TRIALS + 1)
        ]
    for place, trial in enumerate(trials, 1):
        if place == 1 or trials[place - 2].question is not trial.question:
            parts.append(f"<h2>{html.escape(HEADINGS[trial.question])}</h2>")
        sounds = {LABELS[role]: f"{role.value}_{place:03d}" for role in ROLES[trial.question]}
        scale = dict(sorted(trial.question.scale.items(), reverse=True))
        title = "Example: does not count" if trial.kind is Kind.EXAMPLE else f"Recording {place}"
        parts.append(fieldset(title, f"answer_{place:03d}", sounds, scale))
    return template.replace("[[title]]", html.escape(sheet.title)).replace("[[parts]]", "\n".join(parts))


def fieldset(title: str, name: str, sounds: Mapping[str, str], choices: Mapping[int, str]) -> str:
    """One question: its sounds by label (the variable with their address), its choices by value."""
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


def read_results(results: Path, key: Path | None) -> list[Attendance]:
    """Listeners of a batch's results; DataError where table and key do not fit."""
    if key is None:
        raise DataError(f"{results}: results of Mechanical Turk need the key.json that `marstts listen export` wrote")
    sessions = read_key(key)
    try:
        with results.open(encoding="utf-8-sig", newline="") as file:
            rows = list(csv.DictReader(file))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{results}: expected the results of a batch as CSV, but {error}") from error
    attendances = []
    for number, row in enumerate(rows, 2):
        session = row.get("Input.session")
        if session not in sessions:
            raise DataError(f"{results}:{number}: session {session!r} is not in {key}; was it another export?")
        try:
            attendances.append(read_row(row, sessions[session], session))
        except (TypeError, ValueError, KeyError) as error:
            raise DataError(f"{results}:{number}: expected answers as numbers, but {error}") from error
    if not attendances:
        raise DataError(f"{results}: holds no results")
    return attendances


def read_key(key: Path) -> dict[str, Any]:
    """Sessions by their name."""
    try:
        held = json.loads(key.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(f"{key}: expected the key.json of an export, but {error}") from error
    if not isinstance(held, dict) or held.get("format") != FORMAT:
        raise DataError(f"{key}: expected the key.json of an export, format {FORMAT!r}")
    return dict(held["sessions"])


def read_row(row: Mapping[str, str], session: Mapping[str, Any], name: str) -> Attendance:
    """One worker's session. Of the worker's name a hash is kept: enough to tell them apart."""
    worker = hashlib.sha256(row.get("WorkerId", "").encode()).hexdigest()[:8]
    listener = f"worker {worker}, session {name}"
    answers = []
    for place, held in enumerate(session["trials"], 1):
        choice = row.get(f"Answer.answer_{place:03d}", "")
        if not choice:
            continue
        trial = Trial(Question(held["question"]), Kind(held["kind"]), held["system"], held["sentence"])
        if int(choice) not in trial.question.scale:
            raise ValueError(f"answer_{place:03d} is {choice}")
        seconds = float(row.get(f"Answer.seconds_answer_{place:03d}") or 0.0)
        answers.append(Answer(listener, place - 1, trial, held["audio_seconds"], int(choice), seconds))
    tones = [ToneTrial(*tone) for tone in session["tones"]]
    heard = [int(row.get(f"Answer.check_{place}") or 0) - 1 for place in range(1, len(tones) + 1)]
    passed = count_correct(tones, heard) >= MIN_CORRECT if tones else None
    return Attendance(listener, len(session["trials"]), passed, answers)
